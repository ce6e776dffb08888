"""Two steps at a time. The device is slow here: a step's forward runs when its tokens are wanted, and not before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpd_core import Engine, EngineConfig, EngineError
from hpd_core.decoding import prompt as prompt_module
from hpd_core.decoding.cohort import Cohort
from hpd_core.decoding.cohort_cache import CohortInput
from hpd_core.decoding.decoder import Decoder
from hpd_core.decoding.next_token import Chosen, TokenChoice
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import Branch, tree_layout
from hpd_core.models.description import cache_shape
from hpd_core.models.steering import attach
from hpd_core.text.constraints import StateTable
from hpd_core.text.endings import Endings
from tests.core.engines import answers, config
from tests.core.families import VOCABULARY, build_model
from tests.core.helpers import (
    STATES,
    TRIES,
    assert_equals_oracle,
    decode,
    random_case,
    random_endings,
    random_ids,
)
from tests.core.native import WAYS
from tests.core.products import SCHEMAS, products
from tests.core.token_states import token_states
from tests.examples import examples

LLAMA = build_model("llama")
attach(LLAMA)
ORACLE = build_model("llama")


FORWARD = Decoder._forward


class Later:
    """A forward that was given to the device."""

    def __init__(self, decoder: Decoder, inputs: list[CohortInput]) -> None:
        self._decoder, self._inputs = decoder, inputs

    def fetch(self) -> Chosen:
        return FORWARD(self._decoder, self._inputs).fetch()


class Device:
    """Stands for a device with work under way; fails if a cohort is fed whose last tokens are still awaited."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most_in_flight = 0
        self._in_flight: list[Later] = []
        self._waiting: set[Cohort] = set()
        fetch, next_input, accept = Decoder._fetch, Cohort.next_input, Cohort.accept

        def launching(decoder: Decoder, inputs: list[CohortInput]) -> Later:
            self._in_flight.append(Later(decoder, inputs))
            self.most_in_flight = max(self.most_in_flight, len(self._in_flight))
            return self._in_flight[-1]

        def fetching(decoder: Decoder, choice: TokenChoice) -> Chosen:
            assert choice is self._in_flight.pop(0), "steps end in the order in which they began"
            return fetch(decoder, choice)

        def feeding(cohort: Cohort, *given: Any) -> CohortInput:
            assert cohort not in self._waiting
            self._waiting.add(cohort)
            return next_input(cohort, *given)

        def accepting(cohort: Cohort, *given: Any) -> int:
            self._waiting.remove(cohort)
            return accept(cohort, *given)

        monkeypatch.setattr(Decoder, "_forward", launching)
        monkeypatch.setattr(Decoder, "_fetch", fetching)
        monkeypatch.setattr(Cohort, "next_input", feeding)
        monkeypatch.setattr(Cohort, "accept", accepting)

    def forget(self) -> None:
        """After an error: what it had been given is not wanted any more."""
        self._in_flight.clear()
        self._waiting.clear()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(monkeypatch)


def overlapping(**options: Any) -> EngineConfig:
    return EngineConfig(**{"overlap_steps": True, **options})


@settings(
    max_examples=examples(30),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1), layout=st.sampled_from(["tree", "stacked"]))
@pytest.mark.usefixtures("poison", "device")
def test_any_schedule_equals_oracle(data: st.DataObject, seed: int, layout: str) -> None:
    """Merges, prefixes, caches that are given back and taken: none of it touches what a step in flight needs."""
    rng = np.random.default_rng(seed)
    endings = random_endings(rng, share=float(rng.choice([0.02, 0.2, 0.6])))
    prefixes = [random_ids(rng, 0, 12) for _ in range(data.draw(st.integers(1, 4), "prefixes"))]
    cases = [random_case(rng, layout, prefixes, 4, 7) for _ in range(data.draw(st.integers(1, 14), "cases"))]
    limits = overlapping(
        max_tokens_per_step=data.draw(st.sampled_from([8, 24, 64, 200])),
        max_prompts_per_cohort=data.draw(st.sampled_from([1, 2, 4])),
        max_cached_tokens=data.draw(st.sampled_from([150, 100_000])),
        max_cached_prefixes=data.draw(st.sampled_from([1, 2, 64])),
        attention=data.draw(st.sampled_from(WAYS)),
    )
    with patch.object(prompt_module, "USUAL_COLUMNS", data.draw(st.sampled_from([1, 8]), "reserved for a value")):
        prompts = decode(build_model("llama"), cases, endings, limits)
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(ORACLE, case, prompt, endings)


def some_cases(count: int) -> list[Any]:
    rng = np.random.default_rng(count)
    prefixes = [random_ids(rng, 3, 6), random_ids(rng, 3, 6)]
    return [random_case(rng, "tree", prefixes, 4, 8) for _ in range(count)]


ENDINGS = random_endings(np.random.default_rng(1))
NEVER = Endings.none(VOCABULARY)
SMALL: dict[str, Any] = {"max_tokens_per_step": 48, "max_prompts_per_cohort": 3}


def prompts_of(count: int, limit: int = 12) -> list[Prompt]:
    """One value each, of `limit` tokens."""
    rng = np.random.default_rng(count)
    branches = [Branch([5, 6], limit)]
    return [Prompt(tree_layout([], random_ids(rng, 8, 8), branches), ()) for _ in range(count)]


def plain_decoder(**options: Any) -> Decoder:
    return Decoder(LLAMA, NEVER, EngineConfig(**options), cache_shape(LLAMA))


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    count=st.integers(1, 16), slots=st.integers(1, 400), per_cohort=st.integers(1, 5), limit=st.sampled_from([12, 60])
)
@pytest.mark.usefixtures("device")
def test_the_cache_holds_both_steps(count: int, slots: int, per_cohort: int, limit: int) -> None:
    """What is in flight counts, too; a prompt that is too large for the limits runs alone."""
    limits: dict[str, Any] = {"max_cached_tokens": slots, "max_prompts_per_cohort": per_cohort}
    decoder = plain_decoder(overlap_steps=True, max_tokens_per_step=32, **limits)
    widest = max(prompt.most_own_tokens for prompt in prompts_of(count, limit))
    reserved = max(prompt.reserved_tokens for prompt in prompts_of(count, limit))
    decoder.add(prompts_of(count, limit))
    while decoder.has_work:
        decoder.step()
        running = decoder._scheduler.running
        assert sum(cohort.num_cached_tokens for cohort in running) <= 1.25 * max(slots, widest) + 4 * len(running)
        if reserved > slots:
            assert sum(len(cohort.prompts) for cohort in running) <= 1


@pytest.mark.parametrize("fail_at", range(1, 15, 3))
def test_out_of_memory_with_a_step_in_flight(fail_at: int, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both begin anew, with less."""
    expected = [prompt.tokens for prompt in decode(LLAMA, some_cases(30), ENDINGS, EngineConfig(**SMALL))]
    launch, calls = Decoder._forward, 0

    def failing(decoder: Decoder, inputs: list[CohortInput]) -> TokenChoice:
        nonlocal calls
        calls += len(decoder._in_flight)
        if calls == fail_at and decoder._in_flight:
            device.forget()
            raise torch.OutOfMemoryError("made up")
        return launch(decoder, inputs)

    monkeypatch.setattr(Decoder, "_forward", failing)
    found = decode(LLAMA, some_cases(30), ENDINGS, overlapping(**SMALL))
    assert calls > fail_at, "and then with a step in flight, too"
    assert [prompt.tokens for prompt in found] == expected


def test_nothing_of_dropped_work_is_taken_later(device: Device) -> None:
    table = StateTable()
    table.add(token_states(STATES))
    decoder = Decoder(LLAMA, ENDINGS, overlapping(**SMALL), cache_shape(LLAMA), table, TRIES)
    dropped = [case.prompt() for case in some_cases(30)]
    decoder.add(dropped)
    while not decoder._in_flight:
        decoder.step()
    decoder.clear()
    device.forget()
    prompts: list[Prompt] = [case.prompt() for case in some_cases(5)]
    decoder.add(prompts)
    finished = []
    while decoder.has_work:
        finished += decoder.step().finished
    assert set(finished) == set(prompts)
    assert decoder.pool.num_used == 0
    for case, prompt in zip(some_cases(5), prompts, strict=True):
        assert_equals_oracle(ORACLE, case, prompt, ENDINGS)


# The engine.


@pytest.fixture
def engine(tiny_model_dir: Path) -> Iterator[Engine]:
    with Engine.from_pretrained(str(tiny_model_dir), config(overlap_steps=True, **SMALL)) as engine:
        yield engine


def test_an_error_with_a_step_in_flight_reaches_every_caller_and_the_engine_goes_on(engine: Engine) -> None:
    expected = answers(engine.extract(products(6), SCHEMAS))
    forward, calls = engine._decoder._forward, 0

    def failing(inputs: list[CohortInput]) -> TokenChoice:
        nonlocal calls
        calls += 1
        if len(engine._decoder._in_flight) == 1 and calls > 4:
            raise RuntimeError("the second of two")
        return forward(inputs)

    engine._decoder._forward = failing  # type: ignore[method-assign]
    with pytest.raises(EngineError, match="the second of two"):
        engine.extract(products(40), SCHEMAS)
    engine._decoder._forward = forward  # type: ignore[method-assign]
    assert answers(engine.extract(products(6), SCHEMAS)) == expected
