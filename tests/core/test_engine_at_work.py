"""The engine at work: several callers, metrics, failures and its end, settings."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpd_core import Engine, EngineError
from hpd_core.decoding import decoder
from hpd_core.requests.prompt_builder import PromptBuilder
from tests.tiny_model import answering_tokenizer

from .engines import LAYOUTS, TIMEOUT, Steps, answers, config
from .products import SCHEMAS, products

# Several callers.


def test_callers_share_steps_and_get_what_they_would_get_alone(fresh: Engine) -> None:
    shares = [products(5, first=5 * n) for n in range(6)]
    alone, separate = [], 0
    for share in shares:
        future = fresh.submit(share, SCHEMAS)
        alone.append(answers(future.result(TIMEOUT)))
        separate += future.metrics.num_steps
    steps = Steps(fresh, hold=True)
    with ThreadPoolExecutor(6) as pool:
        futures = list(pool.map(lambda share: fresh.submit(share, SCHEMAS), shares))
    steps.release.set()
    assert [answers(future.result(TIMEOUT)) for future in futures] == alone
    assert len(steps.reports) < separate / 2


def test_a_small_submission_is_not_held_up_by_a_large_one(fresh: Engine) -> None:
    """Results are handed out when a submission's own prompts are finished."""
    steps = Steps(fresh, hold=True)
    small = fresh.submit(products(1), SCHEMAS)
    assert steps.entered.wait(TIMEOUT)
    large = fresh.submit(products(200), SCHEMAS)
    order: list[str] = []
    called = threading.Semaphore(0)

    def note(name: str) -> None:
        order.append(name)
        called.release()

    small.add_done_callback(lambda _: note("small"))
    large.add_done_callback(lambda _: note("large"))
    steps.release.set()
    # Who waits for a result may have it before the callbacks are called.
    assert called.acquire(timeout=TIMEOUT)
    assert called.acquire(timeout=TIMEOUT)
    assert order == ["small", "large"]


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


def test_every_token_is_forwarded_once(fresh: Engine) -> None:
    """No logits where nothing decodes is a promise about speed; no token twice is one we can count."""
    forwarded = []
    forward = fresh._decoder._forward

    def counting(inputs: Any) -> Any:
        forwarded.append(sum(len(item.token_ids) for item in inputs))
        return forward(inputs)

    fresh._decoder._forward = counting  # type: ignore[method-assign]
    future = fresh.submit(products(20), SCHEMAS)
    values = [value for result in future.result(TIMEOUT) for value in result.values.values()]
    metrics = future.metrics
    fed = sum(value.num_tokens - 1 for value in values)
    prompts = metrics.prefix_tokens_computed + metrics.document_tokens + metrics.key_tokens
    assert sum(forwarded) == prompts + fed + metrics.scored_tokens
    assert metrics.scored_tokens > 0


def test_busy_seconds_are_those_of_the_forwards(fresh: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only a forward moves: what a machine is busy with besides is no measure."""
    now = 0.0
    forward = fresh._decoder._forward

    def in_a_second(inputs: Any) -> Any:
        nonlocal now
        now += 1.0
        return forward(inputs)

    monkeypatch.setattr(decoder, "time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(fresh._decoder, "_forward", in_a_second)
    futures = [fresh.submit(products(10, first=10 * n), SCHEMAS) for n in range(3)]
    for future in futures:
        future.result(TIMEOUT)
    assert now > 3
    assert sum(future.metrics.busy_seconds for future in futures) == pytest.approx(now)


# When things go wrong, and the end.


def test_an_exception_in_a_step_reaches_every_caller_and_the_engine_goes_on(fresh: Engine) -> None:
    expected = answers(fresh.extract(products(6), SCHEMAS))
    steps = Steps(fresh, hold=True, fail_at=2)
    futures = [fresh.submit(products(6, first=6 * n), SCHEMAS) for n in range(3)]
    steps.release.set()
    for future in futures:
        with pytest.raises(EngineError, match="out of memory, as it were") as caught:
            future.result(TIMEOUT)
        assert isinstance(caught.value.__cause__, RuntimeError)
    assert answers(fresh.submit(products(6), SCHEMAS).result(TIMEOUT)) == expected
    finished = [prompt for report in steps.reports[1:] for prompt in report.finished]
    assert len(finished) == 6, "nobody waits for what failed: it must not be decoded any more"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_cancelled_future_does_not_keep_an_error_from_the_others(fresh: Engine) -> None:
    # The first step may run with the first submission alone; all six are in the second.
    steps = Steps(fresh, hold=True, fail_at=2)
    futures = [fresh.submit(products(2), SCHEMAS) for _ in range(6)]
    for future in futures[::2]:
        assert not future.cancel(), "work that is shared with others cannot be called back"
    steps.release.set()
    for future in futures:
        with pytest.raises(EngineError):
            future.result(TIMEOUT)
    assert len(fresh.submit(products(2), SCHEMAS).result(TIMEOUT)) == 2


def test_close_ends_the_thread_and_can_be_repeated(tiny_model_dir: Path) -> None:
    engine = Engine.from_pretrained(str(tiny_model_dir), config())
    engine.extract(products(1), SCHEMAS)
    thread = engine._queue.thread
    assert thread is not None
    engine.close()
    engine.close()
    assert not thread.is_alive()
    with pytest.raises(EngineError, match="closed"):
        engine.submit(products(1), SCHEMAS)
    with pytest.raises(EngineError, match="closed"):
        engine.extract([], SCHEMAS)


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
