"""`hpd init`: what it guesses of a catalog, and that what it writes is a job that can be planned."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xlsxwriter
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from hpd_core import Unit
from pipelines import extract, schema
from pipelines.catalog.input_files import scan_sources
from pipelines.catalog.number_formats import num_without_result
from pipelines.catalog.row_checks import write_folders_in
from pipelines.config.extraction import JobConfig
from pipelines.config.loading import load_config
from pipelines.init import app
from pipelines.job.preflight import PlannedJob, plan_job
from pipelines.profiling.catalog_file import FILL_IN
from pipelines.profiling.key_values import find_attributes, pairs
from pipelines.profiling.schemas_file import MAX_CATEGORIES
from pipelines.profiling.yaml_text import scalar, shown
from pipelines.schemas.lint import lint
from pipelines.schemas.schema_file import load_schemas
from tests.pipelines.commands import ROOT
from tests.tables import table

Row = dict[str, Any]


def rows(count: int, **more: Any) -> list[Row]:
    """Products with texts that name their attributes, in two categories."""
    return [
        {
            "sku": f"S-{number:05}",
            "product_type": ["Shoes", "Tents"][number % 2],
            "price": 9.5 + number % 7,
            "brand": ["Velor", "Kern", "Ostra"][number % 3],
            "photo": f"https://example.com/{number}.jpg",
            "features": [f"Colour: {['red', 'blue'][number % 2]}", f"Weight: {100 + number} g", "Washable: yes"],
            "name": f"Velor trail runner number {number}",
            "body": f"A long text about what number {number} is made of. " * 3,
            "legal": "The same words below every product of this shop",
            **more,
        }
        for number in range(count)
    ]


def write(path: Path, content: list[Row]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(content), path)
    else:
        path.write_text("".join(json.dumps(row, default=str) + "\n" for row in content))
    return path


def init(*arguments: Any) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def planned(folder: Path) -> PlannedJob:
    return plan_job(load_config(JobConfig, str(folder / "catalog.yaml")))


def started(path: Path, content: list[Row]) -> tuple[Result, JobConfig]:
    """What `hpd init` says of such a catalog, and the configuration that it wrote. The schemas pass lint, but for
    what is odd in the catalog's own names."""
    result = init(write(path, content), "--output", path.parent / "mine")
    assert result.exit_code == 0, result.output
    remarks = lint(load_schemas(str(path.parent / "mine" / "schemas.yaml")))
    assert [str(remark) for remark in remarks if "line break or a control character" not in remark.message] == []
    return result, load_config(JobConfig, str(path.parent / "mine" / "catalog.yaml"))


@table("name", ["shop.parquet", "shop.jsonl"])
def test_what_it_writes_can_be_planned(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result, config = started(tmp_path / name, rows(60))
    assert (str(config.input.id), str(config.input.category)) == ("sku", "product_type")
    assert list(config.input.fields) == ["name", "features", "body"]
    assert config.output == "runs/shop/first"
    assert "2 categories: Shoes 30, Tents 30" in result.output
    attributes = {each.name: each for each in load_schemas(str(tmp_path / "mine" / "schemas.yaml"))["Shoes"].attributes}
    assert list(attributes) == ["Colour", "Weight", "Washable"]
    assert (attributes["Weight"].type, attributes["Weight"].unit) == ("number", Unit(want="g"))
    assert attributes["Washable"].type == "boolean"

    commands = [line.split() for line in result.output.splitlines() if line.startswith("  hpd ")]
    assert [command[1] for command in commands] == ["extract", "extract"]
    monkeypatch.chdir(ROOT)
    dry = CliRunner().invoke(extract.app, commands[0][2:])
    assert dry.exit_code == 0, dry.output
    assert "rows              60" in dry.output
    assert CliRunner().invoke(schema.app, ["lint", str(tmp_path / "mine" / "schemas.yaml")]).exit_code == 0


def test_the_shipped_sample(tmp_path: Path) -> None:
    result = init(ROOT / "sample" / "products.parquet", "--output", tmp_path)
    assert "12 categories: Coffee 18" in result.output
    config = planned(tmp_path).config
    assert (str(config.input.id), str(config.input.category)) == ("product_id", "category")
    assert list(config.input.fields) == ["title", "bullets", "description"]
    assert Path(config.adapter or "").name == "smollm2-generalist"


def test_names_in_other_languages(tmp_path: Path) -> None:
    content = [
        {
            "EAN": f"40{number:011}",
            "Artikelnummer": f"00{number:04}",
            "Geschlecht": ["Damen", "Herren"][number % 2],
            "Größe": f"{36 + number % 3}",
            "Warengruppe": ["Stiefel", "Pumps", "Sneaker", "Sandalen"][number % 4],
            "Beschreibung": f"Ein Schuh für lange Tage, Nummer {number}",
            "Titel": f"Läufer Nummer {number} rot",
        }
        for number in range(60)
    ]
    _, config = started(tmp_path / "schuhe.jsonl", content)
    assert (str(config.input.id), str(config.input.category)) == ("Artikelnummer", "Warengruppe")
    assert list(config.input.fields) == ["Titel", "Beschreibung"]


def test_every_guess_says_why(tmp_path: Path) -> None:
    started(tmp_path / "shop.parquet", rows(60, ean=None))
    text = (tmp_path / "mine" / "catalog.yaml").read_text()
    assert "# sku: its name reads like an id; no empty cell, no two rows alike." in text
    assert "# product_type: its name reads like a category; 2 different in 60 rows looked at." in text
    assert "# Could be read as well: legal, brand, price" in text, "what is the same everywhere tells nothing"
    assert "photo" not in text, "a link is no text"


def test_no_rows(tmp_path: Path) -> None:
    result, config = started(tmp_path / "c.jsonl", [])
    assert "0 rows" in result.output
    assert "No column looks like a category: fill in input.category" in result.output
    assert str(config.input.category) == FILL_IN
    empty = pa.Table.from_pylist(rows(1)).slice(0, 0)
    pq.write_table(empty, tmp_path / "typed.parquet")
    assert init(tmp_path / "typed.parquet", "--output", tmp_path / "typed").exit_code == 0
    config = load_config(JobConfig, str(tmp_path / "typed" / "catalog.yaml"))
    assert (str(config.input.id), str(config.input.category)) == ("sku", "product_type"), "by their names alone"
    assert list(config.input.fields) == ["name", "features", "body"]


def test_thousands_of_categories(tmp_path: Path) -> None:
    content = [row | {"product_type": f"Kind {number // 2}"} for number, row in enumerate(rows(6000))]
    content += [row | {"product_type": "Everything"} for row in rows(30)]
    result, config = started(tmp_path / "c.jsonl", content)
    schemas = load_schemas(config.schemas)
    assert len(schemas) == MAX_CATEGORIES
    assert next(iter(schemas)) == "Everything"
    assert "3,001 categories" in result.output
    text = Path(config.schemas).read_text()
    assert "# The 50 most frequent of 3,001 categories. The other 2,951 have 5,902 rows" in text
    assert planned(tmp_path / "mine").plan.num_rows == 6030


def test_a_catalog_and_a_folder_by_uri(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/init/c.parquet", write(tmp_path / "c.parquet", rows(40)).read_bytes())
    try:
        result = init("memory://init/c.parquet", "--output", "memory://init/mine")
        assert result.exit_code == 0, result.output
        job = plan_job(load_config(JobConfig, "memory://init/mine/catalog.yaml", [f"output={tmp_path / 'out'}"]))
        assert job.plan.num_rows == 40
        assert job.config.schemas == "memory://init/mine/schemas.yaml"
    finally:
        memory.rm("/init", recursive=True)


@table(("name", "value", "is_text"), [("name", "value", False), ("label", "text", False), ("title", "content", True)])
def test_values_without_their_names_are_no_text(tmp_path: Path, name: str, value: str, is_text: bool) -> None:
    """What stands below a title is one."""
    content = [
        row | {"specs": [{name: "Colour", value: f"a dark red, {number}"}, {name: "Care", value: "wash it by hand"}]}
        for number, row in enumerate(rows(30))
    ]
    _, config = started(tmp_path / "shop.jsonl", content)
    columns = {str(mapped) for mapped in config.input.fields.values()}
    assert "body" in columns
    assert (f"specs.{value}" in columns) is is_text


@table(
    ("name", "read"),
    [
        ("day=1/part.csv.gz", "read_csv('FOLDER/**/*.csv.gz', "),
        ("day=1/PART.JSONL", "read_json('FOLDER/**/*.JSONL', "),
        ("day=1/part.pq", "read_parquet('FOLDER/**/*.pq', "),
    ],
)
def test_the_way_out_of_folders_reads_the_files(name: str, read: str) -> None:
    assert read in write_folders_in(name)
    assert write_folders_in("day=1/part.xlsx") == "write it into the files"


@table(("kind", "reader"), [("parquet", "parquet"), ("jsonl", "json")])
def test_columns_in_the_names_of_folders_are_told(tmp_path: Path, kind: str, reader: str) -> None:
    source = tmp_path / "env=test" / "shop"  # what is above the catalog is no part of it
    for category in ("Shoes", "Tents"):
        (source / f"category={category}").mkdir(parents=True)
        write(source / f"category={category}" / f"part.{kind}", [{"title": "a b c", "day": 1}] * 30)
    result = init(source, "--output", tmp_path / "mine")
    assert "Note: in no file, only in the names of folders: category; write it into the files" in result.output
    assert f"read_{reader}('FOLDER/**/*.{kind}', hive_partitioning = true)" in result.output


def test_rows_that_cannot_be_read_are_told_by_their_reason(tmp_path: Path) -> None:
    lines = "".join(f"s{number},Shoes,A red shoe of leather\n" for number in range(30))
    (tmp_path / "c.csv").write_text(f"sku,category,title\n{lines}a,b,c,d\nx,,A shoe\n")
    result = init(tmp_path / "c.csv", "--output", tmp_path / "csv")
    assert "1 rows become dead letters, broken_line: " in result.output
    assert "c.csv, row 30: line 32: 4 cells for 3 columns" in result.output
    assert "1 rows become dead letters, null_category: " in result.output
    items = "<product_type>Shoes</product_type>" * 2, "<product_type>Shoes</product_type>"
    feed = "".join(
        f"<item><id>{n}</id><title>Shoe {n}</title><description>Red</description><link>l</link>"
        f"<price>1</price>{items[n % 2]}</item>"
        for n in range(4)
    )
    rss = '<rss xmlns:g="http://base.google.com/ns/1.0" version="2.0">'
    (tmp_path / "feed.xml").write_text(f'<?xml version="1.0"?>{rss}<channel>{feed}</channel></rss>')
    result = init(tmp_path / "feed.xml", "--output", tmp_path / "feed")
    assert "1 categories: Shoes 4" in result.output
    assert "category: product_type[0]" in (tmp_path / "feed" / "catalog.yaml").read_text().replace("'", "")


def test_what_a_shop_system_calls_a_type_is_no_category(tmp_path: Path) -> None:
    ways = ("simple", "variable", "variation")
    content = [
        {"sku": f"s{n}", "Type": ways[n % 3], "Name": f"A red shoe {n}", "Categories": f"Shoes > Kind {n % 2}"}
        for n in range(40)
    ]
    _, catalog = started(tmp_path / "c.parquet", content)
    assert (catalog.input.category.column, catalog.input.category.separator) == ("Categories", ">")


def test_a_name_is_read_with_its_value_or_not_at_all(tmp_path: Path) -> None:
    parts = {"Attribute 1 name": "Care", "Attribute 1 value(s)": "wash by hand only"}
    parts |= {"Attribute 2 name": "Size", "Attribute 2 value(s)": "S"}
    content = [{"sku": f"s{number}", "category": "Shoes", **parts} for number in range(9)]
    _, catalog = started(tmp_path / "c.jsonl", content)
    assert list(catalog.input.fields) == list(parts)[:2]


def test_a_row_is_counted_from_the_first_line(tmp_path: Path) -> None:
    lines = [json.dumps(row) for row in rows(3)]
    (tmp_path / "c.jsonl").write_text("\n".join([*lines[:2], "", '{"sku": ', lines[2]]))
    assert "c.jsonl, row 3: not JSON" in init(tmp_path / "c.jsonl", "--output", tmp_path / "mine").output.replace(
        "\n", ""
    )


def test_formulas_without_results_and_sizes_that_became_dates_are_told(tmp_path: Path) -> None:
    with xlsxwriter.Workbook(tmp_path / "c.xlsx", {"default_date_format": "yyyy-mm-dd"}) as book:
        sheet = book.add_worksheet()
        sheet.write_row(0, 0, ["sku", "category", "title", "size"])
        for number, size in enumerate(("S", datetime.date(2026, 10, 12), "38-40"), 1):
            sheet.write_row(number, 0, [f"s{number}", "Shoes", f'="Shoe "&A{number + 1}', size])
    result = init(tmp_path / "c.xlsx", "--output", tmp_path / "mine")
    assert "3 cell(s) of" in result.output
    assert "1 cell(s) of the column 'size' in" in result.output
    warnings = scan_sources(load_config(JobConfig, str(tmp_path / "mine" / "catalog.yaml")).input).warnings()
    assert [warning for warning in warnings if "3 cell(s) of" in warning]
    with xlsxwriter.Workbook(tmp_path / "c.xlsx") as book:
        book.add_worksheet().write_formula(1, 0, "=NA()", None, "#N/A")
    assert num_without_result((tmp_path / "c.xlsx").read_bytes(), "Sheet1") == 1


def test_what_is_left_out_and_columns_that_stand_twice_are_told(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    shop.mkdir()
    table = pa.Table.from_pylist(rows(30))
    pq.write_table(table.append_column("body", table["name"]), shop / "part-0")
    (shop / "old.csv").write_text("sku\n")
    (shop / "_SUCCESS").write_text("")
    result = init(shop, "--output", tmp_path / "mine")
    assert result.exit_code == 0, result.output
    assert f"left out 1 CSV ({shop}/old.csv), 1 hidden ({shop}/_SUCCESS)" in result.output
    assert f"Note: not read: 1 CSV ({shop}/old.csv)" in result.output
    assert f"Note: column body stands twice in {shop}/part-0: rename one of the two" in result.output
    job = planned(tmp_path / "mine")
    assert job.plan.num_rows == 30
    assert "body" not in job.config.input.columns


def test_a_file_that_is_there_is_never_written_over(tmp_path: Path) -> None:
    catalog = write(tmp_path / "c.jsonl", rows(20))
    (tmp_path / "schemas.yaml").write_text("mine")
    result = init(catalog, "--output", tmp_path)
    assert result.exit_code == 2
    assert f"{tmp_path}/schemas.yaml exists already" in result.output
    assert (tmp_path / "schemas.yaml").read_text() == "mine"
    assert not (tmp_path / "catalog.yaml").exists()


@table(
    ("name", "content", "message"),
    [
        ("nowhere.parquet", None, "no such file or folder"),
        ("c.orc", b"ORC", "c.orc cannot be read (ORC)"),
        ("c.parquet", b"PAR1 but not really", "is cut off"),
        ("c.jsonl", b"[1]\nno json\n", "a JSON object is needed, not a list"),
    ],
)
def test_bad_input(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    result = init(tmp_path / name, "--output", tmp_path / "mine")
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert not (tmp_path / "mine").exists()


def test_paths_and_names_that_yaml_would_read_otherwise(tmp_path: Path) -> None:
    names = {"product_type": "type: #1", "name": "the, [name]", "features": "yes", "body": "long\nname", "sku": "id"}
    content = [{names.get(key, key): value for key, value in row.items()} for row in rows(40)]
    for number, row in enumerate(content):
        row["type: #1"] = ["no", "a: b # c", "x\ny", "- 1", "{}"][number % 5]
    folder = tmp_path / "a, b: c #1"
    folder.mkdir()
    result, config = started(folder / "c.jsonl", content)
    # The commands can be copied, into a shell that would part the name.
    command = f"hpd extract --config '{folder}/mine/catalog.yaml' --"
    assert result.output.count(command) == 2
    assert command in (folder / "mine" / "catalog.yaml").read_text()
    assert str(config.input.category) == "type: #1"
    assert {"the, [name]", "long\nname"} <= set(config.input.fields)
    assert planned(folder / "mine").plan.num_rows == 40
    assert {"no", "a: b # c", "- 1", "{}"} <= set(load_schemas(config.schemas))


@table(
    "content",
    [
        # Short, but not as YAML writes it: each of its letters is escaped.
        [row | {"product_type": "\u4e2d" * 200 + "\u200b"} for row in rows(4)] + rows(4),
        rows(4, **{"t" * 1500: "A text that describes the product in some words, different in every row"}),
        rows(4, **{"\u4e2d" * 200 + "\n": "A text that describes the product in some words"}),
    ],
)
def test_a_name_that_is_too_long_for_a_key_is_left_out(tmp_path: Path, content: list[Row]) -> None:
    _, config = started(write(tmp_path / "shop.jsonl", content), content)
    assert "name" in config.input.fields
    assert "Shoes" in load_schemas(config.schemas)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
def test_scalars_read_back_and_comments_are_one_line(text: str) -> None:
    document = f"{scalar(text)}: [{scalar(text)}, 1]    # {shown(text)}\n"
    assert yaml.safe_load(document) == {text: [text, 1]}


@table(
    ("text", "expected"),
    [
        ("Colour: red\n- Weight : 2 kg", [("Colour", "red"), ("Weight", "2 kg")]),
        ("<ul><li>Farbe: rot</li><li>Größe: L</li></ul>", [("Farbe", "rot"), ("Größe", "L")]),
        ("Form：粉", [("Form", "粉")]),
        ("See https://example.com and note: it is long", []),
        ("12:30 starts", []),
        ("color=Black|Red,size=38,5,strap=Padded", [("color", "Black|Red"), ("size", "38,5"), ("strap", "Padded")]),
    ],
)
def test_pairs_in_a_text(text: str, expected: list[tuple[str, str]]) -> None:
    assert list(pairs(text)) == expected


def test_what_few_rows_name_is_no_attribute() -> None:
    texts = [("Shoes", "Colour: red\nNote: odd" if number == 0 else "colour: blue") for number in range(10)]
    (colour,) = find_attributes(texts)["Shoes"]
    assert (colour.name, colour.num_rows, colour.examples) == ("Colour", 10, ["blue", "red"])
