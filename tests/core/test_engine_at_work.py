"""The engine at work: several callers, metrics, failures and its end, settings."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from hpd_core import Engine, EngineError
from hpd_core.requests.prompt_builder import PromptBuilder
from tests.tiny_model import answering_tokenizer

from .engines import LAYOUTS, TIMEOUT, Steps, config
from .products import SCHEMAS, products

# Several callers.


# Metrics.


def test_tokens_are_counted_where_they_are_forwarded(tiny_model_dir: Path) -> None:
    records = products(20)
    for layout in LAYOUTS:
        builder = PromptBuilder(answering_tokenizer(), config(layout), 2048)
        prepared, _ = builder.build(records, SCHEMAS)
        own = sum(item.num_own_tokens for item in prepared)
        keys = sum(item.layout.num_key_tokens for item in prepared)
        prefixes = {item.prefix_key for item in prepared}
        shared = sum(item.layout.num_prefix_tokens for item in prepared)
        with Engine.from_pretrained(str(tiny_model_dir), config(layout)) as engine:
            first = engine.submit(records, SCHEMAS)
            results = first.result(TIMEOUT)
            again = engine.submit(records, SCHEMAS)
            again.result(TIMEOUT)
        computed = sum(map(len, prefixes))
        assert len(prefixes) == 2
        assert (first.metrics.prefix_tokens_computed, again.metrics.prefix_tokens_computed) == (computed, 0)
        assert (first.metrics.prefix_tokens_reused, again.metrics.prefix_tokens_reused) == (shared - computed, shared)
        for metrics in (first.metrics, again.metrics):
            assert metrics.document_tokens + metrics.document_tokens_shared == own - keys
            assert (metrics.document_tokens_shared > 0) == (layout == "tree"), "some of these begin alike"
            assert metrics.key_tokens == keys
            assert metrics.value_tokens == sum(v.num_tokens for r in results for v in r.values.values())
            assert (metrics.num_records, metrics.num_errors) == (20, 0)
            assert metrics.num_steps >= max(v.num_tokens for r in results for v in r.values.values())


# When things go wrong, and the end.


def test_close_fails_what_is_not_finished(tiny_model_dir: Path) -> None:
    engine = Engine.from_pretrained(str(tiny_model_dir), config())
    steps = Steps(engine, hold=True)
    running = engine.submit(products(40), SCHEMAS)
    assert steps.entered.wait(TIMEOUT)
    waiting = engine.submit(products(2), SCHEMAS)
    closer = threading.Thread(target=engine.close)
    closer.start()
    while not engine._queue.is_closed:
        time.sleep(0.001)
    steps.release.set()
    closer.join(TIMEOUT)
    assert not closer.is_alive()
    for future in (running, waiting):
        with pytest.raises(EngineError, match="closed"):
            future.result(TIMEOUT)


# Settings.
