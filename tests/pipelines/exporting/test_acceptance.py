"""Which answers are taken where a run has decided, and where it has not."""

from __future__ import annotations

import csv
from pathlib import Path

import duckdb
import pyarrow as pa

from hpd_core import Attribute, CategorySchema
from pipelines.exporting.answers import FOR_REVIEW, LOW_LOGPROB, NO_CONFIDENCE, PART, UNCHECKED, ExportAcceptance
from tests.pipelines.evaluating.made_runs import Row
from tests.pipelines.exporting.made_runs import exported, write_shop_run
from tests.tables import table


def answers(
    decision: str | None, confidence: float | None, logprob: float | None = -0.1, probability: float | None = None
) -> pa.Table:
    columns = {"category": "Shoes", "attribute": "Brand", "status": "value", "norm_status": "ok", "source": "model"}
    said = {"logprob_mean": logprob, "probability": probability, "confidence": confidence}
    schema = {**dict.fromkeys(columns, pa.string()), **dict.fromkeys(said, pa.float64()), "num_tokens": pa.int32()}
    rows = [columns | said | {"num_tokens": 2, "decision": decision}]
    return pa.Table.from_pylist(rows, pa.schema(schema | {"decision": pa.string()}))


def reasons(acceptance: ExportAcceptance, attributes: pa.Table) -> list[str | None]:
    with duckdb.connect() as database:
        database.execute("create table plain (category varchar, attribute varchar)")
        database.register("attributes", attributes)
        return [reason for (reason,) in database.execute(f"select {acceptance.sql()} from attributes").fetchall()]


def test_a_value_without_a_decision_is_for_review_in_a_run_that_has_decided() -> None:
    assert reasons(ExportAcceptance({}), answers(None, None)) == [None]
    assert reasons(ExportAcceptance({}, has_decided=True), answers(None, None)) == [FOR_REVIEW]
    assert reasons(ExportAcceptance({}, has_decided=True), answers("accept", None)) == [None]


def test_where_nothing_was_decided_a_value_needs_a_probability() -> None:
    """A calibrated one or, without a calibration, that of its tokens."""

    others = (
        ExportAcceptance({}, takes_review=True),
        ExportAcceptance({}, min_logprob=-5),
        ExportAcceptance({}, min_confidence=0),
    )
    scored = answers(None, None, -0.01, 0.55), answers(None, None, -3.0, 0.98)  # a share of several answers
    assert [reasons(ExportAcceptance({}), each) for each in scored] == [[UNCHECKED], [None]]
    for confidence, logprob, reason in (
        (0.79, -0.01, UNCHECKED),
        (0.81, -3.0, None),
        (None, -3.0, UNCHECKED),
        (None, -0.1, None),
        (None, -0.2, UNCHECKED),  # 0.67 of two tokens
        (None, None, None),
    ):
        found = answers(None, confidence, logprob)
        assert reasons(ExportAcceptance({}), found) == [reason]
        for each in others:
            assert reasons(each, found)[0] in (None, NO_CONFIDENCE, LOW_LOGPROB)


def test_a_value_of_the_shop_itself_needs_no_confidence() -> None:
    copied = answers("accept", None, None)
    copied = copied.set_column(copied.column_names.index("source"), "source", pa.array(["column"]))
    for acceptance in (ExportAcceptance({}, min_confidence=0.5), ExportAcceptance({}, min_logprob=-0.5)):
        assert reasons(acceptance, copied) == [None]


SIZES = Attribute.model_validate({"name": "Sizes", "type": "number", "unit": "cm", "multiple": True})


@table(
    ("to", "cell"),
    [
        ("shopify", '{"value": 30, "unit": "cm"}'),
        ("google", ":Sizes:30 cm"),
        ("akeneo", "30"),
    ],
)
def test_a_shop_gets_no_part_of_a_list(tmp_path: Path, to: str, cell: str) -> None:
    """Of "10 cm, 20 kg" it would get 10 cm, which is not what the product has."""
    id_column, other = {"shopify": ("Handle", "Title"), "google": ("id", "title"), "akeneo": ("sku", "family")}[to]
    between = ";" if to == "akeneo" else ","
    path = tmp_path / "shop.csv"
    path.write_text("".join(f"{one}{between}{two}\n" for one, two in ((id_column, other), ("a", "x"), ("b", "x"))))
    rows = [
        Row("a", {"Sizes": ["10", "20"], "Brand": "Acme"}, "Acme 10 cm, 20 kg", "A", 0),
        Row("b", {"Sizes": ["30"], "Brand": "Acme"}, "Acme 30 cm", "A", 1),
    ]
    schemas = {"A": CategorySchema(category="A", attributes=(SIZES, Attribute(name="Brand")))}
    uri = write_shop_run(tmp_path / "run", path, "csv", id_column, rows, schemas=schemas)
    result = exported(uri, "--to", to, "--out", str(tmp_path / "new.csv"))
    with open(tmp_path / "new.csv", encoding="utf-8", newline="") as file:
        found = {row[id_column]: row for row in csv.DictReader(file, delimiter=between)}
    column = next(name for name in found["b"] if name.lower().startswith(("sizes", "product_detail")))
    assert (found["a"][column], found["b"][column]) == ("", cell)
    assert result["left_out"] == {
        "conflict: the text has another unit, or another kind of value, than the attribute": 1,
        PART: 1,
    }
    assert result["values"] == 3
