"""What the two interfaces have in common when they answer."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from hpd_core import FieldAnswer, JsonResult
from pipelines.serving.api_errors import ApiError


class Reply(Protocol):
    """One answer in the form of an interface: whole, or as the events of a stream."""

    def whole(self, result: JsonResult) -> dict[str, Any]:
        """The body of an answer."""
        ...

    def begin(self) -> Iterator[bytes]:
        """The events before the first text."""
        ...

    def go_on(self, text: str, fields: Sequence[FieldAnswer]) -> Iterator[bytes]:
        """The events of some more text, which may be none, and of fields that have ended."""
        ...

    def end(self, result: JsonResult) -> Iterator[bytes]:
        """The events behind the last text."""
        ...

    def fail(self, error: ApiError) -> Iterator[bytes]:
        """The events in place of the rest."""
        ...


def new_id(prefix: str) -> str:
    """A name that nothing else has."""
    return f"{prefix}{uuid.uuid4().hex}"


def now() -> int:
    """Seconds since 1970."""
    return int(time.time())


def json_bytes(data: Any) -> bytes:
    """In ASCII: a value may hold half a surrogate pair, which no UTF-8 can."""
    return json.dumps(data, ensure_ascii=True).encode()


def event(data: Any, name: str | None = None) -> bytes:
    """One server-sent event."""
    head = b"" if name is None else f"event: {name}\n".encode()
    return head + b"data: " + json_bytes(data) + b"\n\n"
