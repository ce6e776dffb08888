"""Numbers and signs of a text, which must agree if two texts are to be the same.

-5 °C is not 5 °C, 1.5 L not 15 L, 12" not 1/2", C++ not C. But "3-season" is "3 Season", and "1,5 L" is "1.5 L": a sign
between words, or between a word and a number, only joins them. A sign that no word follows belongs to the word before
it, despite space in between: "A +" is "A+", and "B -" is not "B".
"""

from __future__ import annotations

import re
import unicodedata

_FORMS = str.maketrans(
    {
        **dict.fromkeys("−‐‑‒–—", "-"),
        **dict.fromkeys("⁄∕", "/"),
        **dict.fromkeys("″”“", '"'),
        **dict.fromkeys("′’", "'"),
        **dict.fromkeys("×✕✖", "x"),
        "º": "°",
        "℃": "°C",
        "℉": "°F",
    }
)
_SPACED_MINUS = re.compile(r"\A\s*-\s+(?=\d)")
_BETWEEN_DIGITS = re.compile(r"(?<=\d)\s*([-/:])\s*(?=\d)")
_DECIMAL_COMMA = re.compile(r"(?<![\d.,])(\d+),(\d{1,2})(?![\d.,])")
_SPACED_SIGNS = re.compile(
    r"""
    (?<=[^\W\d_])\s*[+\#](?:\s*[+\#])*(?!\s*\w)  # C ++; in "black + white" it joins words
    | (?<=\d)\s*\+(?:\s*\+)*                     # 8 +
    | (?<=\d)\s+'(?!\w)                          # 5 '
    | (?<=[^\W_])\s*-(?:\s*-)*+(?=\W*\Z)         # B -
    """,
    re.VERBOSE,
)
_TOKEN = re.compile(
    r"""
    (?:(?<!\w)[-.,]+)?\d+(?:[-.,/:']+\d+)*  # a number with its sign, a fraction, a range, a ratio
    | (?<=\d)(?:"|'(?!\w)) | (?<=\d\s)"      # inches, feet
    | (?<=[^\W\d_])[+\#]+(?!\w)             # C++, A+
    | [%‰°#±≥≤<>=~≈$€£¥]
    | (?<=\d)\++ | \+(?=\s*\d)              # 8+, +5
    | (?<=[^\W_])-+(?=\W*\Z)                # B-, 0-; "T-Shirt" and "Damen- und Herren" only join
    """,
    re.VERBOSE,
)


def one_form(text: str) -> str:
    """Return the text with one form of each sign that has several, and without space before one that ends a word."""
    text = unicodedata.normalize("NFKC", text.translate(_FORMS)).translate(_FORMS)
    text = _SPACED_MINUS.sub("-", text.replace(">=", "≥").replace("<=", "≤").replace("''", '"'))
    return _SPACED_SIGNS.sub(lambda found: "".join(found[0].split()), text)


def written_signs(text: str) -> tuple[str, ...]:
    """Return the numbers, as written, and the meaningful signs of a text in `one_form`, in order."""
    if text.isascii() and text.replace(" ", "").isalpha():
        return ()
    tight = _DECIMAL_COMMA.sub(r"\1.\2", _BETWEEN_DIGITS.sub(r"\1", text))
    return tuple(_TOKEN.findall(tight))
