"""Grammars of values that no table holds: patterns, and any JSON Schema, decoded token by token (llguidance).

A compiled automaton has a state for all that may have been written. A grammar has a matcher instead, which moves on
with a value's tokens. So such a value has one of two state numbers: before its first token, and after any.

A line holds the value: ' <value>,\\n', as for every kind (text/kind_automata.py).
"""

from __future__ import annotations

import json
import logging
import re
from collections import OrderedDict
from functools import lru_cache
from threading import Lock
from typing import Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt
import regex
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from hpd_core.errors import HPDError
from hpd_core.text.value_kinds import Grammar, ListOf, Pattern, ValueKind

logger = logging.getLogger(__name__)

FIRST_LIVE = 2**40
"""Lowest state number of a grammar; automata have lower ones."""
_MOST_ALIVE = 256
_LIMITS = LLParserLimits(max_lexer_states=50_000)
"""Some MB for each kind at most."""
# On one line, as `json.dumps` writes. What a grammar cannot hold is left to the check of the answer.
_OPTIONS = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "lenient": True,
    "coerce_one_of": True,
}


@lru_cache(maxsize=256)
def grammar_problem(kind: ValueKind) -> str | None:
    """Return why there is no grammar of this kind; None if there is one. Needs no tokenizer."""
    item = kind.item if isinstance(kind, ListOf) else kind
    if isinstance(item, Pattern) and (part := _otherwise_in_grammars(item.regex)) is not None:
        return f"{part[:40]!r} is read in two ways"
    return _reason(LLMatcher.validate_grammar(_lark(kind), None)) or None


def _reason(error: str) -> str:
    """Return what a grammar's error says: its first line, or the line that tells what is wrong with a pattern."""
    lines = error.split("\n")
    told = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return " ".join((told or lines)[0].rpartition("failed to compile JSON schema: ")[2].split())


def _schema(kind: ValueKind) -> Any:
    match kind:
        case Grammar():
            return json.loads(kind.schema)
        case Pattern():
            return {"type": "string", "pattern": kind.regex}
        case ListOf(item=Pattern() as item):
            return {"type": "array", "items": _schema(item)}
    raise TypeError(f"{kind} has no grammar")


def is_by_grammar(kind: ValueKind) -> bool:
    """Return whether values of this kind are decoded under a grammar."""
    return isinstance(kind, Grammar | Pattern) or (isinstance(kind, ListOf) and isinstance(kind.item, Pattern))


def _lark(kind: ValueKind) -> str:
    """Return the grammar of a line. Raise `PatternError` for a schema that is no JSON."""
    try:
        schema = _schema(kind)
    except ValueError as error:
        raise PatternError(f"the schema is no JSON: {error}") from error
    if isinstance(schema, dict):
        schema["x-guidance"] = _OPTIONS
    null = ' | "null"' if kind.nullable else ""
    return f"start: SPACES (value{null}) END\nSPACES: / {{0,2}}/\nvalue: %json {json.dumps(schema)}\nEND: /,?\\n/\n"


class SharedMatcher:
    """Matcher of one kind, whose values take turns: what a matcher has looked at stays in its memory.

    Attributes:
        user: first state of the value whose tokens it has seen.
    """

    matcher: LLMatcher
    user: int | None

    def __init__(self, unused: LLMatcher) -> None:
        self._unused = unused
        self.renew()

    def renew(self) -> None:
        """Begin with an empty memory."""
        self.matcher, self.user = self._unused.deep_copy(), None


class LiveGrammar:
    """Grammar of one value that is being decoded. Its states are `first`, before any token, and `first + 1`."""

    def __init__(self, first: int, shared: SharedMatcher) -> None:
        self._first, self._shared = first, shared
        self._tokens: list[int] = []
        self._is_free = False

    def mask(self, state: int, size: int) -> npt.NDArray[np.bool_]:
        """Return whether each token of the vocabulary may be written in a state, bool [size]."""
        matcher = self._at(state)
        for _ in range(0 if self._is_free else 2):
            bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8), bitorder="little")
            if not matcher.is_error():
                mask = np.zeros(size, dtype=np.bool_)
                mask[: len(bits)] = bits[:size]
                return mask
            self._shared.renew()  # its memory is full, maybe by what others have written
            matcher = self._at(state)
        if not self._is_free:
            logger.warning("a value is not held to its grammar any more, which has reached its limits")
        self._is_free = True
        return np.ones(size, dtype=np.bool_)  # the answer is judged when it is read

    def allows(self, state: int, token: int) -> bool:
        """Return whether the token may be written in a state."""
        return self._is_free or bool(self._at(state).validate_tokens([token]) == 1)

    def behind(self, state: int, token: int) -> int:
        """Write a token. Return the state after it."""
        matcher = self._at(state)
        self._tokens.append(token)
        if not self._is_free:
            matcher.consume_token(token)
        return self._first + 1

    def _at(self, state: int) -> LLMatcher:
        """Return the matcher after this value's tokens."""
        if state == self._first:  # a value may be decoded again from its first token, where memory was short
            self._tokens.clear()
            self._is_free = False
        matcher = self._shared.matcher
        if not self._is_free and (self._shared.user != self._first or not self._tokens):
            matcher.reset()
            matcher.consume_tokens(self._tokens)
            self._shared.user = self._first
        return matcher


class Grammars:
    """Compiler of grammars for one tokenizer. Thread-safe."""

    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        """Take `vocab_size`, the number of columns of the logits."""
        self._tokenizer, self._vocab_size = tokenizer, vocab_size
        self._lock = Lock()
        self._compiled: OrderedDict[ValueKind, SharedMatcher] = OrderedDict()  # least recently used first
        self._alive: WeakSet[SharedMatcher] = WeakSet()
        self._ours: LLTokenizer | None = None

    def matcher(self, kind: ValueKind) -> SharedMatcher | None:
        """Return the matcher of a kind; None if too many are in use, or grammars are not for this tokenizer.

        Raises:
            PatternError: there is no such grammar.
        """
        with self._lock:
            found = self._compiled.pop(kind, None)
            if found is None:
                while len(self._alive) >= _MOST_ALIVE and self._compiled:
                    self._compiled.popitem(last=False)  # which frees it if it is not in use
                if len(self._alive) >= _MOST_ALIVE:
                    logger.warning("values are not held to a grammar: %d others are in use", len(self._alive))
                    return None
                try:
                    from llguidance.hf import from_tokenizer  # imports transformers, which a command may do without

                    self._ours = self._ours or from_tokenizer(self._tokenizer, self._vocab_size)
                except Exception as error:  # of classes in Python, as Kimi's
                    logger.warning("values are not held to grammars: %s", error)
                    return None
                unused = LLMatcher(self._ours, _lark(kind), log_level=0, limits=_LIMITS)
                if unused.is_error():
                    raise PatternError(_reason(unused.get_error()))
                self._alive.add(found := SharedMatcher(unused))
            self._compiled[kind] = found
            return found


_LONGEST = 20_000
_MOST_WRITTEN = 50_000
"""Maximum parts with repetitions written out: `regex` writes them out, and crashes with some hundred thousand."""
_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*(?:\]|\Z)|\{(\d+),?\d*\}|.", re.DOTALL)
_GROUP = re.compile(r"\((?!\?)|\(\?(?:[:=!]|<[=!]|P?<[A-Za-z_]\w*>|[is-]+[:)])")
_UNICODE = re.compile(r"\\[pPsS]")
# `regex` reads these as fuzzy matching or a maximum count, as what gives nothing back, and as a named class; others as
# plain characters, or not at all.
_FUZZY = re.compile(r"\{(?:\s*(?:\d+\s*<=?\s*)?\d*[dies]|,[\d}])")
_POSSESSIVE = re.compile(r"(?:[*+?]|\{\d+,?\d*\})\+")
_NAMED_CLASS = re.compile(r"\[.*\[:\^?\w+:\]", re.DOTALL)
# Within a class, grammars read these as a class of its own and as operations on two.
_CLASS_OPERATION = re.compile(r"\[(?:\\.|[^\\])*?(?:\[|&&|--|~~)", re.DOTALL)
_FLAGS = re.compile(r"\(\?[is-]")


class PatternError(HPDError):
    """Regular expression that cannot be decoded; the message says which, and why."""


@lru_cache(maxsize=256)
def compiled(pattern: str) -> regex.Pattern[str]:
    """Return the expression for which texts are searched: `\\d` and `\\w` are those of ASCII, `$` is the very end.

    Raises:
        PatternError: it is not one, is too large, or is read in two ways.
    """
    if len(pattern) > _LONGEST:
        raise PatternError(f"it has more than {_LONGEST:,} characters")
    _check(pattern)
    parts = (part[0] for part in _PART.finditer(pattern))
    strict = "".join("\\Z" if part == "$" else part for part in parts)
    try:
        # With the flag, properties and spaces would be ASCII's, too.
        return regex.compile(strict, 0 if _UNICODE.search(pattern) else regex.ASCII)
    except (regex.error, ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise PatternError(f"it is no regular expression: {error}") from error


def _check(pattern: str) -> None:
    """Raise `PatternError` for a pattern that is too large written out, is read in two ways, or has strange groups."""
    sizes, last = [0], 0  # of the groups that are open, and of the part before
    for part in _PART.finditer(pattern):
        found = next(filter(None, (form.match(pattern, part.start()) for form in (_FUZZY, _POSSESSIVE))), None)
        if found := found or _NAMED_CLASS.match(part[0]):
            raise PatternError(f"{found[0]!r} is read in two ways: write '\\{{', '[\\[:' or '\\+' for characters")
        if part[1]:
            times = max(1, int(part[1].lstrip("0")[:6] or "0"))
            sizes[-1] += last * (times - 1)
            last *= times
        elif part[0] == "(":
            if not _GROUP.match(pattern, part.start()):
                group = pattern[part.start() : part.start() + 4]
                raise PatternError(f"{group!r} begins no group of JSON Schema's expressions: write it without")
            sizes.append(1)
        else:
            last = sizes.pop() if part[0] == ")" and len(sizes) > 1 else 1
            sizes[-1] += last
        if sizes[-1] > _MOST_WRITTEN:
            raise PatternError(
                f"it has more than {_MOST_WRITTEN:,} characters when its repetitions are written out: repeat less often"
            )


def _otherwise_in_grammars(pattern: str) -> str | None:
    """Return a part of a pattern that grammars would read otherwise than a search: a class, or letters of any case."""
    for part in _PART.finditer(pattern):
        if _CLASS_OPERATION.match(part[0]):
            return part[0]
        if flags := _FLAGS.match(pattern, part.start()):
            return flags[0]
    return None


def matches(pattern: str, text: str, seconds: float) -> bool:
    """Return whether a pattern is found in a text.

    Raises:
        PatternError: it cannot be searched for, or not in this time.
    """
    try:
        return compiled(pattern).search(text, timeout=max(seconds, 0.001)) is not None
    except (TimeoutError, MemoryError) as error:
        raise PatternError(f"it was not found out in {seconds:.1f} s: write it with fewer ways to match") from error
