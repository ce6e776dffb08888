"""Refusals of requests, in the error format of OpenAI's interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LONGEST = 2000  # characters of a message; what a client sent may stand in it
_KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error", 504: "timeout_error"}


class ApiError(Exception):
    """Refusal of a request; the message gives the reason and the remedy.

    Attributes:
        status: HTTP status.
        param: the offending key of the request, such as "messages[0].content".
        code: short machine-readable name.
        headers: HTTP headers of the response.
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
        """Return the whole JSON body."""
        kind = _KINDS.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": str(self)[:_LONGEST], "type": kind, "param": self.param, "code": self.code}}


def refused(param: str, message: str) -> ApiError:
    """Return the refusal of a request that is wrong at `param`, so that a retry would not help."""
    return ApiError(400, f"{param}: {message}", param=param)
