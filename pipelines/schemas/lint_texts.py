"""Lint of texts: invisible or unusual characters, and texts that are almost the same."""

from __future__ import annotations

import html
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator

from hpd_core.text.near_names import difference, is_blank, unseen
from hpd_core.types import is_encodable

_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_MAX_ALIKE = 5  # remarks on the values of one attribute that say the same of each


def lint_text(text: str) -> Iterator[str]:
    """Yield messages on invisible or unusual characters in a name, value, description or unit."""
    if not is_encodable(text):
        yield f"{text!r} holds half a surrogate pair, which is no text"
        return
    if is_blank(text):
        yield f"{text!r} shows nothing"
        return
    if text != text.strip():
        yield f"{text!r} begins or ends with white space"
    if _CONTROL_CHARACTER.search(text):
        yield f"{text!r} holds a line break or a control character"
    elif found := unseen(text):
        yield f"{text!r} holds characters that nobody sees: {', '.join(found)}"
    if unicodedata.normalize("NFC", text) != text:
        yield f"{text!r} is not in Unicode's form NFC, which most catalogs have"
    if html.unescape(text) != text:
        yield f"{text!r} holds an HTML entity: {html.unescape(text)!r}?"


def alike(texts: Iterable[str], fold: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """Yield (text, earlier text) for every text that folds to the same as a different earlier one."""
    seen: dict[str, str] = {}
    for text in texts:
        earlier = seen.setdefault(fold(text), text)
        if earlier != text:
            yield text, earlier


def beside(earlier: str, text: str) -> str:
    """Return the earlier of two similar texts, with the difference between them."""
    return f"{earlier!r} (they differ in {difference(earlier, text)})"


def first_ones(messages: Iterable[str]) -> Iterator[str]:
    """Yield the first messages of one kind, and the number of further ones."""
    messages = iter(messages)
    yield from itertools.islice(messages, _MAX_ALIKE)
    if more := sum(1 for _ in messages):
        yield f"and {more:,} more of its values like this"
