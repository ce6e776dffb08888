"""The benchmark's made-up workloads are what their names promise, in tokens."""

from __future__ import annotations

from typing import Any

import pytest

from bench.workloads.workload import Workload
from hpd_core import Attribute, CategorySchema, EngineConfig, PromptTemplate
from hpd_core.models import loading
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.types import Record
from tests.tables import table
from tests.tiny_model import answering_model, build_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return loading.load_tokenizer("smollm2", EngineConfig())


@table("keys", ["full", "short"])
def test_who_decodes_values_apart_writes_nothing_behind_what_is_read(keys: Any) -> None:
    tokenizer = build_tokenizer()
    config = EngineConfig(prompt=PromptTemplate(keys=keys))
    shoes = CategorySchema(category="Shoes", attributes=(Attribute(name="Brand"), Attribute(name="Vegan")))
    records = [Record("0", "Shoes", {"t": "Velor"}), Record("1", "Shoes", {"t": "a shoe"})]
    workload = Workload.of_answers(tokenizer, {"Shoes": shoes}, records, [[["Velor"], None], [None, None]])
    value, null = map(len, SegmentTokenizer(tokenizer).encode_text([' "Velor",\n', " null,\n"]))
    assert null > 1
    assert workload.lengths == [[value, null], [null, null]]
    model_config = answering_model(tokenizer).config

    def lengths(layout: Any, changed: Workload = workload) -> list[list[int]]:
        made = config.model_copy(update={"layout": layout, "stack_size": 1})
        prepared = sorted(changed.prompts(model_config, made), key=lambda item: item.slots[0].trunk)
        return [item.layout.max_new_tokens.tolist() for item in prepared]

    own = value - 1  # the comma is the value's last token, not the newline
    assert workload.own_lengths == lengths("tree") == [[own, 1], [1, 1]]
    assert lengths("stacked") == workload.lengths
    whole_keys = sum(map(len, SegmentTokenizer(tokenizer).encode_text(['"Brand":', '"Vegan":'])))
    asked = {tuple(record.lengths): record.answer_length for record in workload.forced(model_config, config)}
    assert asked == {(own, 1): whole_keys + value + null + 1, (1, 1): whole_keys + 2 * null + 1}

    assert lengths("tree", workload.part([1])) == [[1, 1]]
    assert lengths("tree", workload.with_attributes(3)) == [[own, 1, own], [1, 1, 1]]
    assert lengths("tree", workload.with_values_of(4)) == [[4, 4], [4, 4]]
