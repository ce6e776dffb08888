"""Regular expressions of users: whether a text can be searched for one. They are decoded by text/grammars.py."""

from __future__ import annotations

import re
from functools import lru_cache

import regex

from hpd_core.errors import HPDError

_LONGEST = 20_000
_MOST_WRITTEN = 50_000
"""Maximum parts with repetitions written out: `regex` writes them out, and crashes with some hundred thousand."""
_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(\d+),?\d*\}|.", re.DOTALL)
# `regex` reads these as fuzzy matching, a maximum count and a named class; others as plain characters.
_UNICODE = re.compile(r"\\[pPsS]")
_READ_IN_TWO_WAYS = re.compile(r"\{(?:\s*(?:\d+\s*<=?\s*)?\d*[dies]|,[\d}])|:\^?\w+:\]")


class PatternError(HPDError):
    """Regular expression that cannot be decoded; the message says which, and why."""


@lru_cache(maxsize=256)
def compiled(pattern: str) -> regex.Pattern[str]:
    """Return the expression for which texts are searched, as it is decoded: `\\d` and `\\w` are those of ASCII.

    Raises:
        PatternError: it is not one, is too large, or is read in two ways.
    """
    if len(pattern) > _LONGEST or _is_too_large(pattern):
        raise PatternError(
            f"it has more than {_MOST_WRITTEN:,} characters when its repetitions are written out: repeat less often"
        )
    if found := _READ_IN_TWO_WAYS.search(pattern):
        raise PatternError(f"{found[0]!r} is read in two ways: write '\\{{' or '[\\[:' for characters")
    try:
        # With the flag, properties and spaces would be ASCII's, too.
        return regex.compile(pattern, 0 if _UNICODE.search(pattern) else regex.ASCII)
    except (regex.error, ValueError, OverflowError, RecursionError) as error:
        raise PatternError(f"it is no regular expression: {error}") from error


def _is_too_large(pattern: str) -> bool:
    sizes, last = [0], 0  # of the groups that are open, and of the part before
    for part in _PART.finditer(pattern):
        if part[1]:
            times = max(1, int(part[1].lstrip("0")[:6] or "0"))
            sizes[-1] += last * (times - 1)
            last *= times
        elif part[0] == "(":
            sizes.append(0)
        else:
            last = sizes.pop() if part[0] == ")" and len(sizes) > 1 else 1
            sizes[-1] += last
        if sizes[-1] > _MOST_WRITTEN:
            return True
    return False
