"""`hpd init`: what it guesses of a catalog, and that what it writes is a job that can be planned."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

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
from pipelines.catalog.workbooks import num_without_result
from pipelines.config.extraction import JobConfig
from pipelines.config.lint import lint
from pipelines.config.loading import load_config
from pipelines.config.schema_file import load_schemas
from pipelines.config.yaml_files import dump_flow, shown
from pipelines.init import app
from pipelines.job.preflight import PlannedJob, plan_job
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


@table("kind", ["parquet", "jsonl"])
def test_columns_in_the_names_of_folders_are_told(tmp_path: Path, kind: str) -> None:
    source = tmp_path / "env=test" / "shop"  # what is above the catalog is no part of it
    for category in ("Shoes", "Tents"):
        (source / f"category={category}").mkdir(parents=True)
        write(source / f"category={category}" / f"part.{kind}", [{"title": "a b c", "day": 1}] * 30)
    result = init(source, "--output", tmp_path / "mine")
    assert "Note: in no file, only in the names of folders: category; write it into the files" in result.output
    assert "hive_partitioning = true" in result.output


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


def test_a_shops_columns_name_the_attributes(tmp_path: Path) -> None:
    path = tmp_path / "products_export.csv"
    names = "Handle,Title,Type,Color (product.metafields.shopify.color-pattern),Care (product.metafields.custom.care)"
    rows = "tote,Harbour tote of canvas,Bags,,\nsac,Day sac of leather,Bags,,\ncap,A wool cap,Hats,,\n"
    path.write_text(f"{names}\n{rows}")
    assert init(path, "--output", tmp_path / "mine").exit_code == 0
    found = load_schemas(str(tmp_path / "mine" / "schemas.yaml"))
    assert {name: [each.name for each in schema.attributes] for name, schema in found.items()} == {
        "Bags": ["Color", "Care"],
        "Hats": ["Color", "Care"],
    }


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


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
def test_scalars_read_back_and_comments_are_one_line(text: str) -> None:
    document = f"{dump_flow(text)}: [{dump_flow(text)}, 1]    # {shown(text)}\n"
    assert yaml.safe_load(document) == {text: [text, 1]}
