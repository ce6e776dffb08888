"""Detection of names that are the same but for one misspelling.

Different words may also be few letters apart: plain and plaid, polyether and polyester, striped and stripped, silicon
and silicone, polyamide and polyimide, interior and inferior. So only mistakes that hardly ever give another word count,
in words of at least eight letters, between their first three letters and their last:

    a letter too many or too few     aluminum, rechargable, stainles
    two neighbours exchanged         stainlses
    s and z                          sterilised

Never one letter for another, never an ending, never two mistakes, and only in one word of a name.
"""

from __future__ import annotations

SAME_BEGINNING = 3
"""Number of letters that must agree at the beginning."""
_MIN_LETTERS = 8


def may_be_misspelt(name: str) -> bool:
    """Return whether the name has a word that is long enough."""
    return any(len(word) >= _MIN_LETTERS for word in name.split(" "))


def is_misspelt(one: str, other: str) -> bool:
    """Return whether two different folded names are the same but for one mistake in one word."""
    words, others = one.split(" "), other.split(" ")
    if len(words) != len(others):
        return False
    different = [pair for pair in zip(words, others, strict=True) if pair[0] != pair[1]]
    return len(different) == 1 and _is_misspelt_word(*different[0])


def _is_misspelt_word(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    if len(short) < _MIN_LETTERS or not (short.isalpha() and long.isalpha()) or len(long) - len(short) > 1:
        return False
    place = next((index for index, pair in enumerate(zip(short, long, strict=False)) if pair[0] != pair[1]), len(short))
    if place < SAME_BEGINNING:
        return False
    if len(long) > len(short):
        # A letter more at the end is another ending, unless it doubles the last one.
        return short[place:] == long[place + 1 :] and (place < len(short) or long[-1] == short[-1])
    is_exchanged = short[place : place + 2] == long[place : place + 2][::-1] and short[place + 2 :] == long[place + 2 :]
    is_s_or_z = {short[place], long[place]} == {"s", "z"} and short[place + 1 :] == long[place + 1 :]
    return place + 1 < len(short) and (is_exchanged or is_s_or_z)
