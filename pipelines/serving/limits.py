"""How much the server takes: of one request, and at a time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServingLimits:
    """Of one request: bytes of its body, branches and depth of its schema, values that enums of it list, seconds until
    its answer. At a time: requests that are waiting or being answered."""

    max_body_bytes: int = 4_000_000
    max_branches: int = 512
    max_depth: int = 10
    max_members: int = 10_000
    timeout_seconds: float = 120.0
    max_open_requests: int = 512
