"""What of a schema a model cannot answer is known before its weights are read: it is what the engine refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpd_core import Attribute, CategorySchema, EngineConfig, PromptTemplate, Record
from hpd_core.errors import ModelError
from hpd_core.requests.prompt_builder import PromptBuilder
from hpd_core.requests.schema_room import SchemaRoom
from tests.tables import table
from tests.tiny_model import build_tokenizer, sentencepiece_tokenizer

MEMBERS = tuple(f"Home > Leaf {number}" for number in range(400))


def attribute(name: str, **options: Any) -> Attribute:
    return Attribute(name=name, **options)


def schema(*attributes: Attribute) -> CategorySchema:
    return CategorySchema(category="Mugs", attributes=attributes)


LARGE_ENUM = schema(attribute("Brand"), attribute("Leaf", type="enum", values=MEMBERS))


def problems(asked: CategorySchema, max_positions: int | None = 2048, decoding: Any = "hpd", **options: Any) -> Any:
    return list(SchemaRoom(build_tokenizer(), EngineConfig(**options), max_positions, decoding).problems(asked))


def test_a_schema_of_ordinary_size_has_none() -> None:
    ordinary = schema(*(attribute(f"Attribute {n}", description="what it is") for n in range(12)))
    for options in ({}, {"layout": "stacked"}, {"decoding": "ar"}):
        assert not problems(ordinary, 4096, **options)


def test_an_enum_that_fills_the_context() -> None:
    all_listed = {"prompt": PromptTemplate(max_listed_values=400)}
    (problem,) = problems(LARGE_ENUM, **all_listed)
    assert problem.is_fatal
    text = str(problem)
    assert text.startswith("category 'Mugs': its 2 attributes take ")
    assert "of the model's 2,048 positions and leave none for a product's text. 'Leaf' alone takes " in text
    assert text.endswith(
        "400 values: lower engine.prompt.max_listed_values, so that they are not listed, or allow fewer values"
    )
    assert not problems(LARGE_ENUM), "as a rule so many are not listed"
    assert not problems(LARGE_ENUM, None, **all_listed), "a model that does not say how long its context is"


def test_a_description_that_fills_the_context() -> None:
    (problem,) = problems(schema(attribute("A", description="light and soft, red 42 " * 400), attribute("B")))
    assert problem.is_fatal
    assert "'A' alone takes" in problem.message
    assert "its name and description: shorten them" in problem.message


def test_many_attributes_that_fill_the_context() -> None:
    (problem,) = problems(schema(*(attribute(f"Attribute number {n}") for n in range(400))))
    assert "its 400 attributes take" in problem.message
    assert problem.message.endswith(
        "Ask for fewer of them, shorten descriptions and lists of values, or take a longer context"
    )


@table("options", [{"layout": "stacked"}, {"decoding": "ar"}])
def test_values_that_stand_in_a_row_take_positions_each(options: Any) -> None:
    asked = schema(*(attribute(f"A{n}") for n in range(40)))
    assert not problems(asked, max_value_tokens=60)
    (problem,) = problems(asked, max_value_tokens=60, **options)
    assert problem.is_fatal
    assert "2,400 of them are kept for values (max_value_tokens each): lower max_value_tokens" in problem.message


@table("layout", ["tree", "stacked"])
def test_it_says_what_the_engine_does(layout: Any) -> None:
    """With one position more than it says that the schema takes, an empty text is taken; with as many it is not."""
    asked = schema(*(attribute(f"Attribute number {n}") for n in range(20)))
    config, tokenizer = EngineConfig(layout=layout), build_tokenizer()
    room = SchemaRoom(tokenizer, config, 10_000)
    needed = room._needed(room._builder.category_tokens(asked))
    for positions, is_taken in ((needed, True), (needed - 1, False)):
        builder = PromptBuilder(tokenizer, config, positions)
        prompts, refusals = builder.build([Record("1", "Mugs", {"title": ""})], {"Mugs": asked})
        assert (bool(prompts), bool(refusals)) == (is_taken, not is_taken)
        if not is_taken:
            assert refusals[0].message.startswith(f"the category's attributes alone take {needed} of the model's")
        (problem,) = problems(asked, positions, layout=layout)
        assert problem.is_fatal
    (problem,) = problems(asked, needed + 20, layout=layout)
    assert not problem.is_fatal
    assert "and leave 20 for a product's text" in problem.message


def test_a_member_that_is_longer_than_a_value_may_be_can_never_be_answered() -> None:
    long = "a very long member of an enum with many words"
    asked = schema(attribute("Kind", type="enum", values=("red", long), max_value_tokens=12))
    (problem,) = problems(asked)
    assert not problem.is_fatal
    assert "attribute 'Kind': 1 of its 2 values have more tokens than a value may have (12)" in problem.message
    size = int(problem.message.split("takes ")[1].split(".")[0])
    assert not problems(schema(attribute("Kind", type="enum", values=("red", long), max_value_tokens=size)))
    assert problems(schema(attribute("Kind", type="enum", values=("red", long), max_value_tokens=size - 1)))


def test_null_has_to_fit_too() -> None:
    room = SchemaRoom(sentencepiece_tokenizer(), EngineConfig(), 2048)
    assert not list(room.problems(schema(attribute("A", max_value_tokens=3))))
    (problem,) = room.problems(schema(attribute("A", max_value_tokens=2)))
    assert problem.message == "attribute 'A': max_value_tokens is 2, null alone takes 3: raise it"


def test_names_that_the_tokenizer_takes_for_commands_are_told() -> None:
    tokenizer = build_tokenizer()
    tokenizer.add_tokens(["§"], special_tokens=True)
    room = SchemaRoom(tokenizer, EngineConfig(), 2048)
    (problem,) = room.problems(schema(attribute("§ 1")))
    assert problem.is_fatal
    assert "control tokens of the schema's text" in problem.message


def test_it_needs_no_weights(tiny_model_dir: Path) -> None:
    config = EngineConfig(prompt=PromptTemplate(max_listed_values=400))
    room = SchemaRoom.from_pretrained(str(tiny_model_dir), config)
    (problem,) = room.problems(LARGE_ENUM)
    assert "2,048 positions" in problem.message
    with pytest.raises(ModelError, match="no-model"):
        SchemaRoom.from_pretrained("./no-model", EngineConfig())
