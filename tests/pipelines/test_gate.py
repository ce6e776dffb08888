from __future__ import annotations

import threading
import time

from pipelines.gate import Gate


def test_several_share_and_one_alone_waits_for_all_and_goes_first() -> None:
    gate, order = Gate(), []
    release = threading.Event()

    def share(name: str) -> None:
        with gate.hold(alone=False):
            order.append(name)
            release.wait(5)

    def alone() -> None:
        with gate.hold(alone=True):
            order.append("alone")
            assert gate.num_inside == 1

    first = [threading.Thread(target=share, args=(name,)) for name in ("a", "b")]
    for thread in first:
        thread.start()
    wait_for(lambda: gate.num_inside == 2)
    suspect = threading.Thread(target=alone)
    suspect.start()
    wait_for(lambda: gate._num_waiting_alone == 1)
    late = threading.Thread(target=share, args=("late",))
    late.start()
    time.sleep(0.05)
    assert gate.num_inside == 2, "one came in past the one that waits to be alone"
    release.set()
    for thread in [*first, suspect, late]:
        thread.join(5)
    assert order[2:] == ["alone", "late"]
    assert gate.num_inside == 0


def test_idle_time_goes_to_the_one_that_ends_it() -> None:
    gate = Gate()
    time.sleep(0.02)
    with gate.hold(alone=False) as first:
        with gate.hold(alone=False) as second:
            pass
        time.sleep(0.5)
    with gate.hold(alone=True) as third:
        pass
    assert first >= 0.02
    assert second == 0.0
    assert third < 0.5, "time with a holder inside is not idle"


def test_a_holder_that_raises_leaves() -> None:
    gate = Gate()
    for alone in (True, False):
        try:
            with gate.hold(alone=alone):
                raise RuntimeError
        except RuntimeError:
            pass
    assert gate.num_inside == 0
    with gate.hold(alone=True):
        pass


def wait_for(condition: object) -> None:
    deadline = time.monotonic() + 5
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.005)
