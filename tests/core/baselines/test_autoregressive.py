"""The autoregressive baseline: the same prompts and records, an answer that the model writes alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from hpd_core import (
    Attribute,
    AutoregressiveBaseline,
    CategorySchema,
    EngineConfig,
    ErrorCode,
    ExtractionMetrics,
    Record,
    Value,
)
from tests.core.products import SCHEMAS, products
from tests.tables import table
from tests.tiny_model import answering_model, answering_tokenizer

CONFIG = EngineConfig(device="cpu", dtype="float32", max_value_tokens=8)
SCHEMA = CategorySchema(
    category="c", attributes=(Attribute(name="Brand"), Attribute(name="Size", type="number"), Attribute(name='5" x'))
)
END = "<|im_end|>"


class Script:
    """Stands in for `generate`: writes, for the prompt that holds a given word, a given text."""

    def __init__(self, texts: dict[str, str], tokenizer: Any) -> None:
        self.texts, self.tokenizer = texts, tokenizer
        self.calls: list[dict[str, Any]] = []

    def __call__(self, **options: Any) -> torch.Tensor:
        self.calls.append(options)
        ids, (end,) = options["input_ids"], options["eos_token_id"]
        prompts = self.tokenizer.batch_decode(ids)
        scripts = [self._ids(prompt) for prompt in prompts]
        done = torch.zeros(len(ids), dtype=torch.bool)
        for step in range(options["max_new_tokens"]):
            column = [script[step] if step < len(script) else 5 for script in scripts]
            column = [options["pad_token_id"] if done[row] else token for row, token in enumerate(column)]
            ids = torch.cat([ids, torch.tensor(column)[:, None]], dim=1)
            done = done | (ids[:, -1] == end) | options["stopping_criteria"](ids, None)
            if done.all():
                break
        return ids

    def _ids(self, prompt: str) -> list[int]:
        text = next(text for word, text in self.texts.items() if word in prompt)
        return [index for character in text.split(END) for index in self._plain(character)]

    def _plain(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"] if text else []


@pytest.fixture
def baseline() -> Iterator[AutoregressiveBaseline]:
    tokenizer = answering_tokenizer()
    with AutoregressiveBaseline(answering_model(tokenizer), tokenizer, CONFIG) as baseline:
        yield baseline


def extract(
    baseline: AutoregressiveBaseline, texts: dict[str, str], *, ended: bool = False
) -> tuple[dict[str, dict[str, Value]], ExtractionMetrics, Script]:
    """What is read when the model writes `texts`, by the word of each record."""
    script = Script(texts, baseline._segments.tokenizer)
    if ended:
        script._ids = lambda prompt: [*Script._ids(script, prompt), 2]  # type: ignore[method-assign]
    baseline._weights.model.generate = script
    records = [Record(word, "c", {"t": f"{word} " * (n + 1)}) for n, word in enumerate(texts)]
    future = baseline.submit(records, {"c": SCHEMA})
    results = future.result(60)
    assert [result.id for result in results] == list(texts)
    return {result.id: dict(result.values) for result in results}, future.metrics, script


def one(baseline: AutoregressiveBaseline, text: str, *, ended: bool = False) -> dict[str, tuple[str, str | None]]:
    values = extract(baseline, {"solo": text}, ended=ended)[0]["solo"]
    assert list(values) == ["Brand", "Size", '5" x']
    return {name: (value.status, value.text) for name, value in values.items()}


@table("wish", [{"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 2}, {"num_beams": 3}])
def test_it_is_greedy_whatever_a_checkpoint_wishes_of_chats(wish: dict[str, Any]) -> None:
    """A penalty for repetition would forbid to copy values out of the text."""
    tokenizer = answering_tokenizer()
    written = []
    for wishes in ({}, wish):
        model = answering_model(tokenizer)
        model.generation_config.update(**wishes)
        with AutoregressiveBaseline(model, tokenizer, CONFIG) as baseline:
            generate, found = model.generate, []

            def keeping(generate: Any = generate, found: list[Any] = found, **options: Any) -> Any:
                found.append(generate(**options))
                return found[-1]

            model.generate = keeping
            baseline.extract(products(3), SCHEMAS)
        assert model.generation_config.to_diff_dict().items() >= wishes.items()  # by which it ends, and is saved
        written.append([ids.tolist() for ids in found])
    assert written[0] == written[1]


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_keys_may_come_in_any_order_and_indented(baseline: AutoregressiveBaseline, order: list[int]) -> None:
    lines = ['  "Brand" : "Nike",', '"Size":42,', '\t"5\\" x": "a: b",']
    found = one(baseline, "\n".join(lines[index] for index in order) + "\n}\n")
    assert found == {"Brand": ("value", "Nike"), "Size": ("value", "42"), '5" x': ("value", "a: b")}


def test_the_first_of_two_equal_keys_wins(baseline: AutoregressiveBaseline) -> None:
    found = one(baseline, '"Brand": "Nike",\n"Brand": "Puma",\n"Size": "large",\n"Size": 42,\n}\n')
    assert found["Brand"] == ("value", "Nike")
    assert found["Size"] == ("invalid", None), "and it wins even if it is worse"


def test_a_cut_answer_is_truncated_in_its_last_line_only(baseline: AutoregressiveBaseline) -> None:
    found = one(baseline, '"Brand": "Nike",\n"Size": 42' + " " * 400)
    assert found == {"Brand": ("value", "Nike"), "Size": ("truncated", None), '5" x': ("invalid", None)}


def test_rows_of_a_batch_stop_on_their_own(baseline: AutoregressiveBaseline) -> None:
    texts = {
        "alpha": '"Brand": "A",\n}\n"Brand": "late",\n"Size": 7,\n',
        "bravo": '"Size": 1,\n"Brand": "B, but later",\n"5\\" x": "more",\n}\n',
    }
    values, metrics, script = extract(baseline, texts)
    assert len(script.calls) == 1
    assert (values["alpha"]["Brand"].text, values["alpha"]["Size"].status) == ("A", "invalid")
    assert (values["bravo"]["Brand"].text, values["bravo"]["Size"].text) == ("B, but later", "1")
    assert metrics.value_tokens < 2 * metrics.num_steps


def generated(baseline: AutoregressiveBaseline, records: list[Record]) -> list[list[int]]:
    """The ids that the model writes, in the order of the prompts' lengths."""
    found: list[list[int]] = []
    generate = baseline._generate

    def keeping(*arguments: Any) -> list[tuple[list[int], bool]]:
        rows = generate(*arguments)
        found.extend(ids for ids, _ in rows)
        return rows

    baseline._generate = keeping  # type: ignore[method-assign]
    results = baseline.extract(records, SCHEMAS)
    del baseline._generate
    assert [result.id for result in results] == [record.id for record in records]
    return found


def test_padding_does_not_change_an_answer(baseline: AutoregressiveBaseline) -> None:
    """The first tokens, before a random model's fp32 noise can flip a near-tie, must be equal for all."""
    records = [record for record in products(20) if record.category == "Shoes"]
    together = generated(baseline, records)
    baseline._limits = replace(limits := baseline.limits, max_prompts_per_cohort=1)
    alone = generated(baseline, records)
    baseline._limits = limits
    assert [ids[:4] for ids in together] == [ids[:4] for ids in alone]
    equal = sum(a == b for a, b in zip(together, alone, strict=True))
    assert equal >= len(records) - 1
    assert len({tuple(ids) for ids in alone}) > 8


def test_rows_in_are_rows_out(baseline: AutoregressiveBaseline) -> None:
    records = [*products(4), Record("tea", "Tea", {}), Record("0", "Shoes", {"t": "x " * 3000}), *products(2)]
    results = baseline.extract(records, SCHEMAS)
    assert [result.id for result in results] == [record.id for record in records]
    assert [result.error_code for result in results[4:6]] == [ErrorCode.NO_SCHEMA, ErrorCode.TOO_LONG]
    assert {value.status for value in results[5].values.values()} == {"error"}
    for result in [*results[:4], *results[6:]]:
        assert list(result.values) == [attribute.name for attribute in SCHEMAS[result.category].attributes]


def test_keys_that_the_model_spells_its_own_way_count() -> None:
    schema = CategorySchema(
        category="Shoes",
        attributes=(Attribute(name="Shoe type"), Attribute(name="Colour"), Attribute(name="colour")),
    )
    tokenizer = answering_tokenizer()
    with AutoregressiveBaseline(answering_model(tokenizer), tokenizer, CONFIG) as baseline:
        text = '"shoe_type": "boot",\n"COLOUR": "red",\n"colour": "blue"\n}'
        values = baseline._values(schema, {}, tokenizer(text)["input_ids"], True)
    assert {name: value.text for name, value in values.items()} == {
        "Shoe type": "boot",
        "Colour": None,
        "colour": "blue",
    }
    assert values["Colour"].status == "invalid", "COLOUR may be either of two attributes"


def test_a_number_is_read_beside_the_records_text() -> None:
    schema = CategorySchema(category="Flour", attributes=(Attribute(name="Weight", type="number"),))
    tokenizer = answering_tokenizer()
    with AutoregressiveBaseline(answering_model(tokenizer), tokenizer, CONFIG) as baseline:
        ids = tokenizer('"Weight": 1.500,\n}')["input_ids"]
        texts = ("net weight 1,500 g", "weighs 1.5 g")
        found = [baseline._values(schema, {"title": text}, ids, True)["Weight"].text for text in texts]
    assert found == ["1500", "1.500"]
