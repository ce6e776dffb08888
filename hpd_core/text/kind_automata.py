"""Automata of kinds (text/value_kinds.py), over the bytes of a line that holds a value: ' <value>,\\n'.

The space and the comma are optional; tokenizers that put a space before every text write two. Enums are tries, since
they may have thousands of members, and patterns have automata of their own; all other kinds are regular expressions.

Numbers and booleans may be quoted, as text/values.py reads them: "12", "12 oz" if the unit is oz, "Yes". A model that
quotes them would otherwise have to answer null. Numbers are written as in texts: 20,000 and 1.250,5, .33, 1/2, 2½,
2.5e6. In lists these forms must be quoted, because a comma without quotes separates items.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from hpd_core.text.automata import Automaton, Nodes
from hpd_core.text.number_atoms import DENOMINATORS, VULGAR_FRACTIONS
from hpd_core.text.patterns import ByteDfa, full_match, pattern_dfa
from hpd_core.text.value_kinds import (
    Boolean,
    FreeText,
    Integer,
    JsonString,
    ListOf,
    Number,
    OneOf,
    Pattern,
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
# A backslash that begins no escape is read as itself (text/json_reading.py).
_TEXT = rf'(?:[^\x00-\x1f"\\]|\\(?:[^\x00-\x1fu]|u{_UNIT}))*'
"""Expression for the text between the quotes of a string."""
_QUOTE, _BACKSLASH, _FIRST_PRINTABLE = ord('"'), ord("\\"), 0x20
_MAX_SPACES = 2


def kind_automaton(kind: ValueKind) -> Automaton | None:
    """Return the automaton of a kind's values; None if anything may be written, or it would be too large.

    Raises:
        PatternError: a pattern that cannot be decoded.
    """
    if isinstance(kind, FreeText):
        return None
    is_list = isinstance(kind, ListOf)
    item = kind.item if isinstance(kind, ListOf) else kind
    nodes = Nodes()
    end = nodes.new()
    line_end = nodes.new({ord("\n"): end})
    value = _expression(item, is_list=is_list)
    if value is not None:
        if is_list:
            value = rf"\[(?:(?:{value})(?:, (?:{value}))*)?\]"
        null = "null|" if kind.nullable else ""
        start = _embed(nodes, full_match(f" {{0,{_MAX_SPACES}}}(?:{null}{value}),?"), line_end)
        return nodes.automaton(start, end)
    if isinstance(item, Pattern) and pattern_dfa(item.regex) is None:
        return None
    closing = nodes.new({ord("\n"): end, ord(","): line_end})
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
    """Return the regular expression of one value, or of an item of a list; None for an enum or a pattern."""
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


def _add(nodes: Nodes, start: int, behind: int, kind: ValueKind) -> None:
    """Add one value of an enum or a pattern, or an item of a list, from `start` to `behind`."""
    if isinstance(kind, Pattern) and (dfa := pattern_dfa(kind.regex)) is not None:
        nodes[start][_QUOTE] = _embed(nodes, dfa, nodes.new({_QUOTE: behind}), in_string=True)
    elif isinstance(kind, OneOf):
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
