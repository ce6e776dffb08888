"""Texts in one form: what looks the same is the same."""

from __future__ import annotations

import re
import unicodedata

# Soft hyphens and what has no width, but for joiners, which some scripts and emoji need.
_UNSEEN = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def tidy_text(text: str) -> str:
    """Unicode NFC, single spaces, none at the ends, nothing that nobody sees."""
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    shown = _UNSEEN.sub("", _CONTROL.sub(" ", text))
    return " ".join(unicodedata.normalize("NFC", shown).split())
