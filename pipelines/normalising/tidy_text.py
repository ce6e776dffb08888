"""Texts in one form, so that texts that look the same are equal."""

from __future__ import annotations

import re
import unicodedata

# Soft hyphens and characters without width, except joiners, which some scripts and emoji need.
_UNSEEN = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def tidy_text(text: str) -> str:
    """Return the text in Unicode NFC, with single spaces, none at the ends, and without invisible characters."""
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    shown = _UNSEEN.sub("", _CONTROL.sub(" ", text))
    return " ".join(unicodedata.normalize("NFC", shown).split())
