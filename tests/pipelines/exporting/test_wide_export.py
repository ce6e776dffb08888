"""Wide tables: a row a product, whatever the kind of file; what is accepted, and what is counted instead."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpd_core import Attribute, CategorySchema
from pipelines.errors import UsageError
from pipelines.exporting import writers
from pipelines.exporting.wide_columns import wide_columns
from tests.pipelines.evaluating.made_runs import ABSENT, INVALID, Row
from tests.pipelines.exporting.made_runs import (
    BAG_TEXT,
    SCHEMAS,
    ask,
    bag,
    exported,
    read_wide,
    sheet,
    write_normalised_run,
)
from tests.tables import table

TEA = Row("t", {"Brand": "Tea & Co", "Notes": ["malt", "oak", "malt"]}, "Tea & Co malt oak", "Teas")
ROWS = [bag("b"), TEA, Row("dead", None, category="Bags"), bag("c", Color=["mauve"], Width=ABSENT, Lined=INVALID)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_normalised_run(tmp_path_factory.mktemp("wide") / "run", ROWS, shard_rows=2)


WIDTH = Attribute.model_validate({"name": "Width", "type": "number", "unit": "cm"})
WIDTHS = WIDTH.model_copy(update={"multiple": True})


def wide(folder: Path, rows: Sequence[Row], *attributes: Attribute, to: str = "jsonl", **others: Attribute) -> Any:
    """Of category "A", and what `others` has of further ones; the rows of the JSON Lines, or of the CSV."""
    asked = {"A": attributes} | {category: (attribute,) for category, attribute in others.items()}
    schemas = {category: CategorySchema(category=category, attributes=each) for category, each in asked.items()}
    kind, *options = to.split()
    uri = write_normalised_run(folder / "run", rows, schemas)
    (file,) = exported(uri, "--to", kind, "--out", str(folder / "out"), *options)["files"]
    with open(file, encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines)) if kind == "csv" else [json.loads(line) for line in lines]


def test_the_ends_of_ranges_of_a_list(tmp_path: Path) -> None:
    rows = [
        Row("a", {"Width": ["3 cm", "10-12 cm", "10-12 cm"]}, "3 cm 10-12 cm", "A"),
        Row("b", {"Width": ["3 cm", "4 cm"]}, "3 cm 4 cm", "A"),
    ]
    first, second = wide(tmp_path, rows, WIDTHS)
    assert (first["Width"], first["Width min"], first["Width max"]) == ([3, None], [None, 10], [None, 12])
    assert (second["Width"], second["Width min"], second["Width max"]) == ([3, 4], None, None)


@table("kind", ["jsonl", "csv"])
def test_only_what_is_normalised_has_a_unit(tmp_path: Path, kind: str) -> None:
    rows = [
        Row("a", {"Width": "14"}, "14 in black", "A"),
        Row("b", {"Width": "5"}, "5 kg", "A"),
        Row("c", {"Width": "5"}, "5 inches", "A"),
    ]
    found = wide(tmp_path, rows, WIDTH, to=f"{kind} --raw")
    assert [(row["Width"], row["Width unit"] or None) for row in found] == [("14", None), ("5", None), ("12.7", "cm")]


def test_numbers_of_one_text_and_two_units_are_two(tmp_path: Path) -> None:
    packs = Attribute(name="Packs", type="number", multiple=True)
    (found,) = wide(tmp_path, [Row("a", {"Packs": ["5 kg", "5 cm"]}, "5 kg 5 cm", "A")], packs, to="csv")
    assert (found["Packs"], found["Packs unit"]) == ("5; 5", "kg; cm")


@table("to", ["csv", "jsonl", "wide.parquet", "xlsx"])
def test_each_value_has_its_own_unit_where_one_category_asks_for_none(tmp_path: Path, to: str) -> None:
    """Whatever the other categories ask for: 9 kg are not 9 in."""
    sizes = Attribute(name="Sizes", type="number", multiple=True)
    in_cm = Attribute.model_validate({"name": "Sizes", "type": "number", "unit": "cm", "multiple": True})
    schemas = {name: CategorySchema(category=name, attributes=(each,)) for name, each in (("A", in_cm), ("B", sizes))}
    rows = [
        Row("a", {"Sizes": ["10", "20"]}, "10 cm 20 cm", "A"),
        Row("b", {"Sizes": ["5", "9"]}, "5 in and 9 kg", "B"),
    ]
    uri = write_normalised_run(tmp_path / "run", rows, schemas)
    (file,) = exported(uri, "--to", to, "--out", str(tmp_path / "out"))["files"]
    units = [row["Sizes unit"] for row in read_wide(file)]
    are_lists = to in ("jsonl", "wide.parquet")
    assert units == ([["cm", "cm"], ["in", "kg"]] if are_lists else ["cm; cm", "in; kg"])


@table("sizes", [["20", "10"], ["10", "20"]])
def test_a_value_of_a_person_without_a_unit_is_in_none(tmp_path: Path, sizes: list[str]) -> None:
    """One unit stands for a whole list only where each value is in it: the person's 10 are kilograms."""
    row = Row("a", {"Width": sizes}, "20 cm 10 kg", "A", reviewed=("Width",))
    (found,) = wide(tmp_path, [row], WIDTHS)
    assert (found["Width"], found["Width unit"]) == ([float(each) for each in sizes], None)


def parsed(cell: str, separator: str) -> list[str]:
    """The other way round: quotes begin a value or are none."""
    values = []
    while True:
        if cell.startswith('"'):
            found = re.match(r'"((?:[^"]|"")*)"', cell)
            assert found is not None
            values.append(found[1].replace('""', '"'))
            rest = cell[found.end() :]
        else:
            value, _, _ = cell.partition(separator)
            values.append(value)
            rest = cell[len(value) :]
        if not rest:
            return values
        assert rest.startswith(separator)
        cell = rest[len(separator) :]


@given(
    st.lists(st.text('ab;-| "\n', max_size=4), min_size=1, max_size=3), st.sampled_from(["; ", "--", " ", "|", " - "])
)
def test_every_list_is_a_cell_of_its_own(values: list[str], separator: str) -> None:
    lists = pa.array([None, ["x"], values, None], pa.list_(pa.string())).slice(2)
    cell, nothing = writers.in_one_cell(lists, separator).to_pylist()
    assert (parsed(cell, separator), nothing) == (values, None)


@table("kind", ["xlsx", "csv"])
def test_what_looks_like_a_formula_is_text(kind: str, tmp_path: Path) -> None:
    brands = ["=1+1", "+1", "-1", "@x", "http://x.y", "42", "plain"]
    rows = [Row(f"p{index}", {"Brand": brand}, brand, "Teas") for index, brand in enumerate(brands)]
    run = write_normalised_run(tmp_path / "run", rows)

    def read(*options: str) -> list[str]:
        out = tmp_path / f"wide.{kind}"
        exported(run, "--to", kind, "--out", str(out), "--force", *options)
        if kind == "xlsx":
            return [str(row[6]) for row in sheet(out)[1:]]
        with open(out, encoding="utf-8", newline="") as file:
            return [row["Brand"] for row in csv.DictReader(file)]

    assert read() == brands
    assert read("--guard-formulas") == ["'=1+1", "+1", "-1", "'@x", "http://x.y", "42", "plain"]


GUARDED = {"-5": "-5", "+5.5": "+5.5", "-.5": "-.5", "-1e3": "-1e3", "-2+3": "'-2+3", "-": "'-", "--5": "'--5"}


def test_negative_numbers_stay_numbers(tmp_path: Path) -> None:
    """A guard would make a text of each: -5 is no formula."""
    attributes = [Attribute(name="Temp", type="number"), Attribute(name="Note"), Attribute(name="=1+1")]
    rows = [
        Row(f"-{n}", {"Temp": "-5", "Note": raw, "=1+1": "x"}, "-5", "A") for n, (raw, _) in enumerate(GUARDED.items())
    ]
    found = wide(tmp_path, rows, *attributes, to="csv --guard-formulas")
    assert {(row["product_id"], row["Temp"], row["'=1+1"]) for row in found} == {
        (f"-{n}", "-5", "x") for n in range(len(rows))
    }
    assert [row["Note"] for row in found] == list(GUARDED.values())


@table("kind", ["xlsx", "csv"])
def test_names_of_columns_are_guarded_too(kind: str, tmp_path: Path) -> None:
    schemas = {"A": CategorySchema(category="A", attributes=(Attribute(name="=1+1"), Attribute(name="-x")))}
    uri = write_normalised_run(tmp_path / "run", [Row("a", {"=1+1": "y", "-x": "z" * 32_768}, "y", "A")], schemas)
    result = exported(uri, "--to", kind, "--out", str(tmp_path / f"o.{kind}"), "--guard-formulas")
    (row,) = read_wide(str(tmp_path / f"o.{kind}"))
    assert list(row)[-2:] == ["'=1+1", "'-x"]
    assert row["'=1+1"] == "y"
    # What is left out is said of the attribute, not of the cell above it.
    assert kind == "csv" or [each["attribute"] for each in result["left_out_answers"]] == ["-x"]


_ANSWERS = {
    "Brand": st.one_of(st.just(ABSENT), st.sampled_from(["Acme", "Kona"])),
    "Color": st.one_of(st.just(ABSENT), st.lists(st.sampled_from(["Black", "rose", "mauve"]), min_size=1, max_size=3)),
    "Width": st.one_of(st.just(ABSENT), st.just(INVALID), st.just("14")),
    "Lined": st.one_of(st.just(ABSENT), st.sampled_from(["true", "false"])),
    "Notes": st.lists(st.sampled_from(["malt", "oak"]), min_size=1, max_size=3),
}
_ROWS = st.lists(
    st.one_of(
        st.just(None),
        st.fixed_dictionaries({name: _ANSWERS[name] for name in ("Brand", "Color", "Width", "Lined")}),
        st.fixed_dictionaries({name: _ANSWERS[name] for name in ("Brand", "Notes")}),
    ),
    min_size=1,
    max_size=9,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(answers=_ROWS, shard_rows=st.sampled_from([1, 2, 4]))
def test_every_accepted_answer_is_in_its_cell(
    tmp_path_factory: pytest.TempPathFactory,
    answers: list[Mapping[str, Any] | None],
    shard_rows: int,
) -> None:
    """Against the slow way: row by row from the attributes table."""
    folder = tmp_path_factory.mktemp("any")
    rows = [
        Row(f"p{n}", each, BAG_TEXT, "Teas" if each is not None and "Notes" in each else "Bags")
        for n, each in enumerate(answers)
    ]
    run = write_normalised_run(folder / "run", rows, shard_rows=shard_rows)
    result = exported(run, "--to", "wide.parquet", "--out", str(folder / "out"))
    table = pa.concat_tables([pq.read_table(file) for file in result["files"]])
    assert table.to_pylist() == slowly(folder / "run")


def slowly(run: Path) -> list[dict[str, Any]]:
    columns = {column.attribute: column for column in wide_columns(SCHEMAS).columns}
    names = wide_columns(SCHEMAS).schema.names
    rows: dict[int, dict[str, Any]] = {}
    for part in sorted((run / "products").glob("*.parquet")):
        for product in pq.read_table(part).to_pylist():
            rows[product["source_row"]] = dict.fromkeys(names) | {name: product[name] for name in names[:4]}
    for part in sorted((run / "attributes").glob("*.parquet")):
        for answer in pq.read_table(part).to_pylist():
            if answer["status"] != "value" or answer["norm_status"] != "ok":
                continue
            column, row = columns[answer["attribute"]], rows[answer["source_row"]]
            value = {"text": answer["value_norm"], "number": answer["value_num"]}.get(column.kind)
            value = answer["value_norm"] == "true" if column.kind == "boolean" else value
            if not column.is_list:
                row[column.name] = value
                row.update(zip(column.end_names, (answer["value_min"], answer["value_max"]), strict=False))
            elif value not in (row[column.name] or []):
                row[column.name] = [*(row[column.name] or []), value]
            if column.unit_name:
                row[column.unit_name] = answer["unit"]
    return [rows[number] for number in sorted(rows)]


def test_attributes_of_several_categories_are_united() -> None:
    schemas = {
        "A": CategorySchema(
            category="A", attributes=(Attribute(name="X", type="number", unit="cm"), Attribute(name="Y"))
        ),
        "B": CategorySchema(category="B", attributes=(Attribute(name="X"), Attribute(name="category"))),
    }
    united = wide_columns(schemas)
    assert united.schema.names[4:] == ["X", "X unit", "Y", "category (attribute)"]
    assert united.schema.field("X").type == pa.string(), "of two types: a text"
    assert united.by_category["B"] == ["X", "X unit", "category (attribute)"]
    names = ("X unit", "X unit (attribute)")
    clash = CategorySchema(category="C", attributes=(Attribute(name="X", type="number"), Attribute(name=names[0])))
    assert wide_columns({"C": clash}).schema.names[4:] == ["X", "X min", "X max", *names]
    clash = clash.model_copy(update={"attributes": (*clash.attributes, Attribute(name=names[1]))})
    with pytest.raises(
        UsageError, match=r"'X unit \(attribute\)' would be that of the attribute 'X unit \(attribute\)' and"
    ):
        wide_columns({"C": clash})


def test_what_cannot_be_exported(run: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    stale = tmp_path / "stale"
    write_normalised_run(stale, ROWS)
    (stale / "_schemas.json").unlink()
    mixed = tmp_path / "mixed"
    write_normalised_run(mixed, ROWS)
    part = mixed / "products" / "part-000000.parquet"
    pq.write_table(pq.read_table(part).slice(1), part)
    for arguments, message in (
        ([run, "--to", "csv", "--overwrite"], "--overwrite is for shopify, google, akeneo, not for csv"),
        ([run, "--to", "akeneo", "--ids"], "--ids is for wide.parquet, csv, xlsx, jsonl, not for akeneo"),
        ([run, "--to", "shopify", "--guard-formulas"], "--guard-formulas is for csv, xlsx, not for shopify"),
        ([run, "--to", "jsonl", "--separator", "|"], "--separator is for csv, xlsx, not for jsonl"),
        ([run, "--to", "google", "--identifier", "uuid"], "--identifier is for akeneo, not for google"),
        ([run, "--to", "csv", "--separator", ""], "--separator '': name one without quotes"),
        ([run, "--to", "csv", "--separator", '"'], "name one without quotes"),
        ([run, "--to", "word"], "there is no such kind of file; there are wide.parquet, csv"),
        ([str(tmp_path / "empty"), "--to", "csv"], "there is no run"),
        ([str(stale), "--to", "csv"], "does not say what it asked for"),
        ([str(mixed), "--to", "csv"], "do not belong together"),
        ([run, "--to", "csv", "--out", str(tmp_path / "file" / "x")], "cannot write"),
    ):
        code, _, error = ask(*arguments)
        assert (code, message in error) == (2, True), error
