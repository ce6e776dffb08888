"""What a request is refused with, in the shape in which clients of OpenAI's interface read errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LONGEST = 2000  # characters of a message; what a client sent may stand in it
_KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error", 504: "timeout_error"}


class ApiError(Exception):
    """A request that gets no answer; the message says why and the way out.

    Attributes:
        status: HTTP status.
        param: the key of the request that is meant, "messages[0].content".
        code: a short name that programs may tell it by.
        headers: to be sent along.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The whole JSON body."""
        kind = _KINDS.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": str(self)[:_LONGEST], "type": kind, "param": self.param, "code": self.code}}


def refused(param: str, message: str) -> ApiError:
    """A request that is wrong at `param`, and would be wrong again."""
    return ApiError(400, f"{param}: {message}", param=param)
