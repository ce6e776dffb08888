"""Parts of a reply that the two interfaces share."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from hpd_core import FieldAnswer, JsonResult
from pipelines.serving.api_errors import ApiError


class Reply(Protocol):
    """One reply in the form of an interface: whole, or as the events of a stream."""

    def whole(self, result: JsonResult) -> dict[str, Any]:
        """Return the body of an answer."""
        ...

    def begin(self) -> Iterator[bytes]:
        """Yield the events before the first text."""
        ...

    def go_on(self, text: str, fields: Sequence[FieldAnswer]) -> Iterator[bytes]:
        """Yield the events of more text, which may be empty, and of fields that have ended."""
        ...

    def end(self, result: JsonResult) -> Iterator[bytes]:
        """Yield the events after the last text."""
        ...

    def fail(self, error: ApiError) -> Iterator[bytes]:
        """Yield the events that report an error in place of the rest."""
        ...


def new_id(prefix: str) -> str:
    """Return a unique id with this prefix."""
    return f"{prefix}{uuid.uuid4().hex}"


def now() -> int:
    """Return seconds since 1970."""
    return int(time.time())


def json_bytes(data: Any) -> bytes:
    """Encode as ASCII JSON, because a value may hold half a surrogate pair, which UTF-8 cannot encode."""
    return json.dumps(data, ensure_ascii=True).encode()


def event(data: Any, name: str | None = None) -> bytes:
    """Encode one server-sent event."""
    head = b"" if name is None else f"event: {name}\n".encode()
    return head + b"data: " + json_bytes(data) + b"\n\n"
