"""The engine without a model: it behaves like one, and nobody can take its answers for a model's."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpd_core import Attribute, CategorySchema, EngineError, ErrorCode, ModelError, NullEngine, Record

SCHEMA = CategorySchema(
    category="Shoes",
    attributes=(
        Attribute(name="Brand"),
        Attribute(name="Colour", type="enum", values=("red", "blue")),
        Attribute(name="Weight", type="number", unit="g"),
        Attribute(name="Waterproof", type="boolean"),
        Attribute(name="Sizes", multiple=True),
    ),
)
SCHEMAS = {"Shoes": SCHEMA}


def records(count: int) -> list[Record]:
    return [
        Record(
            f"p{i}",
            "Shoes",
            {"title": f"Velor running shoe no. {i}", "text": f"Red, {i * 7} g.\nSizes 4{i % 9} and 38"},
        )
        for i in range(count)
    ]


def test_an_answer_depends_on_the_record_and_the_attribute_alone(tiny_model_dir: Path) -> None:
    given = records(20)
    with NullEngine.from_pretrained(str(tiny_model_dir)) as engine:
        together = engine.extract(given, SCHEMAS)
        alone = [engine.extract([record], SCHEMAS)[0] for record in reversed(given)][::-1]
        some = engine.extract(given, SCHEMAS, wanted=[["Weight"]] * len(given))
    assert together == alone
    assert [result.values for result in some] == [{"Weight": result.values["Weight"]} for result in together]
    assert len({str(result.values) for result in together}) == len(given)


def test_rows_in_are_rows_out_and_metrics_count_them(tiny_model_dir: Path) -> None:
    given = [*records(2), Record("x", "Hats", {"title": "a"}), Record("y", "Shoes", {"title": "half \ud83d"})]
    with NullEngine.from_pretrained(str(tiny_model_dir)) as engine:
        future = engine.submit(given, SCHEMAS)
        results = future.result()
    assert [result.error_code for result in results] == [None, None, ErrorCode.NO_SCHEMA, ErrorCode.NOT_TEXT]
    assert (future.metrics.num_records, future.metrics.num_errors) == (4, 2)
    assert future.metrics.document_tokens > 0
    assert future.metrics.value_tokens > 0


def test_it_says_that_its_answers_are_made_up(tiny_model_dir: Path) -> None:
    with NullEngine.from_pretrained(str(tiny_model_dir)) as engine:
        found = engine.describe()
    assert found["decoding"] == found["layout"] == "made-up"
    assert found["model_id"].startswith("made-up")
    assert found["model_revision"] is None
    assert "made up" in found["notes"][0]


def test_wrong_use_is_refused_as_by_the_engine(tiny_model_dir: Path) -> None:
    engine = NullEngine.from_pretrained(str(tiny_model_dir))
    with pytest.raises(ValueError, match="2 document_ids for 1 records"):
        engine.submit(records(1), SCHEMAS, document_ids=[[1], [2]])
    with pytest.raises(ValueError, match="wanted are"):
        engine.extract(records(1), SCHEMAS, wanted=[["Smell"]])
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.submit(records(1), SCHEMAS)
    with pytest.raises(ModelError):
        NullEngine.from_pretrained("/no/such/folder")
