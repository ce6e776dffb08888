"""JSON logs of a run, one object a line.

On Ray they are in each worker's log files, else in one file in the temporary folder. Each line names its run and, where
they apply, shard, attempt, node and actor. So a log collector can assemble a shard's history from all machines that
had it.
"""

from __future__ import annotations

import functools
import logging
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pythonjsonlogger.json import JsonFormatter

_LOGGERS = ("pipelines", "hpd_core")
_FIELDS = ("asctime", "levelname", "name", "message")
_NAMES = {"asctime": "time", "levelname": "level", "name": "logger"}


@functools.cache
def log_as_json(run_id: str) -> None:
    """Set up this process of a cluster, once: what the project logs goes to stderr, which Ray keeps in a file."""
    static = {"run": run_id}
    # Where there is no Ray (load_test.py takes shards through the stages without), the question alone would start one,
    # or wait for the last one of this machine.
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        context = ray.get_runtime_context()
        static |= {"node": context.get_node_id(), "worker": context.get_worker_id()}
        if actor := context.get_actor_id():
            static["actor"] = actor
    _log_to(logging.StreamHandler(sys.stderr), static)


@contextmanager
def log_to_file(run_id: str) -> Iterator[None]:
    """Write what the project logs to a file of the run in the temporary folder, for a block."""
    handler: logging.Handler = logging.NullHandler()
    with suppress(OSError):  # a log is no reason to stop a run
        handler = logging.FileHandler(Path(tempfile.gettempdir(), f"hpd-{run_id}.jsonl"), encoding="utf-8")
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(logger.handlers, logger.level, logger.propagate) for logger in loggers]
    _log_to(handler, {"run": run_id})
    try:
        yield
    finally:
        for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)
        handler.close()


def _log_to(handler: logging.Handler, static: Mapping[str, str]) -> None:
    formatter = JsonFormatter(_FIELDS, rename_fields=_NAMES, static_fields=dict(static), json_ensure_ascii=False)
    handler.setFormatter(formatter)
    for logger in map(logging.getLogger, _LOGGERS):
        logger.handlers = [handler]
        logger.setLevel(logging.INFO)
        # Ray's own handler would write it again, as plain text.
        logger.propagate = False


def about(shard: int, **facts: Any) -> dict[str, Any]:
    """Return the `extra` of a log line about a shard."""
    return {"shard": shard, **{name: value for name, value in facts.items() if value is not None}}
