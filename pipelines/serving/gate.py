"""Gate of every request: API key check, request id, and counters."""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hpd_core import JsonResult
from pipelines.serving.reply import ApiError, new_id, refuse_unread

_GUARDED = "/v1/"
_GONE = 499  # of a request whose client went before its answer began


class RequestGate:
    """An ASGI application that wraps another.

    Args:
        api_key: bearer token that requests below /v1/ must bring; None: no token needed.
        endpoints: the addresses that are counted one by one.
    """

    def __init__(self, app: ASGIApp, api_key: str | None, endpoints: Collection[str], metrics: ServingMetrics) -> None:
        self._app, self._endpoints, self._metrics = app, frozenset(endpoints), metrics
        self._expected = None if api_key is None else api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, or refuse it before its body is read."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.monotonic(), _GONE

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = new_id("req_")
            await send(message)

        try:
            if self._may_pass(scope):
                await self._app(scope, receive, watched)
            else:
                await refuse_unread(_no_key(), receive, watched)
        finally:
            endpoint = scope["path"] if scope["path"] in self._endpoints else "other"
            self._metrics.count_request(endpoint, status, time.monotonic() - started)

    def _may_pass(self, scope: Scope) -> bool:
        if self._expected is None or not scope["path"].startswith(_GUARDED):
            return True
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and secrets.compare_digest(given.strip().encode("latin-1"), self._expected)


def _no_key() -> ApiError:
    return ApiError(
        401,
        "the request has no valid key; send the one that the server was started with as 'Authorization: Bearer ...'",
        code="invalid_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    )


@dataclass(frozen=True, slots=True)
class ServingLimits:
    """Limits of the server.

    Per request: bytes of the body, branches and depth of the schema, values in its enums, seconds until the answer, and
    seconds in which its body has to be there. At a time: requests that are waiting or being answered.
    """

    max_body_bytes: int = 4_000_000
    max_branches: int = 512
    max_depth: int = 10
    max_members: int = 10_000
    timeout_seconds: float = 120.0
    max_open_requests: int = 512
    body_seconds: float = 30.0


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
