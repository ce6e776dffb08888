"""`hpd init` on the files that people have: what it writes is found in them, and can be planned as it stands."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter
from typer.testing import CliRunner

from pipelines.config.extraction import JobConfig
from pipelines.config.loading import load_config
from pipelines.init import app
from pipelines.job.preflight import PlannedJob, plan_job

PATHS = ("Home > Bags", "Home > Tents")


pytestmark = pytest.mark.usefixtures("own_cache")


def started(path: Path, *options: str) -> tuple[dict[str, Any], PlannedJob, str]:
    """The input that is proposed, planned as it stands, and what was said."""
    folder = path.parent / "mine"
    result = CliRunner().invoke(app, [str(path), "--output", str(folder), *options])
    assert result.exit_code == 0, result.output
    config = load_config(JobConfig, str(folder / "catalog.yaml"), [f"output={path.parent / 'run'}"])
    return config.input.model_dump(mode="json", exclude_defaults=True), plan_job(config), result.output


def rows(count: int = 40) -> list[dict[str, str]]:
    return [
        {
            "sku": f"S-{number}",
            "lang": "de",
            "kind": PATHS[number % 2],
            "name": f"Größe number {number}",
            "body": f"A long text; about {number}, and what it is made of",
        }
        for number in range(count)
    ]


def as_csv(content: list[dict[str, str]], delimiter: str) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(content[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "encoding", "delimiter"),
    [("c.csv", "utf-8", ","), ("c.csv", "utf-16", ";"), ("c.tsv", "utf-8-sig", "\t"), ("c.csv", "cp1252", ";")],
)
def test_csv(tmp_path: Path, name: str, encoding: str, delimiter: str) -> None:
    path = tmp_path / name
    path.write_bytes(as_csv(rows(), delimiter).encode(encoding))
    found, job, said = started(path)
    assert found == {
        "path": [str(path)],
        "format": "csv",
        "id": "sku",
        "category": {"column": "kind", "separator": ">"},
        "language": "lang",
        "fields": {"name": "name", "body": "body"},
        "delimiter": delimiter,
    } | ({"encoding": "cp1252"} if encoding == "cp1252" else {})
    assert job.plan.num_rows == 40
    assert list(job.sample_warnings) == []
    assert set(job.schemas) == set(PATHS)
    assert ("Note: a guess of encoding" in said) == (encoding == "cp1252")


def test_files_that_are_written_differently_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_bytes(as_csv(rows()[:20], ",").encode())
    (folder / "b.csv").write_bytes(as_csv(rows()[20:], ";").encode("cp1252"))
    found, job, said = started(folder)
    assert found["encoding"] == "cp1252"
    assert "delimiter" not in found
    assert "a guess of encoding: " in said
    assert "b.csv is not UTF-8" in said
    assert 'comma, quoted by ", utf-8: ' in said
    assert 'semicolon, quoted by ", cp1252: ' in said
    assert "The files differ" in (tmp_path / "mine" / "catalog.yaml").read_text()
    assert (job.plan.num_rows, list(job.sample_warnings)) == (40, [])
    assert set(job.schemas) == set(PATHS)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "S1,Shoes,12.50\nS2,Shoes,13.00\n", "the columns' names: '12.50' is one in "),
        ("a.csv", "id,title\n4.00638E+12,a\n4.00638E+12,b\n", "the column 'id': '4.00638E+12' is a long number"),
        ("a.json", '{"products": [{"id": 1}, {"id": 2}]}', "whose 'products' is a list of 2 objects"),
        ("a.json", '{"products": [{"id": 1}, {"id": 2}]}', "jq -c '.[\"products\"][]'"),
    ],
)
def test_what_looks_as_if_rows_were_no_products_is_said(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    result = CliRunner().invoke(app, [str(tmp_path / name), "--output", str(tmp_path / "mine")])
    assert said in result.output


def test_shopify(tmp_path: Path) -> None:
    header = "Handle,Title,Body (HTML),Vendor,Product Category,Type,Option1 Name,Option1 Value,Variant SKU\n"
    product = (
        "p{0},Bag {0},<p>Soft and {0}</p>,Acme,Luggage & Bags > Bags,Bags,Color,red,{0}-1\np{0},,,,,,,blue,{0}-2\n"
    )
    path = tmp_path / "products_export.csv"
    path.write_text(header + "".join(product.format(number) for number in range(30)))
    found, job, _ = started(path)
    assert (found["format"], found["id"]) == ("shopify", "Handle")
    assert found["category"] == {"column": "Product Category", "separator": ">"}
    assert found["fields"] == {
        "title": "Title",
        "brand": "Vendor",
        "type": "Type",
        "option": "Option1 Name",
        "option values": "Option1 Value",
        "description": "Body (HTML)",
    }
    assert (job.plan.num_rows, list(job.sample_warnings)) == (30, [])


def test_a_workbook(tmp_path: Path) -> None:
    path = tmp_path / "c.xlsx"
    book = xlsxwriter.Workbook(str(path))
    for name in ("Products", "Old"):
        sheet = book.add_worksheet(name)
        sheet.write_row(0, 0, list(rows()[0]))
        for number, row in enumerate(rows(), 1):
            sheet.write_row(number, 0, list(row.values()))
    book.close()
    found, job, said = started(path)
    assert (found["format"], found["sheet"], job.plan.num_rows) == ("excel", "Products", 40)
    assert "Note: a guess of sheet: there are 'Products', 'Old'" in said
    found, _, said = started(path.rename(tmp_path / "mine" / "d.xlsx"), "--sheet", "Old")
    assert (found["sheet"], "guess of sheet" in said) == ("Old", False)
