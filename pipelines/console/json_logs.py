"""What the processes of a run log: one JSON object a line, in Ray's log files of each worker.

Every line says which run it is about, and where it applies which shard and attempt, on which node and in which actor:
a log collector can put the story of a shard together from all the machines that had it.
"""

from __future__ import annotations

import functools
import logging
import sys
from typing import Any

import ray
from pythonjsonlogger.json import JsonFormatter

_LOGGERS = ("pipelines", "hpd_core")
_FIELDS = ("asctime", "levelname", "name", "message")
_NAMES = {"asctime": "time", "levelname": "level", "name": "logger"}


@functools.cache
def log_as_json(run_id: str) -> None:
    """Sets up this process, once: what the project logs goes to stderr, which Ray keeps in a file."""
    static = {"run": run_id}
    # Where there is no Ray (load_test.py takes shards through the stages without), the question alone would start one,
    # or wait for the last one of this machine.
    if ray.is_initialized():
        context = ray.get_runtime_context()
        static |= {"node": context.get_node_id(), "worker": context.get_worker_id()}
        if actor := context.get_actor_id():
            static["actor"] = actor
    formatter = JsonFormatter(
        _FIELDS,
        rename_fields=_NAMES,
        static_fields=static,
        json_ensure_ascii=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(logging.INFO)
        # Ray's own handler would write it again, as plain text.
        logger.propagate = False


def about(shard: int, **facts: Any) -> dict[str, Any]:
    """The `extra` of a log line about a shard."""
    return {"shard": shard, **{name: value for name, value in facts.items() if value is not None}}
