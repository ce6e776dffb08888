"""Typed values: the tokens with which a number, a boolean or an enum may go on.

    answer     a line ' <literal>,\\n', where <literal> is null or fits the attribute; the space and comma may miss.
               What text/values.py reads as a number or boolean is one: "12", "12 oz" where the unit is oz, "Yes". A
               model that quotes them means them, and would say null if it were not allowed to
    number     as the text has it: 20,000 and 1.250,5, .33, 1/2, 2½, 2.5e6. A digit behind a comma goes on, a line break
               is the end. In lists in quotes alone: there a comma without quotes parts items
    automaton  over bytes: node -> byte -> node, from the attribute's type alone
    compiled   over tokens: state -> the tokens that spell a way through the automaton, and the state behind each

All compiled automata stand in one table whose states are numbered through, so that a step looks up the choices of all
its values at once. Ours, not a library's: compiling must cost microseconds a state (thousands of categories have
enums), and a step must not run Python per value.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from transformers.convert_slow_tokenizer import bytes_to_unicode

from hpd_core.layout import FREE, IntArray
from hpd_core.text.number_forms import DENOMINATORS, VULGAR_FRACTIONS
from hpd_core.text.template import render_answer_line
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.types import Attribute

logger = logging.getLogger(__name__)

Automaton = Sequence[Mapping[int, int]]
"""Per node, the node behind each byte; node 0 is the start, and the end is the node without a way out."""

_DIGITS = b"0123456789"
_BOOLEAN_WORDS = ("true", "false", "True", "False", "yes", "no", "Yes", "No")
_MAX_SPACES = 2  # tokenizers that put a space before every text write two here


def value_automaton(attribute: Attribute) -> Automaton | None:
    """The automaton of an attribute's answers; None for texts, which may be anything."""
    if attribute.is_text:
        return None
    nodes = _Nodes()
    end, closing, start = nodes.new(), nodes.new(), nodes.new()
    nodes[closing] |= {ord("\n"): end}
    comma = nodes.new()
    nodes[comma] |= {ord("\n"): end}
    nodes[closing] |= {ord(","): comma}
    nodes.spell(start, "null", closing)
    if attribute.multiple:
        more, first, later = nodes.new(), nodes.new(), nodes.new()
        nodes.spell(more, "]", closing)
        nodes.spell(more, ", ", later)
        nodes.spell(start, "[", first)
        nodes.spell(first, "]", closing)
        _add_items(nodes, attribute, first, more)
        _add_items(nodes, attribute, later, more)
    else:
        _add_items(nodes, attribute, start, closing)
    for _ in range(_MAX_SPACES):
        start = nodes.new(nodes[start] | {ord(" "): start})
    return nodes.ordered(start)


def _add_items(nodes: _Nodes, attribute: Attribute, start: int, behind: int) -> None:
    """One literal of the attribute's type, from `start` to `behind`."""
    if attribute.type == "boolean":
        for text in ("true", "false", *(json.dumps(word) for word in _BOOLEAN_WORDS)):
            nodes.spell(start, text, behind)
    elif attribute.type == "enum":
        for spelling in attribute.vocabulary.spellings:
            nodes.spell(start, json.dumps(spelling, ensure_ascii=False), behind)
    else:
        if attribute.multiple:
            _add_json_number(nodes, start, behind)
        else:
            _add_number(nodes, start, behind)
        opened, closing = nodes.new(), nodes.new({ord('"'): behind})
        nodes[start][ord('"')] = opened
        unit = json.dumps(attribute.unit.want if attribute.unit else "", ensure_ascii=False)[1:-1]
        if unit and not unit[0].isdigit() and unit[0] not in ".,/ ":
            quote = nodes.new({ord('"'): behind})
            nodes.spell(closing, unit, quote)
            nodes.spell(closing, f" {unit}", quote)
        _add_number(nodes, opened, closing)


def _add_json_number(nodes: _Nodes, start: int, behind: int) -> None:
    """A number as JSON has it; it ends where what stands behind it begins."""
    whole, zero, fraction = (nodes.new(nodes[behind]) for _ in range(3))
    minus, point = nodes.new(), nodes.new()
    for node in (start, minus):
        nodes.digits(node, whole, zero)
    nodes.digits(whole, whole)
    nodes.digits(point, fraction)
    nodes.digits(fraction, fraction)
    nodes[start][ord("-")] = minus
    nodes[whole][ord(".")] = nodes[zero][ord(".")] = point


def _add_number(nodes: _Nodes, start: int, behind: int) -> None:
    """A number in every form that a text may have and text/number_forms.py reads, but with spaces in it."""

    def ends() -> int:
        return nodes.new(nodes[behind])

    def point(sign: str) -> int:
        """Behind a separator; a comma without quotes may end the value, too."""
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
        # One to three digits, and behind the separator decimals or groups of three.
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
    nodes: _Nodes,
    heads: Sequence[int],
    tail: Sequence[int],
    last: int,
    point: Callable[[str], int],
    decimals: Callable[[int, str], None],
) -> None:
    """Groups of two before the last one of three, "12,34,567": what stands behind the first comma may be decimals."""
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


def _add_denominators(nodes: _Nodes, numerator: int, behind: int) -> None:
    """ "1/2", as text/number_forms.py reads it."""
    nodes[numerator][ord("/")] = slash = nodes.new()
    for text in map(str, DENOMINATORS):
        node = slash
        for size, digit in enumerate(text.encode(), start=1):
            if digit not in nodes[node]:
                nodes[node][digit] = nodes.new(nodes[behind] if int(text[:size]) in DENOMINATORS else None)
            node = nodes[node][digit]


def _add_vulgar_fractions(nodes: _Nodes, wholes: Iterable[int], behind: int) -> None:
    """ "½" and "1½"."""
    lead = nodes.new()
    for sign in VULGAR_FRACTIONS:
        nodes.spell(lead, sign, behind)
    for whole in wholes:
        for byte, node in nodes[lead].items():
            # A unit may begin with the same byte: "°" does.
            other = nodes[whole].get(byte)
            nodes[whole][byte] = node if other is None else nodes.new({**nodes[other], **nodes[node]})


def _add_exponents(nodes: _Nodes, mantissas: Iterable[int], behind: int) -> None:
    """ "2.5e6"; two digits, so that it stays a number that a table can hold."""
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


class _Nodes(list[dict[int, int]]):
    """An automaton in the making."""

    def new(self, ways: Mapping[int, int] | None = None) -> int:
        """A node more; its number."""
        self.append(dict(ways or {}))
        return len(self) - 1

    def digits(self, start: int, end: int, zero: int | None = None) -> None:
        """A way by each digit; `zero`: where the 0 leads, if elsewhere."""
        for digit in _DIGITS:
            self[start][digit] = zero if zero is not None and digit == ord("0") else end

    def spell(self, start: int, text: str, end: int) -> None:
        """A way that writes `text`, along the ways that are there. No text may be the beginning of another one."""
        *body, last = text.encode()
        node = start
        for byte in body:
            if byte not in self[node]:
                self[node][byte] = self.new()
            node = self[node][byte]
        self[node][last] = end

    def ordered(self, start: int) -> Automaton:
        """The same with `start` as node 0."""
        swap = {0: start, start: 0}
        nodes = [{byte: swap.get(node, node) for byte, node in ways.items()} for ways in self]
        nodes[0], nodes[start] = nodes[start], nodes[0]
        return nodes


class TokenBytes:
    """What every token of a vocabulary writes.

    Attributes:
        ids: the tokens that write these bytes (a letter may have a byte token, too); control tokens write nothing.
        beginnings: of the bytes that some token writes, all that are shorter.
    """

    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        """`vocab_size`: columns of the logits; a tokenizer may know more tokens than the model."""
        segments = SegmentTokenizer(tokenizer)
        special = frozenset(tokenizer.all_special_ids)
        backend = getattr(tokenizer, "backend_tokenizer", None)
        decoder = json.dumps(json.loads(backend.to_str())["decoder"]) if backend is not None else ""
        alphabet = {text: byte for byte, text in bytes_to_unicode().items()} if '"ByteLevel"' in decoder else None
        self.ids: dict[bytes, list[int]] = {}
        for index, token in enumerate(tokenizer.convert_ids_to_tokens(list(range(min(vocab_size, len(tokenizer)))))):
            is_text = token is not None and index not in special and not segments.has_control([index])
            text = _token_bytes(token, alphabet) if is_text else None
            if text:
                self.ids.setdefault(text, []).append(index)
        self.beginnings = frozenset(text[:size] for text in self.ids for size in range(1, len(text)))


def _token_bytes(token: str, alphabet: Mapping[str, int] | None) -> bytes | None:
    if alphabet is None:
        if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            return bytes([int(token[3:5], 16)])
        return token.replace("▁", " ").encode()
    # Added tokens may hold characters that are no byte's: they are not written here.
    return bytes(alphabet[text] for text in token) if all(text in alphabet for text in token) else None


class StateTable:
    """Compiled automata, side by side; their states are numbered through.

    State s may go on with the tokens `ids[offsets[s] : offsets[s + 1]]`, each to the state in `behind` at the same
    place. One thread may add while another one reads the states that it knows.
    """

    def __init__(self) -> None:
        self._num_states, self._num_ways = 0, 0
        self._offsets = np.zeros(1024, dtype=np.int64)
        self._ids = np.zeros(8192, dtype=np.int64)
        self._behind = np.zeros(8192, dtype=np.int64)

    def add(self, states: Sequence[Mapping[int, int]]) -> int:
        """Adds an automaton: per state, the state behind each token, from 0. Returns the number of its state 0.

        Raises:
            ValueError: a state without tokens.
        """
        if not all(states):
            raise ValueError("a state of a constraint must allow some token")
        first, place = self._num_states, self._num_ways
        num_ways = place + sum(map(len, states))
        self._offsets = _grown(self._offsets, first + len(states) + 1)
        self._ids = _grown(self._ids, num_ways)
        self._behind = _grown(self._behind, num_ways)
        for number, ways in enumerate(states, start=first):
            # In order, so that of equal logits the lowest id wins, as without constraints.
            self._ids[place : place + len(ways)] = sorted(ways)
            self._behind[place : place + len(ways)] = [first + ways[token] for token in sorted(ways)]
            place += len(ways)
            self._offsets[number + 1] = place
        self._num_states, self._num_ways = first + len(states), num_ways
        return first

    def choices(self, states: IntArray) -> tuple[IntArray, IntArray]:
        """What each state may go on with.

        Args:
            states: int64 [n], none of them FREE.

        Returns:
            (token ids, states behind them), int64 [n, widest]; the last choice of a state fills its row.
        """
        offsets, ids, behind = self._offsets, self._ids, self._behind
        first = offsets[states]
        counts = offsets[states + 1] - first
        places = first[:, None] + np.minimum(np.arange(int(counts.max())), counts[:, None] - 1)
        return ids[places], behind[places]

    def behind(self, state: int, token: int) -> int | None:
        """The state behind one token; None if it is not allowed in `state`, which is not FREE."""
        offsets, ids, behind = self._offsets, self._ids, self._behind
        first, stop = int(offsets[state]), int(offsets[state + 1])
        place = first + int(np.searchsorted(ids[first:stop], token))
        return int(behind[place]) if place < stop and ids[place] == token else None


def _grown(array: IntArray, size: int) -> IntArray:
    """`array` with room for `size`; a copy, so that a reader's array stays whole."""
    if size <= len(array):
        return array
    return np.concatenate([array, np.zeros(max(size, 2 * len(array)) - len(array), dtype=np.int64)])


class Constraints:
    """The constraints of all attributes seen so far, for one tokenizer. Thread-safe; grows with the schemas."""

    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        """`vocab_size`: columns of the logits."""
        self.table = StateTable()
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._segments = SegmentTokenizer(tokenizer)
        self._tokens: TokenBytes | None = None
        self._starts: dict[Any, int] = {}
        self._lock = threading.Lock()

    def start(self, attribute: Attribute) -> int:
        """The state in which a value of `attribute` begins; FREE if it is not constrained.

        FREE, too, where the tokens of a right answer, as the tokenizer writes it, are no way through the automaton
        (a vocabulary without the letters, a tokenizer that changes its text): text/values.py judges those answers.
        """
        key = (attribute.type, attribute.values, attribute.multiple, attribute.unit)
        with self._lock:
            if key not in self._starts:
                self._starts[key] = self._compile(attribute)
            return self._starts[key]

    def _compile(self, attribute: Attribute) -> int:
        automaton = value_automaton(attribute)
        if automaton is None:
            return FREE
        self._tokens = self._tokens or TokenBytes(self._tokenizer, self._vocab_size)
        states = compile_automaton(automaton, self._tokens)
        lines = [render_answer_line(attribute, items) for items in _examples(attribute)]
        if attribute.type == "number" and not attribute.multiple:
            lines += [" 20,000,\n", " 1.250,5,\n", " 12,34,567,\n", " 1/2,\n", " 2.5e6,\n", ' "1,250.5",\n']
        answers = self._segments.encode_text(lines)
        if not states or not all(_accepts(states, answer) for answer in answers):
            logger.warning("values of %r are not constrained: the tokenizer cannot write them", attribute.name)
            return FREE
        return self.table.add(states)


def _examples(attribute: Attribute) -> list[tuple[str, ...] | None]:
    """Answers that must be possible."""
    if attribute.type == "enum":
        return [None, *((label,) for label in attribute.labels)]
    items = ("true", "false") if attribute.type == "boolean" else ("0", "-7", "1234567890", "12.05")
    return [None, *((item,) for item in items), *([items] if attribute.multiple else [])]


def _accepts(states: Sequence[Mapping[int, int]], tokens: Sequence[int]) -> bool:
    state: int | None = 0
    for token in tokens:
        state = None if state is None else states[state].get(token)
    return state == len(states) - 1


def compile_automaton(automaton: Automaton, tokens: TokenBytes) -> list[dict[int, int]]:
    """Per state, the state behind each token; state 0 is the start, the last one is the end.

    From every state there is a way to the end; no states at all if there is none from the start. The end's only way is
    any token to itself, so that no state is without choices.
    """
    ways: dict[int, dict[int, int]] = {}
    todo = [0]
    while todo:
        node = todo.pop()
        if node not in ways:
            ways[node] = _steps(automaton, node, tokens)
            todo += ways[node].values()
    before: dict[int, list[int]] = {}
    for node, after in ways.items():
        for behind in after.values():
            before.setdefault(behind, []).append(node)
    end = next(node for node, after in enumerate(automaton) if not after)
    alive = {end}
    todo = [end]
    while todo:
        found = set(before.get(todo.pop(), ())) - alive
        alive |= found
        todo += found
    if 0 not in alive:
        return []
    order = {node: number for number, node in enumerate([*sorted(alive - {end}), end])}
    states = [{token: order[behind] for token, behind in ways[node].items() if behind in alive} for node in order]
    states[-1] = {next(iter(states[0])): order[end]}
    return states


def _steps(automaton: Automaton, start: int, tokens: TokenBytes) -> dict[int, int]:
    """The tokens that can be written at a node, and the node behind each."""
    found: dict[int, int] = {}
    todo: list[tuple[int, bytes]] = [(start, b"")]
    while todo:
        node, text = todo.pop()
        for byte, behind in automaton[node].items():
            longer = text + bytes([byte])
            found |= dict.fromkeys(tokens.ids.get(longer, ()), behind)
            if longer in tokens.beginnings:
                todo.append((behind, longer))
    return found
