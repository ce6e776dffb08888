"""Automata of kinds (text/value_kinds.py), over the bytes of a line that holds a value: ' <value>,\\n'.

The space and the comma are optional; tokenizers that put a space before every text write two. Enums are tries, since
they may have thousands of members; all other kinds are regular expressions, which outlines-core compiles.

Numbers and booleans may be quoted, as text/values.py reads them: "12", "12 oz" if the unit is oz, "Yes". A model that
quotes them would otherwise have to answer null. Numbers are written as in texts: 20,000 and 1.250,5, .33, 1/2, 2½,
2.5e6. In lists these forms must be quoted, because a comma without quotes separates items.

Automata over bytes: which bytes may be written next, and the node after each.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from outlines_core import Index, Vocabulary

from hpd_core.layout import IntArray
from hpd_core.text.number_atoms import DENOMINATORS, VULGAR_FRACTIONS
from hpd_core.text.value_kinds import (
    Boolean,
    Integer,
    JsonString,
    ListOf,
    Number,
    OneOf,
    ValueKind,
    spelled,
)

BOOLEAN_WORDS: Mapping[str, Sequence[str]] = {
    "true": ("true", "True", "yes", "Yes"),
    "false": ("false", "False", "no", "No"),
}
"""Quoted words that a model writes for true and false."""

_GROUPED = "-?(?:0|[1-9][0-9]*|[1-9][0-9]{0,2}(?:,[0-9]{3})+)"
_WHOLE = "-?(?:0|[1-9][0-9]{0,17})"
_JSON_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?"
_EXPONENT = "(?:[eE][+-]?[0-9]{1,2})?"  # so that a table can hold the number
# All that text/number_forms.py reads in texts, except with spaces in it.
_NUMBER = (
    rf"-?(?:0(?:[.,][0-9]+{_EXPONENT})?|\.[0-9]+{_EXPONENT}|[1-9][0-9]*(?:[.,][0-9]+)?{_EXPONENT}"
    rf"|[1-9][0-9]{{0,2}}(?:(?:\.[0-9]{{3}})+(?:,[0-9]+{_EXPONENT})?|(?:,[0-9]{{3}})+(?:\.[0-9]+{_EXPONENT})?)"
    rf"|[1-9][0-9]?(?:,[0-9]{{2}})+,[0-9]{{3}}(?:\.[0-9]+{_EXPONENT})?"
    rf"|[1-9][0-9]{{0,2}}/(?:{'|'.join(map(str, DENOMINATORS))})|(?:[1-9][0-9]{{0,2}})?[{VULGAR_FRACTIONS}])"
)
_HEX = "[0-9A-Fa-f]"
# A surrogate is written with the one that it makes a pair with.
_UNIT = rf"(?:[0-9ABCEFabcef]{_HEX}{{3}}|[dD](?:[0-7]{_HEX}{{2}}|[89ABab]{_HEX}{{2}}\\u[dD][C-Fc-f]{_HEX}{{2}}))"
# A backslash that begins no escape is read as itself (text/values.py).
_TEXT = rf'(?:[^\x00-\x1f"\\]|\\(?:[^\x00-\x1fu]|u{_UNIT}))*'
"""Expression for the text between the quotes of a string."""
_QUOTE = ord('"')
_TEXTS = r"\x00"
"""Byte that stands for the texts of an enum: thousands of them are a trie, which is added afterwards."""
_MAX_SPACES = 2
_END_OF_TEXT = 256
_BYTES = Vocabulary(_END_OF_TEXT, {bytes([byte]): [byte] for byte in range(256)})


def kind_automaton(kind: ValueKind) -> Automaton | None:
    """Return the automaton of a kind's values; None if anything may be written, or none is known (text/grammars.py)."""
    item = kind.item if isinstance(kind, ListOf) else kind
    value = _expression(item, is_list=isinstance(kind, ListOf))
    if value is None:
        return None
    if isinstance(kind, ListOf):
        value = rf"\[(?:(?:{value})(?:, (?:{value}))*)?\]"
    null = "null|" if kind.nullable else ""
    texts = [text for text in _spellings(item) if text[0] == '"'] if isinstance(item, OneOf) else []
    return _of_expression(f" {{0,{_MAX_SPACES}}}(?:{null}{value}),?\n", texts)


def _spellings(kind: OneOf) -> list[str]:
    return [*kind.spellings, *(spelled(text) for text, _ in kind.synonyms)]


def _expression(kind: ValueKind, *, is_list: bool) -> str | None:
    """Return the regular expression of one value, or of an item of a list; None if its kind has none."""
    match kind:
        case JsonString():
            return f'"{_TEXT}"'
        case Boolean():
            words = "|".join(word for words in BOOLEAN_WORDS.values() for word in words)
            return f'true|false|"(?:{words})"'
        case Integer():
            return _WHOLE if is_list else f'{_GROUPED}|"{_GROUPED}"'
        case Number():
            units = [spelled(unit)[1:-1] for unit in kind.units]
            written = "|".join(
                re.escape(unit) for unit in units if unit and not unit[0].isdigit() and unit[0] not in ".,/ "
            )
            behind = f"(?: ?(?:{written}))?" if written else ""
            return f'{_JSON_NUMBER if is_list else _NUMBER}|"{_NUMBER}{behind}"'
        case OneOf() if kind.values or kind.synonyms:
            spellings = _spellings(kind)
            bare = [re.escape(text) for text in spellings if text[0] != '"']
            return "|".join([*bare, *([_TEXTS] if len(bare) < len(spellings) else [])])
    return None


def _of_expression(expression: str, texts: Iterable[str]) -> Automaton:
    """Return the automaton of an expression that matches whole lines, of which none is the beginning of another.

    Args:
        texts: what `_TEXTS` stands for; none of them is the beginning of another, as all end with a quote.
    """
    index = Index(expression, _BYTES)
    finals, start = index.get_final_states(), index.get_initial_state()
    ways = [
        (state, byte, target)
        for state, targets in index.get_transitions().items()
        for byte, target in targets.items()
        if byte != _END_OF_TEXT
    ]
    numbers = {state: number for number, state in enumerate(sorted({start, *(way[0] for way in ways)}))}
    numbers |= dict.fromkeys(finals, len(numbers))
    num_nodes = len(set(numbers.values()))
    ordered = sorted({text.encode()[1:] for text in texts})
    found = [np.array([[numbers[s], byte, numbers[t]] for s, byte, t in sorted(ways) if byte], dtype=np.int64)]
    opened: dict[int, int] = {}  # end -> the node after the opening quote, for all states that texts may follow
    for state, _, target in (way for way in sorted(ways) if not way[1]):
        end = numbers[target]
        if end not in opened:
            opened[end] = num_nodes
            found.append(_trie(num_nodes, ordered, end, num_nodes + 1))
            num_nodes += 1 + len(found[-1]) - len(ordered)
        found.append(np.array([[numbers[state], _QUOTE, opened[end]]], dtype=np.int64))
    every = np.concatenate(found)
    every = every[np.argsort(every[:, 0], kind="stable")]
    return Automaton(num_nodes, numbers[start], numbers[next(iter(finals))], *every.T)


def _trie(root: int, texts: Sequence[bytes], end: int, num_nodes: int) -> IntArray:
    """Return the ways of a trie of sorted texts, of which each shares its longest beginning with the one before it."""
    sources, bytes_, targets = array("q"), array("B"), array("q")
    path, before = [root], b""  # of the text before: the node in front of each of its bytes
    for text in texts:
        pairs = enumerate(zip(before, text, strict=False))
        depth = next((place for place, (byte, same) in pairs if byte != same), min(len(before), len(text)))
        new = range(num_nodes, num_nodes + len(text) - depth - 1)
        sources.append(path[depth])
        sources.extend(new)
        bytes_.frombytes(text[depth:])
        targets.extend(new)
        targets.append(end)
        path[depth + 1 :] = new
        num_nodes, before = new.stop, text
    return np.stack([np.array(each, dtype=np.int64) for each in (sources, bytes_, targets)], axis=1)


_MANY_BYTES = 64


@dataclass(frozen=True, slots=True)
class Automaton:
    """Automaton over bytes: ways between nodes, one byte each. No two ways from a node have the same byte.

    Attributes:
        num_nodes: number of nodes, which are numbered from 0.
        start, end: nodes before the first byte and after the last one; no way leaves the end.
        sources, bytes_, targets: int64 [ways], ordered by source.
    """

    num_nodes: int
    start: int
    end: int
    sources: IntArray
    bytes_: IntArray
    targets: IntArray

    @property
    def num_wide_nodes(self) -> int:
        """Number of nodes at which almost any token may be written, because they allow more than 64 bytes."""
        return int((np.bincount(self.sources, minlength=self.num_nodes) > _MANY_BYTES).sum())
