"""Prometheus metrics of the server."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from hpd_core import JsonResult

_SECONDS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120)


class ServingMetrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.open_requests = Gauge(
            "hpd_server_open_requests", "requests that wait or are answered", registry=self._registry
        )
        self._requests = Counter(
            "hpd_server_requests",
            "requests that have ended, by HTTP status; 499: the client went before its answer",
            ("endpoint", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "hpd_server_request_seconds",
            "from the request's head to the end of its answer",
            ("endpoint",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._tokens = Counter("hpd_server_tokens", "tokens of answers", ("kind",), registry=self._registry)
        self._fields = Counter("hpd_server_fields", "fields that were answered", ("status",), registry=self._registry)

    def count_request(self, endpoint: str, status: int, seconds: float) -> None:
        """Count a finished request."""
        self._requests.labels(endpoint, str(status)).inc()
        self._seconds.labels(endpoint).observe(seconds)

    def count_answer(self, result: JsonResult) -> None:
        """Count an answered document."""
        self._tokens.labels("prompt").inc(result.num_prompt_tokens)
        self._tokens.labels("output").inc(result.num_output_tokens)
        for field in result.fields.values():
            self._fields.labels(field.status).inc()

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
