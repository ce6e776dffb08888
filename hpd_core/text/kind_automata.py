"""Automata of kinds (text/value_kinds.py), over the bytes of a line that holds a value."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from hpd_core.text.automata import Automaton, Nodes
from hpd_core.text.patterns import ByteDfa, full_match, pattern_dfa
from hpd_core.text.value_automata import BOOLEAN_WORDS, add_json_number, add_number, line_automaton
from hpd_core.text.value_kinds import (
    Boolean,
    FreeText,
    Integer,
    JsonString,
    ListOf,
    OneOf,
    Pattern,
    ValueKind,
    spelled,
)

_GROUPED = "-?(?:0|[1-9][0-9]*|[1-9][0-9]{0,2}(?:,[0-9]{3})+)"
_INTEGER = f' {{0,2}}(?:%s{_GROUPED}|"{_GROUPED}"),?'
_ITEM = "-?(?:0|[1-9][0-9]{0,17})"
_HEX = "[0-9A-Fa-f]"
# A surrogate is written with the one that it makes a pair with.
_UNIT = rf"(?:[0-9ABCEFabcef]{_HEX}{{3}}|[dD](?:[0-7]{_HEX}{{2}}|[89ABab]{_HEX}{{2}}\\u[dD][C-Fc-f]{_HEX}{{2}}))"
# A backslash that begins no escape is read as itself (text/json_reading.py).
_TEXT = rf'(?:[^\x00-\x1f"\\]|\\(?:[^\x00-\x1fu]|u{_UNIT}))*'
"""Expression for the text between the quotes of a string."""
_QUOTE, _BACKSLASH, _FIRST_PRINTABLE = ord('"'), ord("\\"), 0x20


def kind_automaton(kind: ValueKind) -> Automaton | None:
    """Return the automaton of a kind's values; None if anything may be written, or it would be too large.

    Raises:
        PatternError: a pattern that cannot be decoded.
    """
    if isinstance(kind, FreeText):
        return None
    if isinstance(kind, Integer):
        # After a comma its next group may follow, or the line's end.
        nodes = Nodes()
        end = nodes.new()
        start = _embed(nodes, full_match(_INTEGER % ("null|" if kind.nullable else "")), nodes.new({ord("\n"): end}))
        return nodes.automaton(start, end)
    item = kind.item if isinstance(kind, ListOf) else kind
    if isinstance(item, Pattern) and pattern_dfa(item.regex) is None:
        return None
    return line_automaton(partial(_add, kind=item), is_list=isinstance(kind, ListOf), nullable=kind.nullable)


def _add(nodes: Nodes, start: int, behind: int, kind: ValueKind) -> None:
    """Add one value, or an item of a list, from `start` to `behind`."""
    is_item = ord("]") in nodes[behind]
    match kind:
        case JsonString():
            nodes[start][_QUOTE] = _embed(nodes, full_match(_TEXT), nodes.new({_QUOTE: behind}))
        case Pattern():
            if (dfa := pattern_dfa(kind.regex)) is not None:
                nodes[start][_QUOTE] = _embed(nodes, dfa, nodes.new({_QUOTE: behind}), in_string=True)
        case Boolean():
            for text in ("true", "false", *(spelled(word) for words in BOOLEAN_WORDS.values() for word in words)):
                nodes.spell(start, text, behind)
        case OneOf():
            texts = [text[1:] for text in kind.spellings if text[0] == '"']
            if texts:
                nodes[start][_QUOTE] = opened = nodes.new()
                nodes.spell_each(opened, texts, behind)
            _spell_bare(nodes, start, (text for text in kind.spellings if text[0] != '"'), behind)
        case Integer():  # of a list: a comma stands before the next one, so there are no groups
            nodes[start] |= nodes[_embed(nodes, full_match(_ITEM), behind)]
        case _:
            add = add_json_number if is_item else add_number
            add(nodes, start, behind)
            nodes[start][_QUOTE] = opened = nodes.new()
            closing = nodes.new({_QUOTE: behind})
            add_number(nodes, opened, closing)


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


def _embed(nodes: Nodes, dfa: ByteDfa, behind: int, *, in_string: bool = False) -> int:
    """Add the automaton's states as nodes. Its final states continue as `behind` does. Return the start node.

    `in_string`: the text is between quotes, where quotes and backslashes are escaped with a backslash.
    """
    numbers = {state: nodes.new() for state in {dfa.start, *dfa.ways, *dfa.finals}}
    for state, ways in dfa.ways.items():
        node = numbers[state]
        for byte, target in ways.items():
            if in_string and byte < _FIRST_PRINTABLE:
                continue
            if in_string and byte in (_QUOTE, _BACKSLASH):
                if _BACKSLASH not in nodes[node]:
                    nodes[node][_BACKSLASH] = nodes.new()
                nodes[nodes[node][_BACKSLASH]][byte] = numbers[target]
            else:
                nodes[node][byte] = numbers[target]
    for state in dfa.finals:
        nodes[numbers[state]] |= nodes[behind]
    return numbers[dfa.start]
