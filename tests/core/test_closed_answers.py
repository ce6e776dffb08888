"""Closed answers are chosen exactly: the engine's member is the one that a forward for each of them finds likeliest."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from hpd_core import AutoregressiveBaseline, CategorySchema, Engine, ModelError, Record
from hpd_core.config import EngineConfig
from hpd_core.layout import Branch, Members
from hpd_core.models.loading import load_model, load_tokenizer
from hpd_core.requests.prompt_builder import PromptBuilder
from tests.tables import table

from .constrained import likeliest_answer
from .engines import answers, config
from .families import build_model
from .helpers import ROOTS, TreeCase, assert_equals_oracle, decode, random_endings, random_ids
from .native import WAYS
from .products import products


def closed_cases(count: int, max_fed: int | None = None, seed: int = 0) -> list[TreeCase]:
    """Prompts whose values are nearly all chosen among members."""
    rng = np.random.default_rng(seed)
    prefixes = [random_ids(rng, 5, 9), random_ids(rng, 2, 4)]
    cases = []
    for _ in range(count):
        branches = [Branch(random_ids(rng, 1, 4), 6)]
        for root in rng.choice(list(ROOTS), 4).tolist():
            num_nodes = ROOTS[root][1]
            most = num_nodes - 1 if max_fed is None else min(max_fed, num_nodes - 1)
            branches.append(Branch(random_ids(rng, 1, 4), 6, members=Members(root, num_nodes, most)))
        cases.append(TreeCase(prefixes[int(rng.integers(2))], random_ids(rng, 1, 25), branches))
    return cases


SCHEDULES: list[dict[str, Any]] = [
    {},
    {"max_tokens_per_step": 1, "max_prompts_per_cohort": 3},
    {"max_tokens_per_step": 60, "max_prompts_per_cohort": 6, "overlap_steps": True},
    {"max_tokens_per_step": 300, "max_prompts_per_cohort": 8},
    {"max_tokens_per_step": 120, "max_cached_tokens": 1},
]


@pytest.mark.parametrize(
    ("way", "settings"),
    [
        # Each schedule by the first way, each way by one schedule; make test-all has every pair.
        pytest.param(way, settings, marks=() if way == WAYS[0] or number == 2 else pytest.mark.full)
        for way in WAYS
        for number, settings in enumerate(SCHEDULES)
    ],
)
@pytest.mark.usefixtures("poison")
def test_every_schedule_and_way_to_attend(way: str, settings: dict[str, Any]) -> None:
    """Values begin in different steps of a prefill, wait for room, and move along when cohorts shrink or merge."""
    cases, endings = closed_cases(24), random_endings(np.random.default_rng(0), 0.03)
    prompts = decode(build_model("llama"), cases, endings, EngineConfig(attention=way, **settings))
    oracle = build_model("llama")
    for case, prompt in list(zip(cases, prompts, strict=True))[::4]:
        assert_equals_oracle(oracle, case, prompt, endings)


# The engine, from text to value.

CLOSED = CategorySchema.model_validate(
    {
        "category": "Shoes",
        "attributes": [
            {"name": "Brand"},
            {"name": "Size", "type": "number"},
            {"name": "Vegan", "type": "boolean"},
            {
                "name": "Colour",
                "type": "enum",
                "values": ["red", "light", "light tan", 'a 5" one', "größe ☕", "null"],
            },
            {
                "name": "Kind",
                "type": "enum",
                "values": [
                    {"label": "running", "synonyms": ["jogging", "red"]},
                    {"label": "soft", "synonyms": ["red"]},
                ],
            },
            {"name": "Tags", "type": "enum", "values": ["red", "soft"], "multiple": True},
        ],
    }
)
SCHEMAS = {"Shoes": CLOSED}


def shoes(count: int) -> list[Record]:
    return [Record(record.id, "Shoes", record.fields) for record in products(count)]


@table("threshold", [None, 0.15])
def test_answers_are_the_likeliest_and_say_how_sure_they_are(threshold: float | None, tiny_model_dir: Path) -> None:
    """Against a forward for each member, of the prompts that the engine has."""
    settings = config(answer_threshold=threshold)
    records = shoes(5)
    tokenizer, oracle = load_tokenizer(str(tiny_model_dir), settings), load_model(str(tiny_model_dir), settings)
    prepared, _ = PromptBuilder(tokenizer, settings, None).build(records, SCHEMAS)
    with Engine.from_pretrained(str(tiny_model_dir), settings) as engine:
        results, endings = engine.extract(records, SCHEMAS), engine.endings
    for item in prepared:
        layout = item.layout
        for number, attribute in enumerate(CLOSED.attributes):
            value = results[item.slots[0].trunk].values[attribute.name]
            if not attribute.is_closed and threshold is not None:
                continue
            if not attribute.is_closed:
                assert (value.choice, value.margin) == ("greedy" if attribute.multiple else None, None)
                assert value.logprob_mean is not None
                assert value.probability == pytest.approx(math.exp(value.num_tokens * value.logprob_mean))
                continue
            chain = layout.token_ids[(layout.scopes < 0) | (layout.scopes == number)].tolist()
            answer = likeliest_answer(oracle, chain, attribute, tokenizer, endings, threshold=threshold)
            text = tokenizer.decode(answer.tokens, clean_up_tokenization_spaces=False).split("\n")[0]
            assert (value.raw, value.num_tokens) == (text, len(answer.tokens))
            assert value.logprob_min == pytest.approx(min(answer.logprobs), abs=2e-3)
            assert (value.text, value.choice) == (answer.member, "scored")
            assert value.status == ("absent" if answer.member is None else "value")
            assert value.probability == pytest.approx(answer.share, abs=0.012)
            assert value.margin is not None


@table("options", [{}, {"constrain_values": False}, {"layout": "stacked"}])
def test_what_is_decoded_below_the_threshold_is_null(options: dict[str, Any], tiny_model_dir: Path) -> None:
    records, schemas = shoes(6), SCHEMAS
    with Engine.from_pretrained(str(tiny_model_dir), config(**options)) as engine:
        plain = engine.extract(records, schemas)
    decoded = [value for result in plain for value in result.values.values() if value.choice != "scored"]
    known = sorted(value.probability for value in decoded if value.probability is not None)
    threshold = known[len(known) // 2]
    with Engine.from_pretrained(str(tiny_model_dir), config(**options, answer_threshold=threshold)) as engine:
        found = engine.extract(records, schemas)
    dropped = 0
    for before, after in zip(plain, found, strict=True):
        for name, value in before.values.items():
            if value.choice == "scored":
                continue
            expected = value
            if value.status == "value" and (value.probability or 1) < threshold:
                expected = replace(value, probability=None, logprob_mean=None, logprob_min=None)
                expected = replace(expected, text=None, items=(), status="absent")
                dropped += 1
            assert after.values[name] == expected
    assert 0 < dropped < len(known)


def test_a_threshold_is_a_probability_and_not_for_the_baseline(tiny_model_dir: Path) -> None:
    for number in (0, 1, math.nan, "much"):
        with pytest.raises(ValidationError, match="answer_threshold"):
            EngineConfig.model_validate({"answer_threshold": number})
    with pytest.raises(ModelError, match="answer_threshold is for decoding with 'hpd'"):
        AutoregressiveBaseline.from_pretrained(str(tiny_model_dir), config(answer_threshold=0.4))


def test_members_may_be_longer_than_values(tiny_model_dir: Path) -> None:
    """They are known, so none is cut off."""
    long = "a colour of so many words that no value of eight tokens could hold it at all"
    schema = CategorySchema.model_validate(
        {"category": "Shoes", "attributes": [{"name": "Colour", "type": "enum", "values": [long, long + " or two"]}]}
    )
    with Engine.from_pretrained(str(tiny_model_dir), config(max_scored_tokens=100)) as engine:
        values = [result.values["Colour"] for result in engine.extract(shoes(8), {"Shoes": schema})]
    assert {value.status for value in values} <= {"value", "absent"}
    assert any(value.num_tokens > 8 for value in values)


@table("number", [math.nan, -math.inf])
@table("options", [{}, {"max_scored_tokens": 0}])
@pytest.mark.filterwarnings("error")
def test_a_model_whose_numbers_are_none_answers_nothing(
    number: float, options: dict[str, Any], tiny_model_dir: Path
) -> None:
    """What a text's token makes of the model is an error of the records that have it, and of no other."""
    settings = config(**options)
    model, tokenizer = load_model(str(tiny_model_dir), settings), load_tokenizer(str(tiny_model_dir), settings)
    records = [*shoes(4), Record("broken", "Shoes", {"title": "a shoe яя"}), Record("too", "Shoes", {"title": "я"})]
    with Engine(model, tokenizer, settings) as engine:
        whole = engine.extract(records, SCHEMAS)
    model.get_input_embeddings().weight.data[tokenizer("я")["input_ids"]] = number
    with Engine(model, tokenizer, settings) as engine:
        future = engine.submit(records, SCHEMAS)
        broken = future.result()
    assert answers(broken[:4]) == answers(whole[:4])
    for result in broken[4:]:
        assert result.error_code == "engine"
        assert "not finite" in (result.error or "")
        for value in result.values.values():
            assert (value.status, value.text, value.probability, value.logprob_mean) == ("error", None, None, None)
    assert future.metrics.num_errors == 2
