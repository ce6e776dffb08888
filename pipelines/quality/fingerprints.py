"""Fingerprints that assign products to the sides of a split, by folded text, so that equal texts are on one side."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from pipelines.quality.scoring import fold


def fingerprint(category: str, fields: Mapping[str, str], draw: str | None = None) -> int:
    """Return a number below 2**64 from a product's category and folded text; `draw` changes it."""
    text = json.dumps([*([draw] if draw else []), category, [fold(text) for text in fields.values()]])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
