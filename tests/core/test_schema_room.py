"""What of a schema a model cannot answer is known before its weights are read: it is what the engine refuses."""

from __future__ import annotations

from typing import Any

from hpd_core import Attribute, CategorySchema, EngineConfig, Record
from hpd_core.requests.prompt_builder import PromptBuilder
from hpd_core.requests.schema_room import SchemaRoom
from tests.tables import table
from tests.tiny_model import build_tokenizer


def attribute(name: str, **options: Any) -> Attribute:
    return Attribute(name=name, **options)


def schema(*attributes: Attribute) -> CategorySchema:
    return CategorySchema(category="Mugs", attributes=attributes)


def problems(asked: CategorySchema, max_positions: int | None = 2048, decoding: Any = "hpd", **options: Any) -> Any:
    return list(SchemaRoom(build_tokenizer(), EngineConfig(**options), max_positions, decoding).problems(asked))


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
