"""YAML written by hand, with comments: scalars that read back as they were, texts of a catalog inside comments."""

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
    """The value on one line, quoted where YAML would read it as something else, in a list or as a key, too."""
    # A line break or a control character must not end the line: escaped, in double quotes.
    style = '"' if isinstance(value, str) and not value.isprintable() else None
    text: str = yaml.safe_dump(
        [value], default_flow_style=True, default_style=style, allow_unicode=style is None, width=math.inf
    )
    return text.strip()[1:-1]


def is_key(text: str) -> bool:
    """Whether YAML takes it as a key: one that is longer than 1,024 characters, as it is written, is none."""
    return bool(text) and is_encodable(text) and len(scalar(text)) <= _MAX_KEY


def shown(text: str) -> str:
    """A text of a catalog for a comment or a table: one line, cut where it is long."""
    line = comment_text(text)
    return line if len(line) <= _MAX_SHOWN else f"{line[: _MAX_SHOWN - 1]}…"


def listed(texts: Iterable[str], most: int) -> str:
    """The first of some texts, and how many more there are."""
    texts = list(texts)
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return ", ".join(shown(text) for text in texts[:most]) + more
