"""A model may be run by others while an engine runs it: they get what the model itself says, and so does the engine."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest
import torch

from hpd_core import Engine
from tests.core.engines import answers, config
from tests.core.mixers.hybrids import build_hybrid
from tests.core.products import SCHEMAS, products
from tests.core.sweep.tokenizer import tiny_tokenizer


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads that give way often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
@pytest.mark.parametrize("family", ["lfm2", "qwen3_5"])
def test_another_thread_runs_the_same_layers(family: str) -> None:
    """Without attention, which the engine has made its own: each layer that mixes tokens in another way."""
    tokenizer = tiny_tokenizer()
    model = build_hybrid(family, vocab_size=len(tokenizer))
    (layer, *_) = [part for part in model.modules() if type(part).__name__.endswith(("ShortConv", "GatedDeltaNet"))]
    hidden = torch.randn(1, 40, model.config.hidden_size)
    records = products(6)
    with torch.inference_mode():
        own = layer(hidden)
    with Engine(model, tokenizer, config()) as engine:
        expected = answers(engine.extract(records, SCHEMAS))
        is_over, wrong = threading.Event(), []

        def run() -> None:
            with torch.inference_mode():
                while not is_over.is_set():
                    wrong.append(not torch.allclose(layer(hidden), own))

        thread = threading.Thread(target=run)
        thread.start()
        try:
            found = [answers(engine.extract(records, SCHEMAS)) for _ in range(5)]
        finally:
            is_over.set()
            thread.join()
    assert all(each == expected for each in found)
    assert wrong
    assert not any(wrong)
