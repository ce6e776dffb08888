"""Limits of the server, per request and at a time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServingLimits:
    """Limits of the server.

    Per request: bytes of the body, branches and depth of the schema, values in its enums, seconds until the answer. At
    a time: requests that are waiting or being answered.
    """

    max_body_bytes: int = 4_000_000
    max_branches: int = 512
    max_depth: int = 10
    max_members: int = 10_000
    timeout_seconds: float = 120.0
    max_open_requests: int = 512
