"""`hpd init` on the files that people have: what it writes is found in them, and can be planned as it stands."""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
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


def test_a_packed_file_beside_others(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    lines = "".join(json.dumps(row) + "\n" for row in rows()).encode()
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines))
    found, job, said = started(folder)
    assert (found["format"], job.plan.num_rows) == ("jsonl", 40)
    (folder / "a.jsonl").write_bytes(lines)
    shutil.rmtree(tmp_path / "mine")
    found, job, said = started(folder)
    assert "1 gzip around JSON Lines beside the same file" in said
    assert (found.get("format", "auto"), job.plan.num_rows) == ("auto", 40)
    (folder / "b.jsonl").write_bytes(lines)
    shutil.rmtree(tmp_path / "mine")
    _, job, _ = started(folder)
    assert any("2 files have the same content, and all are read" in each for each in job.warnings)
    (folder / "c.jsonl").write_bytes(lines.replace(b'"name"', b'"title"'))
    shutil.rmtree(tmp_path / "mine")
    assert "Note: not in every file, so not proposed: name, title" in started(folder)[2]


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


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", 'id, title\n"1", "a, b"\n', "a quote behind a space opens no cell"),
        ("a.csv", "id,title\n1,2,3\n", "none of its first rows can be read: line 2: 3 cells for 2 columns"),
        ("a.jsonl", '{"id": 1,}\n{"id": 2,}\n', "none of its first rows can be read: not JSON: a comma"),
    ],
)
def test_why_no_row_can_be_read(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    result = CliRunner().invoke(app, [str(tmp_path / name), "--output", str(tmp_path / "mine")])
    assert (result.exit_code, message in result.output) == (2, True), result.output


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


def test_a_google_feed(tmp_path: Path) -> None:
    item = (
        "<item><g:id>{0}</g:id><g:title>Bag {0}</g:title><g:description>Soft</g:description><g:link>https://x</g:link>"
        "<g:price>1 EUR</g:price><g:product_type>Home &gt; Bags</g:product_type><g:brand>Acme</g:brand>"
        "<g:product_detail><g:attribute_name>Weight</g:attribute_name><g:attribute_value>2 kg</g:attribute_value>"
        "</g:product_detail></item>"
    )
    path = tmp_path / "feed.xml"
    items = "".join(item.format(number) for number in range(30))
    path.write_text(f'<rss xmlns:g="http://base.google.com/ns/1.0"><channel>{items}</channel></rss>')
    found, job, _ = started(path)
    assert (found["format"], found["id"]) == ("xml", "id")
    assert found["category"] == {"column": "product_type", "separator": ">"}
    assert found["fields"] == {
        "title": "title",
        "brand": "brand",
        "details": "product_detail.attribute_value",
        "description": "description",
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
