"""Constraints of kinds that come and go, asked for by many threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hpd_core.layout import FREE
from hpd_core.text import member_tries as constraints
from hpd_core.text.endings import Endings
from hpd_core.text.member_tries import KindTables
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.value_kinds import JsonString, OneOf
from tests.core.engines import TIMEOUT
from tests.core.token_states import state_behind
from tests.tiny_model import build_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build_tokenizer()


def new_constraints(tokenizer: Any) -> KindTables:
    return KindTables(tokenizer, len(tokenizer), Endings.none(len(tokenizer)), 0)


def test_what_somebody_has_stays_as_it_is_whoever_else_comes(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constraints, "_MOST_WAYS_IN_ALL", 500)
    known, segments = new_constraints(tokenizer), SegmentTokenizer(tokenizer)

    def ask(number: int) -> int:
        texts = (f"a{number % 37}", f"b{number % 37}")
        lease = known.lease(OneOf(texts))
        if lease.kept[0] == FREE:
            return 0
        for _ in range(3):
            for ids in segments.encode_text([f' "{text}",\n' for text in texts]):
                state: int | None = lease.kept[0]
                for token in ids:
                    assert state is not None
                    state = state_behind(known.states, state, token)
                assert state is not None
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(600), timeout=TIMEOUT)) > 300
    assert known.lease(OneOf(("a1", "b1"))).kept[0] != FREE


def test_what_was_compiled_meanwhile_is_used(tokenizer: Any) -> None:
    known = new_constraints(tokenizer)
    with ThreadPoolExecutor(8) as pool:
        leases = list(pool.map(lambda _: known.lease(JsonString()), range(16), timeout=TIMEOUT))
    assert len({lease.kept[0] for lease in leases}) == 1


def test_nobody_waits_for_what_another_one_compiles(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    known = new_constraints(tokenizer)
    mine = known.lease(JsonString())
    made, entered, go_on = constraints.compile_automaton, threading.Event(), threading.Event()

    def waiting(*arguments: Any) -> Any:
        entered.set()
        assert go_on.wait(TIMEOUT)
        return made(*arguments)

    monkeypatch.setattr(constraints, "compile_automaton", waiting)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(known.lease, OneOf(("red", "blue")))
        assert entered.wait(TIMEOUT)
        assert known.lease(JsonString()) is mine
        go_on.set()
        assert other.result(TIMEOUT).kept[0] != FREE
