"""Automata of kinds (text/value_kinds.py), over the bytes of a line that holds a value: ' <value>,\\n'.

The space and the comma are optional; tokenizers that put a space before every text write two. Enums are tries, since
they may have thousands of members; all other kinds are regular expressions, which outlines-core compiles.

Numbers and booleans may be quoted, as text/values.py reads them: "12", "12 oz" if the unit is oz, "Yes". A model that
quotes them would otherwise have to answer null. Numbers are written as in texts: 20,000 and 1.250,5, .33, 1/2, 2½,
2.5e6. In lists these forms must be quoted, because a comma without quotes separates items.

Automata over bytes: which bytes may be written next, and the node after each.

The automaton of an enum is built in `Nodes`: by hand if there are few nodes, as a trie of whole texts if many.
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
_MAX_SPACES = 2
_END_OF_TEXT = 256
_BYTES = Vocabulary(_END_OF_TEXT, {bytes([byte]): [byte] for byte in range(256)})


def kind_automaton(kind: ValueKind) -> Automaton | None:
    """Return the automaton of a kind's values; None if anything may be written, or none is known (text/grammars.py)."""
    is_list = isinstance(kind, ListOf)
    item = kind.item if isinstance(kind, ListOf) else kind
    value = _expression(item, is_list=is_list)
    if value is not None:
        if is_list:
            value = rf"\[(?:(?:{value})(?:, (?:{value}))*)?\]"
        null = "null|" if kind.nullable else ""
        return _of_expression(f" {{0,{_MAX_SPACES}}}(?:{null}{value}),?\n")
    if not isinstance(item, OneOf):
        return None
    nodes = Nodes()
    end = nodes.new()
    closing = nodes.new({ord("\n"): end, ord(","): nodes.new({ord("\n"): end})})
    start = nodes.new()
    if kind.nullable:
        nodes.spell(start, "null", closing)
    if is_list:
        more, later = nodes.new(), nodes.new()
        nodes.spell(more, "]", closing)
        nodes.spell(more, ", ", later)
        _add(nodes, later, more, item)
        nodes[start][ord("[")] = nodes.new(nodes[later] | {ord("]"): closing})
    else:
        _add(nodes, start, closing, item)
    for _ in range(_MAX_SPACES):
        start = nodes.new(nodes[start] | {ord(" "): start})
    return nodes.automaton(start, end)


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
    return None


def _of_expression(expression: str) -> Automaton:
    """Return the automaton of an expression that matches whole lines, of which none is the beginning of another."""
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
    found = np.array([(numbers[state], byte, numbers[target]) for state, byte, target in sorted(ways)], dtype=np.int64)
    return Automaton(len(set(numbers.values())), numbers[start], len(numbers) - len(finals), *found.T)


def _add(nodes: Nodes, start: int, behind: int, kind: OneOf) -> None:
    """Add one value of an enum, or an item of a list, from `start` to `behind`."""
    spellings = [*kind.spellings, *(spelled(text) for text, _ in kind.synonyms)]
    if texts := [text[1:] for text in spellings if text[0] == '"']:
        nodes[start][_QUOTE] = opened = nodes.new()
        # With its closing quote no spelling is the beginning of another one.
        nodes.spell_each(opened, texts, behind)
    _spell_bare(nodes, start, (text for text in spellings if text[0] != '"'), behind)


def _spell_bare(nodes: Nodes, start: int, texts: Iterable[str], behind: int) -> None:
    """Add literals without quotes, of which one may be the beginning of another."""
    ends = set()
    for text in texts:
        node = start
        for byte in text.encode():
            if byte not in nodes[node]:
                nodes[node][byte] = nodes.new()
            node = nodes[node][byte]
        ends.add(node)
    for node in ends:
        nodes[node] |= nodes[behind]


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


class Nodes(list[dict[int, int]]):
    """Builder of an automaton: for each node, the node after each byte."""

    def __init__(self) -> None:
        super().__init__()
        self._tries: list[tuple[int, list[bytes], int]] = []

    def new(self, ways: Mapping[int, int] | None = None) -> int:
        """Add a node. Return its number."""
        self.append(dict(ways or {}))
        return len(self) - 1

    def spell(self, start: int, text: str, end: int) -> None:
        """Add a path that writes `text`, reusing existing ways. No text may be the beginning of another one."""
        *body, last = text.encode()
        node = start
        for byte in body:
            if byte not in self[node]:
                self[node][byte] = self.new()
            node = self[node][byte]
        self[node][last] = end

    def spell_each(self, start: int, texts: Iterable[str], end: int) -> None:
        """Add paths that write `texts`, from a node without other ways. No text may be the beginning of another."""
        self._tries.append((start, sorted({text.encode() for text in texts}), end))

    def automaton(self, start: int, end: int) -> Automaton:
        """Return the automaton as arrays: a trie of thousands of texts has about as many nodes as they have bytes."""
        ways = _Ways(len(self))
        for node, behind in enumerate(self):
            for byte, target in behind.items():
                ways.add(node, byte, target)
        for root, texts, behind_each in self._tries:
            ways.add_trie(root, texts, behind_each)
        return ways.automaton(start, end)


class _Ways:
    def __init__(self, num_nodes: int) -> None:
        self._num_nodes = num_nodes
        self._sources, self._bytes, self._targets = array("q"), array("B"), array("q")

    def add(self, source: int, byte: int, target: int) -> None:
        self._sources.append(source)
        self._bytes.append(byte)
        self._targets.append(target)

    def add_trie(self, root: int, texts: list[bytes], end: int) -> None:
        """Add a trie of `texts`, which are sorted, so that each shares its longest prefix with the one before it."""
        path, before = [root], b""  # of the text before: the node in front of each of its bytes
        for text in texts:
            depth = _common(before, text)
            new = range(self._num_nodes, self._num_nodes + len(text) - depth - 1)
            self._sources.append(path[depth])
            self._sources.extend(new)
            self._bytes.frombytes(text[depth:])
            self._targets.extend(new)
            self._targets.append(end)
            path[depth + 1 :] = new
            self._num_nodes, before = new.stop, text

    def automaton(self, start: int, end: int) -> Automaton:
        sources = np.array(self._sources, dtype=np.int64)
        order = np.argsort(sources, kind="stable")
        bytes_, targets = np.array(self._bytes, dtype=np.int64), np.array(self._targets, dtype=np.int64)
        return Automaton(self._num_nodes, start, end, sources[order], bytes_[order], targets[order])


def _common(one: bytes, other: bytes) -> int:
    """Return the length of the common prefix, in bytes."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (byte, same) in pairs if byte != same), min(len(one), len(other)))
