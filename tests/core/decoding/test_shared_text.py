"""Documents that begin alike: their beginning is found, computed once, and changes no answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpd_core.attention.kv_cache import CacheBlock, CachePool
from hpd_core.config import EngineConfig
from hpd_core.decoding.common_prefixes import shared_texts
from hpd_core.decoding.decoder import Decoder, StepReport
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import Branch, tree_layout
from hpd_core.models.description import cache_shape
from hpd_core.models.steering import attach
from hpd_core.text.endings import Endings
from tests.core.families import FAMILIES, FAMILY_PARAMETERS, VOCABULARY, build_model
from tests.core.helpers import (
    TRIES,
    TreeCase,
    assert_equals_oracle,
    decode,
    random_branches,
    random_endings,
    random_ids,
)
from tests.core.native import EVERY_WAY, WAYS
from tests.examples import examples

NEVER = Endings.none(VOCABULARY)
LLAMA = build_model("llama")
attach(LLAMA)
# The tree.


def found_texts(documents: list[list[int]], num_prefix_tokens: int = 0) -> list[tuple[list[int], list[int], int]]:
    """Of each node its tokens, its members, and the length of its parent."""
    arrays = [np.array(document, dtype=np.int64) for document in documents]
    nodes = shared_texts(range(len(documents)), arrays, num_prefix_tokens)
    return [
        (documents[node.members[0]][: node.length], sorted(node.members), node.parent.length if node.parent else 0)
        for node in nodes
    ]


@settings(max_examples=examples(200))
@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 12)), max_size=4), max_size=8))
def test_the_tree_is_that_of_all_common_beginnings(runs: list[list[tuple[int, int]]]) -> None:
    """By looking at every beginning of every document."""
    documents = [[token for token, count in parts for _ in range(count)] for parts in runs]
    nodes = found_texts(documents)
    sharing: dict[tuple[int, ...], list[int]] = {}
    for number, document in enumerate(documents):
        for length in range(1, len(document) + 1):
            sharing.setdefault(tuple(document[:length]), []).append(number)
    for text, members, above in nodes:
        assert members == sharing[tuple(text)], "all that begin so"
        assert len(text) - above >= 8
        assert (len(members) - 1) * (len(text) - above) >= 16
        longer = [key for key in sharing if key[: len(text)] == tuple(text) and len(key) == len(text) + 1]
        assert all(len(sharing[key]) < len(members) for key in longer), "the longest that they have in common"
    # What is left to share would not be worth a node.
    for key, members in sharing.items():
        if any(sharing.get((*key, token)) == members for token in range(3)):
            continue
        above = max((len(text) for text, _, _ in nodes if tuple(text) == key[: len(text)]), default=0)
        assert len(key) - above < 8 or (len(members) - 1) * (len(key) - above) < 16


# Exactness.


def variants(rng: np.random.Generator, prefixes: list[list[int]], num_families: int, most: int) -> list[TreeCase]:
    """Families of documents with a common beginning, some in families of families, twins too; shuffled."""
    cases = []
    for _ in range(num_families):
        prefix = prefixes[int(rng.integers(len(prefixes)))]
        common = random_ids(rng, 0, 40)
        below = [random_ids(rng, 0, 30) for _ in range(2)]
        for _ in range(int(rng.integers(1, most + 1))):
            own = random_ids(rng, 0 if prefix else 1, 9)
            document = [*common, *below[int(rng.integers(2))], *own]
            cases.append(TreeCase(prefix, document, random_branches(rng, int(rng.integers(1, 4)), 5)))
            if rng.random() < 0.2:
                cases.append(TreeCase(prefix, document, random_branches(rng, 2, 5)))
    return [cases[number] for number in rng.permutation(len(cases))]


def total(reports: list[StepReport]) -> int:
    return sum(count for report in reports for cohort in report.cohorts for _, count in cohort)


@pytest.mark.parametrize("attention", EVERY_WAY)
@pytest.mark.parametrize("family", FAMILY_PARAMETERS)
@pytest.mark.usefixtures("poison")
def test_families_equal_the_oracle(family: str, attention: str) -> None:
    rng = np.random.default_rng(5)
    endings = random_endings(rng)
    cases = variants(rng, [random_ids(rng, 9, 14), []], 4, 4)
    reports: list[StepReport] = []
    config = EngineConfig(attention=attention, max_prompts_per_cohort=6, max_tokens_per_step=128)
    prompts = decode(build_model(family), cases, endings, config, reports=reports)
    assert any(report.computed_texts for report in reports)
    oracle = build_model(family)
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1), family=st.sampled_from(FAMILIES))
@pytest.mark.usefixtures("poison")
def test_any_schedule_of_families_equals_the_oracle(data: st.DataObject, seed: int, family: str) -> None:
    rng = np.random.default_rng(seed)
    endings = random_endings(rng, share=float(rng.choice([0.02, 0.2, 0.6])))
    prefixes = [random_ids(rng, 0, 12) for _ in range(data.draw(st.integers(1, 3), "prefixes"))]
    cases = variants(rng, prefixes, data.draw(st.integers(1, 4), "families"), data.draw(st.sampled_from([2, 5, 9])))
    config = EngineConfig(
        max_tokens_per_step=data.draw(st.sampled_from([1, 17, 64, 4096])),
        max_prompts_per_cohort=data.draw(st.sampled_from([1, 2, 8, 32])),
        max_cached_tokens=data.draw(st.sampled_from([1, 60, 200, 100_000])),
        max_cached_prefixes=data.draw(st.sampled_from([1, 64])),
        attention=data.draw(st.sampled_from(WAYS)),
        overlap_steps=data.draw(st.booleans()),
    )
    prompts = decode(build_model(family), cases, endings, config)
    oracle = build_model(family)
    for index in {0, len(cases) // 2, len(cases) - 1}:
        assert_equals_oracle(oracle, cases[index], prompts[index], endings)


# What is computed, and when.


def family(
    members: int, *, shared: int = 40, prefix: list[int] | None = None, seed: int = 0, limit: int = 2, own: int = 3
) -> list[Prompt]:
    """Prompts whose documents begin with the same tokens."""
    rng = np.random.default_rng([seed, shared])
    prefix, common = prefix or [], random_ids(rng, shared, shared)
    branches = [Branch([5, 6], limit)]
    return [
        Prompt(tree_layout(prefix, [*common, 10 + number, *random_ids(rng, own, own)], branches), tuple(prefix))
        for number in range(members)
    ]


def run(decoder: Decoder, prompts: list[Prompt]) -> list[StepReport]:
    decoder.add(prompts)
    reports = []
    while decoder.has_work:
        reports.append(decoder.step())
    return reports


def llama(**options: Any) -> Decoder:
    return Decoder(LLAMA, NEVER, EngineConfig(**options), cache_shape(LLAMA), None, TRIES)


def of_texts(reports: list[StepReport]) -> list[int]:
    """The tokens of each text that was computed."""
    return [text.num_own_tokens for report in reports for text in report.computed_texts]


@pytest.mark.parametrize("attention", EVERY_WAY)
def test_what_is_shared_is_computed_once(attention: str) -> None:
    prefix = random_ids(np.random.default_rng(3), 20, 20)
    apart = total(run(llama(attention=attention, share_text=False), family(5, prefix=prefix)))
    decoder = llama(attention=attention)
    prompts = family(5, prefix=prefix)
    reports = run(decoder, prompts)
    assert of_texts(reports) == [40]
    assert [prompt.num_shared_tokens for prompt in prompts] == [40] * 5
    assert total(reports) == apart - 4 * 40
    assert sum(len(report.computed_prefixes) for report in reports) == 1
    assert not decoder._scheduler._common._texts, "nobody waits for it"


# Memory.


@pytest.mark.parametrize("fail_at", range(1, 20, 3))
@torch.inference_mode()
def test_after_an_end_of_memory_texts_are_computed_anew(fail_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def prompts() -> list[Prompt]:
        return [p for seed in range(4) for p in family(4, prefix=[7, 8, 9], seed=seed, limit=6)]

    limits: dict[str, Any] = {"max_prompts_per_cohort": 4, "max_tokens_per_step": 128}
    expected = prompts()
    run(llama(share_text=False, **limits), expected)
    take, calls = CachePool.take, 0

    def failing(pool: CachePool, num_prompts: int, capacity: int) -> CacheBlock:
        nonlocal calls
        calls += 1
        if calls == fail_at:
            raise torch.OutOfMemoryError("made up")
        return take(pool, num_prompts, capacity)

    monkeypatch.setattr(CachePool, "take", failing)
    found, decoder = prompts(), llama(**limits)
    reports = run(decoder, found)
    assert [prompt.tokens for prompt in found] == [prompt.tokens for prompt in expected]
    assert sorted(id(p) for report in reports for p in report.finished) == sorted(map(id, found))
    assert of_texts(reports)
    assert decoder.pool.num_used == 0


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("others", [0, 3])
def test_a_text_whose_prompts_are_dropped_while_it_is_computed_is_not_kept(overlap: bool, others: int) -> None:
    """Nobody would ever forget it. `others`: prompts of a text that is computed beside it, and goes on."""
    decoder = llama(max_tokens_per_step=32, overlap_steps=overlap)
    dropped, kept = family(4, shared=90, seed=1), family(others, shared=90, seed=2)
    decoder.add([*dropped, *kept])
    decoder.step()
    assert not decoder._scheduler._common._texts, "it takes several steps"
    decoder.drop(dropped)
    while decoder.has_work:
        decoder.step()
    assert all(prompt.is_finished for prompt in kept)
    assert not decoder._scheduler._common._texts
    assert decoder.pool.num_used == 0
