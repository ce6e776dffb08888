"""Automata over bytes: the values that a typed attribute may have.

answer     a line ' <literal>,\\n', where <literal> is null or fits the attribute; the space and comma are optional.
           Numbers and booleans may be quoted, as text/values.py reads them: "12", "12 oz" if the unit is oz, "Yes".
           A model that quotes them would otherwise have to answer null
number     as in the text: 20,000 and 1.250,5, .33, 1/2, 2½, 2.5e6. A digit after a comma continues it, a line break
           ends it. In lists these forms must be quoted, because a comma without quotes separates items
enum       every label, and every synonym that means one member
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from hpd_core.text.automata import Automaton, Nodes
from hpd_core.text.number_atoms import DENOMINATORS, VULGAR_FRACTIONS
from hpd_core.types import Attribute

_DIGITS = b"0123456789"
BOOLEAN_WORDS: Mapping[str, Sequence[str]] = {
    "true": ("true", "True", "yes", "Yes"),
    "false": ("false", "False", "no", "No"),
}
"""Quoted words that a model writes for true and false."""
_MAX_SPACES = 2  # tokenizers that put a space before every text write two here


def value_automaton(attribute: Attribute) -> Automaton | None:
    """Return the automaton of an attribute's answers; None for texts, which may be anything."""
    if attribute.is_text:
        return None
    return line_automaton(partial(_add_items, attribute=attribute), is_list=attribute.multiple, nullable=True)


def line_automaton(add: Callable[[Nodes, int, int], None], *, is_list: bool, nullable: bool) -> Automaton:
    """Return the automaton of lines that hold one value, or a list of values, or null (if `nullable`).

    Args:
        add: adds one value between two nodes; the second one already has the ways that follow it.
    """
    nodes = Nodes()
    end, closing, start = nodes.new(), nodes.new(), nodes.new()
    nodes[closing] |= {ord("\n"): end}
    comma = nodes.new()
    nodes[comma] |= {ord("\n"): end}
    nodes[closing] |= {ord(","): comma}
    if nullable:
        nodes.spell(start, "null", closing)
    if is_list:
        more, later = nodes.new(), nodes.new()
        nodes.spell(more, "]", closing)
        nodes.spell(more, ", ", later)
        add(nodes, later, more)
        nodes[start][ord("[")] = nodes.new(nodes[later] | {ord("]"): closing})
    else:
        add(nodes, start, closing)
    for _ in range(_MAX_SPACES):
        start = nodes.new(nodes[start] | {ord(" "): start})
    return nodes.automaton(start, end)


def _add_items(nodes: Nodes, start: int, behind: int, attribute: Attribute) -> None:
    """Add one literal of the attribute's type, from `start` to `behind`. Raise `ValueError` for free text."""
    if attribute.type == "boolean":
        for text in ("true", "false", *(json.dumps(word) for words in BOOLEAN_WORDS.values() for word in words)):
            nodes.spell(start, text, behind)
    elif attribute.type == "enum":
        nodes[start][ord('"')] = opened = nodes.new()
        # With its closing quote no spelling is the beginning of another one.
        nodes.spell_each(opened, (f'{_escaped(text)}"' for text in attribute.vocabulary.spellings), behind)
    elif attribute.type == "number":
        if attribute.multiple:
            add_json_number(nodes, start, behind)
        else:
            add_number(nodes, start, behind)
        opened, closing = nodes.new(), nodes.new({ord('"'): behind})
        nodes[start][ord('"')] = opened
        for unit in map(_escaped, attribute.unit.names if attribute.unit else ()):
            if unit and not unit[0].isdigit() and unit[0] not in ".,/ ":
                nodes.spell(closing, f'{unit}"', behind)
                nodes.spell(closing, f' {unit}"', behind)
        add_number(nodes, opened, closing)
    else:
        raise ValueError(f"values of type {attribute.type} have no form of their own")


def _escaped(text: str) -> str:
    """Return the text as escaped between quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def add_json_number(nodes: Nodes, start: int, behind: int) -> None:
    """Add a number in JSON's form; it ends where the ways of `behind` begin."""
    whole, zero, fraction = (nodes.new(nodes[behind]) for _ in range(3))
    minus, point = nodes.new(), nodes.new()
    for node in (start, minus):
        nodes.digits(node, whole, zero)
    nodes.digits(whole, whole)
    nodes.digits(point, fraction)
    nodes.digits(fraction, fraction)
    nodes[start][ord("-")] = minus
    nodes[whole][ord(".")] = nodes[zero][ord(".")] = point


def add_number(nodes: Nodes, start: int, behind: int) -> None:
    """Add a number in every form that text/number_forms.py reads in texts, except with spaces in it."""

    def ends() -> int:
        return nodes.new(nodes[behind])

    def point(sign: str) -> int:
        """Add a node after a separator; a comma without quotes may end the value, too."""
        return nodes.new(nodes[nodes[behind][ord(sign)]] if ord(sign) in nodes[behind] else {})

    def decimals(node: int, sign: str) -> None:
        nodes[node][ord(sign)] = behind_sign = point(sign)
        nodes.digits(behind_sign, fraction)

    minus, zero, long, fraction = nodes.new(), ends(), ends(), ends()
    heads = [ends() for _ in range(3)]
    for node in (start, minus):
        nodes.digits(node, heads[0], zero)
        nodes[node][ord(".")] = leading = nodes.new()
        nodes.digits(leading, fraction)
    nodes[start][ord("-")] = minus
    for node, longer in zip([*heads, long, fraction], [*heads[1:], long, long, fraction], strict=True):
        nodes.digits(node, longer)
    with_exponent = [*heads, long, fraction]
    for sign, other in (".,", ",."):
        for node in (zero, long):
            decimals(node, sign)
        # One to three digits, and after the separator decimals or groups of three.
        tail = [ends() for _ in range(3)]
        group = [point(sign), nodes.new(), nodes.new(), ends()]
        for node, longer in zip([*tail, *group[:3]], [*tail[1:], fraction, *group[1:]], strict=True):
            nodes.digits(node, longer)
        for node in (tail[2], group[3]):
            nodes[node][ord(sign)] = group[0]
            decimals(node, other)
        with_exponent += tail
        for head in heads:
            nodes[head][ord(sign)] = behind_sign = point(sign)
            nodes.digits(behind_sign, tail[0])
        if sign == ",":
            tail = [ends(), ends(), tail[2]]
            with_exponent += tail
            _add_lakhs(nodes, heads[:2], tail, ends(), point, decimals)
    for node in heads:
        _add_denominators(nodes, node, behind)
    _add_vulgar_fractions(nodes, [start, minus, *heads], ends())
    _add_exponents(nodes, with_exponent, behind)


def _add_lakhs(
    nodes: Nodes,
    heads: Sequence[int],
    tail: Sequence[int],
    last: int,
    point: Callable[[str], int],
    decimals: Callable[[int, str], None],
) -> None:
    """Add groups of two before the last one of three, "12,34,567": digits after the first comma may be decimals."""
    for head in heads:
        nodes[head][ord(",")] = behind_comma = point(",")
        nodes.digits(behind_comma, tail[0])
    one, two = nodes.new(), nodes.new()
    for node, longer in ((tail[0], tail[1]), (tail[1], tail[2]), (one, two), (two, last)):
        nodes.digits(node, longer)
    nodes[tail[1]][ord(",")] = behind_comma = point(",")
    nodes[two][ord(",")] = inside = nodes.new()
    for node in (behind_comma, inside):
        nodes.digits(node, one)
    decimals(last, ".")


def _add_denominators(nodes: Nodes, numerator: int, behind: int) -> None:
    """Add fractions such as "1/2", as text/number_atoms.py reads them."""
    nodes[numerator][ord("/")] = slash = nodes.new()
    for text in map(str, DENOMINATORS):
        node = slash
        for size, digit in enumerate(text.encode(), start=1):
            if digit not in nodes[node]:
                nodes[node][digit] = nodes.new(nodes[behind] if int(text[:size]) in DENOMINATORS else None)
            node = nodes[node][digit]


def _add_vulgar_fractions(nodes: Nodes, wholes: Iterable[int], behind: int) -> None:
    """Add "½" and "1½"."""
    lead = nodes.new()
    for sign in VULGAR_FRACTIONS:
        nodes.spell(lead, sign, behind)
    for whole in wholes:
        for byte, node in nodes[lead].items():
            # A unit may begin with the same byte: "°" does.
            other = nodes[whole].get(byte)
            nodes[whole][byte] = node if other is None else nodes.new({**nodes[other], **nodes[node]})


def _add_exponents(nodes: Nodes, mantissas: Iterable[int], behind: int) -> None:
    """Add exponents, "2.5e6", of at most two digits, so that a table can hold the number."""
    one, two, sign = nodes.new(nodes[behind]), nodes.new(nodes[behind]), nodes.new()
    for node, longer in ((one, two), (sign, one)):
        nodes.digits(node, longer)
    for letter in b"eE":
        # A unit may begin with the letter, too.
        node = nodes.new(nodes[nodes[behind][letter]] if letter in nodes[behind] else {})
        for byte, longer in ((ord("-"), sign), (ord("+"), sign), *((digit, one) for digit in _DIGITS)):
            nodes[node].setdefault(byte, longer)
        for mantissa in mantissas:
            nodes[mantissa][letter] = node
