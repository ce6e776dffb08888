"""Check for numbers with more digits than a file can hold: a reader would silently get another number."""

from __future__ import annotations

import re
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MORE_DIGITS = "more digits than a number of the file holds: export csv"

_SURELY_HELD = 15  # digits, by any double
_LONG = rf"[\d.]{{{_SURELY_HELD + 1},}}"
_NUMBER = re.compile(r"\d+\.?\d*|\.\d+")


def are_changed(texts: pa.ChunkedArray, max_digits: int | None) -> pa.Array:
    """Return for each text whether a number in it, alone or the end of a range, would change in the file.

    Args:
        max_digits: most digits of a number there; None for a double.
    """
    # Few are long: the others are not looked at one by one.
    places = pc.indices_nonzero(pc.match_substring_regex(texts, _LONG)).to_numpy()
    changed = np.zeros(len(texts), dtype=bool)
    changed[places] = [
        not all(_is_held(each, max_digits) for each in _NUMBER.findall(text))
        for text in texts.take(pa.array(places)).to_pylist()
    ]
    return pa.array(changed)


def _is_held(number: str, max_digits: int | None) -> bool:
    if max_digits is not None:
        return len(number.replace(".", "").strip("0")) <= max_digits
    return Decimal(repr(float(number))) == Decimal(number)
