"""Detection of UTF-8 where another encoding is named: in whole files, and in rows of concatenated files.

Read in a one-byte encoding, such a row looks odd: "GrÃ¶ÃŸe". Valid UTF-8 bytes alone are no proof: those of "LÃ®" are
valid. So a row counts as UTF-8 only if it looks less odd when read as UTF-8.
"""

from __future__ import annotations

import codecs
import functools
import re
from collections.abc import Iterable, Sequence

from pipelines.catalog.text_files import is_marked

EUROPEAN = re.compile("[\0-\u017f\u2000-\u22ff]*")
"""Characters accepted in text that was read in a wrong encoding; letters that hardly any text has are excluded."""

# A capital with a sign behind it, as in NESCAFÉ®, is two bytes in cp1252 that are one letter in UTF-8: but one that
# hardly any text has (of phonetics, of Syriac). Such letters are no sign of UTF-8.
_LETTERS = re.compile("[\x80-\u017f\u0370-\u052f\u05d0-\u05ea\u0620-\u064a\u0900-\U0010ffff]")
# Where a letter takes two bytes, as in GBK, those of many are a letter of two bytes in UTF-8, too.
_LONG_LETTERS = re.compile("[\u0900-\U0010ffff]")

# No word goes on with one of them, nor ends with it. What may stand behind a word (» ” … ® ° –) is not among them.
_NO_PART_OF_WORDS = frozenset("‰†‡ˆ˜€‹„‚‘“¡¢£¤¥¦§¨¬\xad¯±´µ¶¸¼½¾¿•")
_ENDS_OF_WORDS = frozenset("”»›™®©°·")
_MAY_JOIN_WORDS = frozenset("'’\xa0")
_OF_OTHER_TONGUES = frozenset("ŠšŽžŒœŸƒŤťŹź")
"""Letters that no language writing Ã or Ă has."""
_ALONE = re.compile(r"(?<!\w)Ã\xa0 |(?<!\w)Ã[^\w\s]|Â(?:\xa0|[^\w\s])")
"""Ã or Â where no text has them: Ã is not a word, and no word ends with Â."""
_CONTROL = re.compile("[\x80-\x9f]")


def mended_record(text: str, cells: Sequence[str], encoding: str) -> tuple[str, list[str]] | None:
    """Return a record's text and cells read as UTF-8, if they are UTF-8 that was read in `encoding`; else None."""
    found = None if text.isascii() else _as_utf8(text, encoding)
    if found is None or EUROPEAN.fullmatch(found) is None or _oddness(text) <= _oddness(found):
        return None
    inner = [_as_utf8(cell, encoding) for cell in cells]
    whole = [cell for cell in inner if cell is not None]
    return (found, whole) if len(whole) == len(inner) else None


def _as_utf8(text: str, encoding: str) -> str | None:
    try:
        data = text.encode(encoding, "surrogateescape")
        return data.decode() if len(data) == len(text) else None
    except UnicodeError:
        return None


def _oddness(text: str) -> int:
    """Return the number of places that look as no text does."""
    places = zip(" " + text, text, text[1:] + " ", strict=False)
    return len(_ALONE.findall(text)) + sum(_is_odd(*place) for place in places if not "".join(place).isascii())


def _is_odd(before: str, letter: str, after: str) -> bool:
    """Return whether a letter is odd between its neighbours."""
    if letter in _NO_PART_OF_WORDS:
        return before.isalpha()
    if letter in "ÃĂ" and after in _OF_OTHER_TONGUES:
        return True
    if letter.isalpha():
        is_in_capitals = before.isupper() and letter.isupper() and after.islower()
        return is_in_capitals or (letter.islower() and after.isupper())
    if is_marked(letter) or _CONTROL.match(letter):
        return True
    if letter.isspace() or letter.isascii() or letter in _MAY_JOIN_WORDS or not before.isalpha():
        return False
    return after.isalpha() if letter in _ENDS_OF_WORDS else after.islower()


def is_utf8(chunks: Iterable[bytes], named: str) -> bool:
    """Return whether a file is UTF-8 throughout, and not in the `named` encoding. Stop reading once that is clear.

    Pure ASCII reads alike in most encodings and counts as the named encoding.
    """
    holds_ascii = has_ascii(named)
    letters = _LETTERS if has_one_byte_letters(named) else _LONG_LETTERS
    decoder = codecs.getincrementaldecoder("utf-8")()
    is_told = not holds_ascii
    try:
        for chunk in chunks:
            text = decoder.decode(chunk)
            if not holds_ascii and "\0" in text:
                return False  # delimiters and ends of lines have them in UTF-16 and UTF-32, and no text has in UTF-8
            is_told = is_told or (not text.isascii() and letters.search(text) is not None)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return is_told


@functools.cache
def is_name_of_utf8(encoding: str) -> bool:
    """Return whether the encoding is UTF-8, with or without a byte order mark."""
    return codecs.lookup(encoding).name.startswith("utf-8")


@functools.cache
def has_ascii(encoding: str) -> bool:
    """Return whether ASCII characters are encoded as in ASCII: not in UTF-16, UTF-32 and EBCDIC."""
    return b"a,b\n12".decode(encoding, "replace") == "a,b\n12"


@functools.cache
def has_one_byte_letters(encoding: str) -> bool:
    """Return whether each byte is a letter of its own."""
    return len("é".encode().decode(encoding, "replace")) == 2
