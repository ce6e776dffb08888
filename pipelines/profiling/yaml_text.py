"""Text of YAML with comments: scalars that parse back unchanged, and texts of a catalog inside comments."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import yaml

from hpd_core.types import is_encodable
from pipelines.config.yaml_dumping import comment_text

_MAX_KEY = 1000
_MAX_SHOWN = 60


def scalar(value: Any) -> str:
    """Encode the value on one line, quoted if YAML would parse it otherwise, also in a list or as a key."""
    # A line break or a control character must not end the line: escaped, in double quotes.
    style = '"' if isinstance(value, str) and not value.isprintable() else None
    text: str = yaml.safe_dump(
        [value], default_flow_style=True, default_style=style, allow_unicode=style is None, width=math.inf
    )
    return text.strip()[1:-1]


def is_key(text: str) -> bool:
    """Return whether YAML accepts it as a key, which may have at most 1,024 characters when written."""
    return bool(text) and is_encodable(text) and len(scalar(text)) <= _MAX_KEY


def shown(text: str) -> str:
    """Shorten a text of a catalog for a comment or a table: one line, cut if it is long."""
    line = comment_text(text)
    return line if len(line) <= _MAX_SHOWN else f"{line[: _MAX_SHOWN - 1]}…"


def listed(texts: Iterable[str], most: int) -> str:
    """Join the first `most` texts, and state the number of further ones."""
    texts = list(texts)
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return ", ".join(shown(text) for text in texts[:most]) + more
