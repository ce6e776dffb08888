"""Training examples: prompts as the engine builds them, with answers as the engine would read them."""

from __future__ import annotations

from typing import Any

import pytest

from hpd_core import Attribute, CategorySchema, DocumentTokenizer, EngineConfig, PromptTemplate, Record
from hpd_core.requests.prompt_builder import PromptBuilder
from hpd_core.text.values import parse_value
from hpd_core.training.examples import IGNORED, Example, ExampleBuilder, LabelledDocument, TrainedLayout
from tests.tables import table
from tests.tiny_model import build_tokenizer

SCHEMA = CategorySchema(
    category="Shoes",
    attributes=(
        Attribute(name="Brand"),
        Attribute(name="Size", type="number"),
        Attribute(name="Colour", multiple=True),
        Attribute(name="Vegan", type="boolean"),
    ),
)
RECORDS = [Record(str(n), "Shoes", {"title": f"Velor shoe {n}", "text": "red"}) for n in range(3)]
ANSWERS: dict[str, Any] = {"Brand": ["Velor"], "Size": ["42"], "Colour": ["red", "blue"], "Vegan": None}
CONFIG = EngineConfig(max_value_tokens=40, stack_size=3)
SHORT = CONFIG.model_copy(update={"prompt": PromptTemplate(keys="short")})


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build_tokenizer()


def documents(tokenizer: Any, *answers: dict[str, Any]) -> list[LabelledDocument]:
    ids = DocumentTokenizer(tokenizer).encode(RECORDS[: len(answers)])
    return [LabelledDocument(document, answer) for document, answer in zip(ids, answers, strict=True)]


def build(tokenizer: Any, layout: TrainedLayout, *answers: dict[str, Any], config: EngineConfig = CONFIG) -> Example:
    builder = ExampleBuilder(tokenizer, config, layout, 4096)
    example = builder.build(SCHEMA, documents(tokenizer, *answers))
    assert example is not None
    return example


def learned(tokenizer: Any, example: Example) -> str:
    return str(tokenizer.decode(example.filled.labels[example.filled.labels != IGNORED]))


@table("config", [CONFIG, SHORT])
@table("layout", ["tree", "stacked"])
def test_the_prompt_is_the_engines(tokenizer: Any, layout: TrainedLayout, config: EngineConfig) -> None:
    """Token for token, position for position: what the engine would prefill."""
    count = 3 if layout == "stacked" else 1
    example = build(tokenizer, layout, *[ANSWERS] * count, config=config)
    engine = PromptBuilder(tokenizer, config.model_copy(update={"layout": layout}), 4096)
    (prepared,), _ = engine.build(RECORDS[:count], {"Shoes": SCHEMA})
    size = prepared.layout.num_tokens
    for name in ("token_ids", "positions", "scopes"):
        expected = getattr(prepared.layout, name).tolist()
        assert getattr(example.filled, name)[:size].tolist() == expected
    assert example.num_prefix_tokens == prepared.layout.num_prefix_tokens
    assert example.num_documents == count


@table("config", [CONFIG, SHORT])
def test_the_autoregressive_prompt_is_the_baselines(tokenizer: Any, config: EngineConfig) -> None:
    """Token for token what `generate` is given; everything behind it is to be learned."""
    example = build(tokenizer, "ar", ANSWERS, config=config)
    baseline = PromptBuilder(tokenizer, config.autoregressive(), 4096)
    (prepared,), _ = baseline.build(RECORDS[:1], {"Shoes": SCHEMA})
    asked = prepared.layout.trunk.tolist()
    assert example.filled.token_ids[: len(asked)].tolist() == asked
    labels = example.filled.labels
    assert (labels[: len(asked) - 1] == IGNORED).all()
    assert (labels[len(asked) - 1 :] != IGNORED).all()


@table("layout", ["tree", "stacked"])
def test_every_answer_stands_at_its_own_document_and_key(tokenizer: Any, layout: TrainedLayout) -> None:
    """Following the labels from the end of a key gives the answer that the engine would read for that slot."""
    count = 3 if layout == "stacked" else 1
    answers = [
        {"Brand": [f"Velor{n}"], "Size": [str(40 + n)], "Colour": ["red", f"blue{n}"], "Vegan": ["true"]}
        for n in range(count)
    ]
    example = build(tokenizer, layout, *answers)
    engine = PromptBuilder(tokenizer, CONFIG.model_copy(update={"layout": layout}), 4096)
    (prepared,), _ = engine.build(RECORDS[:count], {"Shoes": SCHEMA})
    filled, size = example.filled, prepared.layout.num_tokens
    next_value = size
    for slot, end in zip(prepared.slots, prepared.layout.ends, strict=True):
        ids = [int(filled.labels[end])]
        while "\n" not in tokenizer.decode([ids[-1]]):
            assert filled.token_ids[next_value] == ids[-1]
            ids.append(int(filled.labels[next_value]))
            next_value += 1
        attribute = SCHEMA.attributes[slot.branch]
        value = parse_value(attribute, tokenizer.decode(ids), closed=True)
        assert list(value.items) == answers[slot.trunk][attribute.name]
    assert next_value == len(filled.token_ids)


@table("layout", ["tree", "stacked", "ar"])
def test_what_is_not_taught_is_not_learned(tokenizer: Any, layout: TrainedLayout) -> None:
    example = build(tokenizer, layout, {"Brand": ["Velor"]})
    text = learned(tokenizer, example)
    if layout == "ar":
        assert text == '"Brand": "Velor",\n"Size":"Colour":"Vegan":}<|im_end|>', "keys are learned, their values not"
    else:
        assert text == ' "Velor",\n'


def test_what_cannot_be_an_example(tokenizer: Any) -> None:
    tree = ExampleBuilder(tokenizer, CONFIG, "tree", 4096)
    with pytest.raises(ValueError, match="takes one"):
        tree.build(SCHEMA, documents(tokenizer, ANSWERS, ANSWERS))
    with pytest.raises(ValueError, match="no attribute is taught"):
        tree.build(SCHEMA, documents(tokenizer, {}))
    short = ExampleBuilder(tokenizer, EngineConfig(max_value_tokens=1), "tree", 4096)
    with pytest.raises(ValueError, match="tokens where"):
        short.build(SCHEMA, documents(tokenizer, ANSWERS))
    assert ExampleBuilder(tokenizer, CONFIG, "tree", 20).build(SCHEMA, documents(tokenizer, ANSWERS)) is None
