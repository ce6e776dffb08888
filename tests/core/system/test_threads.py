"""The thread that loads a model is not the one that decodes, and must leave nothing behind."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

from hpd_core import AutoregressiveBaseline, Engine, EngineConfig
from hpd_core.extractor import Extractor
from hpd_core.models import loading
from hpd_core.system.device import in_passing_thread
from tests.tables import table


def test_who_interrupts_does_not_wait() -> None:
    ended = threading.Event()

    def work() -> bool:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return ended.wait(600)

    # Where the tests themselves run in the background, the signal is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            in_passing_thread(work)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not ended.is_set()
    ended.set()


@table("kind", [Engine, AutoregressiveBaseline])
@pytest.mark.usefixtures("smollm2_dir")
def test_the_thread_that_loads_has_ended(monkeypatch: pytest.MonkeyPatch, kind: type[Extractor]) -> None:
    threads: list[threading.Thread] = []
    load_weights = loading.load_weights

    def load(*given: Any) -> Any:
        threads.append(threading.current_thread())
        return load_weights(*given)

    monkeypatch.setattr(loading, "load_weights", load)
    with kind.from_pretrained("smollm2", EngineConfig(dtype="float32")):
        assert len(threads) == 1
        assert not threads[0].is_alive()
