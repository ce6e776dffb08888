"""Conversion of an entry of the attribute table's `evidence` to the engine's `Evidence`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpd_core import Evidence


def stored_evidence(entry: Mapping[str, Any]) -> Evidence:
    """Return the place; the text around it is kept in the table only."""
    return Evidence(entry["field"], entry["start"], entry["end"], entry["text"], entry["match"])
