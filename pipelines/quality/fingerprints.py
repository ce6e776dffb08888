"""Which side of a split a product is on: drawn by its text, so that texts that read alike are on one side."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from pipelines.quality.scoring import fold


def fingerprint(category: str, fields: Mapping[str, str], draw: str | None = None) -> int:
    """A number below 2**64 from a product's category and folded text, another one for every `draw`."""
    text = json.dumps([*([draw] if draw else []), category, [fold(text) for text in fields.values()]])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
