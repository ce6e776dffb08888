from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from pipelines.job import engine_gate
from pipelines.job.engine_gate import EngineGate
from tests.pipelines.commands import wait_until


def test_several_share_and_one_alone_waits_for_all_and_goes_first() -> None:
    gate, order = EngineGate(), []
    release = threading.Event()

    def share(name: str) -> None:
        with gate.hold(alone=False):
            order.append(name)
            release.wait()

    def alone() -> None:
        with gate.hold(alone=True):
            order.append("alone")
            assert gate.num_inside == 1

    first = [threading.Thread(target=share, args=(name,), daemon=True) for name in ("a", "b")]
    suspect = threading.Thread(target=alone, daemon=True)
    late = threading.Thread(target=share, args=("late",), daemon=True)
    try:
        for thread in first:
            thread.start()
        wait_until(lambda: gate.num_inside == 2)
        suspect.start()
        wait_until(lambda: gate._num_waiting_alone == 1)
        late.start()
        wait_until(lambda: len(gate._condition._waiters) == 2 or gate.num_inside == 3)  # type: ignore[attr-defined]
        assert gate.num_inside == 2, "one came in past the one that waits to be alone"
    finally:
        release.set()
    for thread in [*first, suspect, late]:
        thread.join()
    assert order[2:] == ["alone", "late"]
    assert gate.num_inside == 0


def test_idle_time_goes_to_the_one_that_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(engine_gate, "time", SimpleNamespace(perf_counter=lambda: now))
    gate = EngineGate()
    now += 2
    with gate.hold(alone=False) as first:
        now += 3
        with gate.hold(alone=False) as second:
            pass
        now += 5
    now += 7
    with gate.hold(alone=True) as third:
        pass
    assert (first, second, third) == (2, 0, 7), "time with a holder inside is not idle"


def test_a_holder_that_raises_leaves() -> None:
    gate = EngineGate()
    for alone in (True, False):
        try:
            with gate.hold(alone=alone):
                raise RuntimeError
        except RuntimeError:
            pass
    assert gate.num_inside == 0
    with gate.hold(alone=True):
        pass
