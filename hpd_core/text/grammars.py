"""Grammars of values that no table holds: patterns, and any JSON Schema, decoded token by token (llguidance).

A compiled automaton has a state for all that may have been written. A grammar has a matcher for each value instead,
which moves on with it. So such a value has one of two state numbers: before its first token, and after any.

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

import numpy as np
import numpy.typing as npt
import regex
from llguidance import LLMatcher, LLTokenizer

from hpd_core.errors import HPDError
from hpd_core.text.value_kinds import Grammar, ListOf, Pattern, ValueKind

logger = logging.getLogger(__name__)

FIRST_LIVE = 2**40
"""Lowest state number of a grammar; automata have lower ones."""
_MOST_COMPILED = 256
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
    schema = _schema(kind)
    if isinstance(schema, dict):
        schema["x-guidance"] = _OPTIONS
    null = ' | "null"' if kind.nullable else ""
    return f"start: SPACES (value{null}) END\nSPACES: / {{0,2}}/\nvalue: %json {json.dumps(schema)}\nEND: /,?\\n/\n"


class LiveGrammar:
    """Grammar of one value that is being decoded. Its states are `first`, before any token, and `first + 1`."""

    def __init__(self, first: int, matcher: LLMatcher) -> None:
        self._first, self._matcher = first, matcher

    def mask(self, state: int, size: int) -> npt.NDArray[np.bool_]:
        """Return whether each token of the vocabulary may be written in a state, bool [size]."""
        self._enter(state)
        bits = np.unpackbits(np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8), bitorder="little")
        mask = np.zeros(size, dtype=np.bool_)
        mask[: len(bits)] = bits[:size]
        if self._matcher.is_error():  # its limits are reached: the answer is judged when it is read
            logger.warning("a grammar ended with an error: %s", self._matcher.get_error())
            mask[:] = True
        return mask

    def allows(self, state: int, token: int) -> bool:
        """Return whether the token may be written in a state."""
        self._enter(state)
        return bool(self._matcher.validate_tokens([token]) == 1)

    def behind(self, state: int, token: int) -> int:
        """Write a token. Return the state after it."""
        self._enter(state)
        self._matcher.consume_token(token)
        return self._first + 1

    def _enter(self, state: int) -> None:
        # A value may be decoded again from its first token, where memory was short.
        if state == self._first:
            self._matcher.reset()


class Grammars:
    """Compiler of grammars for one tokenizer. Thread-safe."""

    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        """Take `vocab_size`, the number of columns of the logits."""
        self._tokenizer, self._vocab_size = tokenizer, vocab_size
        self._lock = Lock()
        self._compiled: OrderedDict[ValueKind, LLMatcher] = OrderedDict()  # least recently used first
        self._ours: LLTokenizer | None = None

    def matcher(self, kind: ValueKind) -> LLMatcher | None:
        """Return a new matcher; None if the tokenizer is none that grammars are compiled for.

        Raises:
            PatternError: there is no such grammar.
        """
        with self._lock:
            found = self._compiled.pop(kind, None)
            if found is None:
                try:
                    from llguidance.hf import from_tokenizer  # imports transformers, which a command may do without

                    self._ours = self._ours or from_tokenizer(self._tokenizer, self._vocab_size)
                except Exception as error:  # of classes in Python, as Kimi's
                    logger.warning("values are not held to grammars: %s", error)
                    return None
                found = LLMatcher(self._ours, _lark(kind))
                if found.is_error():
                    raise PatternError(_reason(found.get_error()))
            self._compiled[kind] = found
            if len(self._compiled) > _MOST_COMPILED:
                self._compiled.popitem(last=False)
            return found.deep_copy()


_LONGEST = 20_000
_MOST_WRITTEN = 50_000
"""Maximum parts with repetitions written out: `regex` writes them out, and crashes with some hundred thousand."""
_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(\d+),?\d*\}|.", re.DOTALL)
# `regex` reads these as fuzzy matching, a maximum count and a named class; others as plain characters.
_UNICODE = re.compile(r"\\[pPsS]")
_READ_IN_TWO_WAYS = re.compile(r"\{(?:\s*(?:\d+\s*<=?\s*)?\d*[dies]|,[\d}])|:\^?\w+:\]")


class PatternError(HPDError):
    """Regular expression that cannot be decoded; the message says which, and why."""


@lru_cache(maxsize=256)
def compiled(pattern: str) -> regex.Pattern[str]:
    """Return the expression for which texts are searched, as it is decoded: `\\d` and `\\w` are those of ASCII.

    Raises:
        PatternError: it is not one, is too large, or is read in two ways.
    """
    if len(pattern) > _LONGEST or _is_too_large(pattern):
        raise PatternError(
            f"it has more than {_MOST_WRITTEN:,} characters when its repetitions are written out: repeat less often"
        )
    if found := _READ_IN_TWO_WAYS.search(pattern):
        raise PatternError(f"{found[0]!r} is read in two ways: write '\\{{' or '[\\[:' for characters")
    try:
        # With the flag, properties and spaces would be ASCII's, too.
        return regex.compile(pattern, 0 if _UNICODE.search(pattern) else regex.ASCII)
    except (regex.error, ValueError, OverflowError, RecursionError) as error:
        raise PatternError(f"it is no regular expression: {error}") from error


def _is_too_large(pattern: str) -> bool:
    sizes, last = [0], 0  # of the groups that are open, and of the part before
    for part in _PART.finditer(pattern):
        if part[1]:
            times = max(1, int(part[1].lstrip("0")[:6] or "0"))
            sizes[-1] += last * (times - 1)
            last *= times
        elif part[0] == "(":
            sizes.append(0)
        else:
            last = sizes.pop() if part[0] == ")" and len(sizes) > 1 else 1
            sizes[-1] += last
        if sizes[-1] > _MOST_WRITTEN:
            return True
    return False
