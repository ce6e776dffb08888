"""Which files of a folder are read, and that no other is passed over without a word."""

from __future__ import annotations

import bz2
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.catalog.finding import FoundFiles, find_files
from pipelines.errors import UsageError
from tests.pipelines.conftest import Workplace, products

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def inside(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace.folder)


@pytest.fixture
def write(workplace: Workplace) -> Write:
    """Writes a file of the catalog; what kind follows from the content."""

    def one(name: str, content: bytes | None = None) -> Path:
        path = workplace.catalog / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            return workplace.write_jsonl(name, products(1))
        path.write_bytes(content)
        return path

    return one


def names(found: FoundFiles) -> list[str]:
    return [file.name for file in found.files]


def left_out(found: FoundFiles) -> dict[str, list[str]]:
    return {what: each["first"] for what, each in found.left_out.to_dict()["kinds"].items()}


def test_whatever_lies_in_a_folder_is_read_or_counted_and_named(workplace: Workplace, write: Write) -> None:
    for name in ("jan.parquet", "feb.parquet.gzip", "mar.parq", "apr.snappy", "000007_0", "x/MAY.PARQUET"):
        workplace.write_parquet(name, products(1))
    for name in ("jul.jl", "aug.jsonlines", "sep.txt", "part-00000"):
        write(name)
    write("jun.csv", b"id,title\n1,a\n")
    write("jul.csv.gz", gzip.compress(b"id,title\n1,a\n", mtime=0))
    write("README.md", b"# Products")
    for name in ("_SUCCESS", ".jan.parquet.crc", ".DS_Store", "_temporary/0/part-0.jsonl", "x/_old/a.jsonl", "+tmp/b"):
        write(name, b"")
    write("next.parquet.tmp", b"PAR1")
    os.mkfifo(workplace.catalog / "pipe")
    found = find_files(["catalog"])
    formats = {file.name.removeprefix("catalog/"): file.format for file in found.files}
    assert formats == {
        **dict.fromkeys(
            ("000007_0", "apr.snappy", "feb.parquet.gzip", "jan.parquet", "mar.parq", "x/MAY.PARQUET"), "parquet"
        ),
        **dict.fromkeys(("aug.jsonlines", "jul.jl", "part-00000", "sep.txt"), "jsonl"),
    }
    assert names(found) == sorted(names(found))
    hidden = ["+tmp/", ".DS_Store", ".jan.parquet.crc", "_SUCCESS", "_temporary/", "x/_old/"]
    assert left_out(found) == {
        "CSV": ["catalog/jun.csv"],
        "gzip around CSV": ["catalog/jul.csv.gz"],
        "unfinished": ["catalog/next.parquet.tmp"],
        "text": ["catalog/README.md"],
        "hidden": [f"catalog/{name}" for name in hidden],
        "no regular file": ["catalog/pipe"],
    }
    assert found.left_out.to_dict()["files"] == 11
    warnings = list(found.left_out.warnings())
    assert len(warnings) == 3
    assert any(
        "1 CSV (catalog/jun.csv). To have it read, name it itself, or set input.format" in warning
        for warning in warnings
    )
    assert "6 hidden (catalog/+tmp/, catalog/.DS_Store, catalog/.jan.parquet.crc, and 3 more)" in str(found.left_out)


def test_what_is_named_itself_or_by_a_glob_is_no_other_data(workplace: Workplace, write: Write) -> None:
    write("a.csv", b"id\n1\n")
    write("b.jsonl")
    write("notes.md", b"hello")
    write("a.orc", b"ORC")
    for path in ("catalog/a.orc", "catalog/?.orc"):
        with pytest.raises(UsageError, match=r"a\.orc cannot be read \(ORC\): store it as Parquet"):
            find_files([path])
    (workplace.catalog / "a.orc").unlink()
    # The same rows again, perhaps: which of the two is meant has to be said.
    with pytest.raises(UsageError, match=r"a\.csv cannot be read \(CSV\): name it itself, or set input.format"):
        find_files(["catalog/*"])
    for path in ("catalog/a.csv", "catalog/?.csv"):
        assert names(find_files([path])) == ["catalog/a.csv"]
    with pytest.raises(UsageError, match=r"notes\.md cannot be read \(text\)"):
        find_files(["catalog/notes.md"])
    (workplace.catalog / "a.csv").unlink()
    assert left_out(find_files(["catalog/*"])) == {"text": ["catalog/notes.md"]}


@pytest.mark.parametrize(("ending", "content"), [(".csv", b"id,title\n1,a\n"), (".jsonl", b'{"id": 1}\n')])
def test_a_file_beside_its_packed_twin_is_read_once(
    workplace: Workplace, write: Write, ending: str, content: bytes
) -> None:
    write(f"a{ending}", content)
    write(f"a{ending}.gz", gzip.compress(content, mtime=0))
    write(f"b{ending}.bz2", bz2.compress(content))
    write(f"b{ending}.gz", gzip.compress(content, mtime=0))
    write(f"c{ending}.gz", gzip.compress(content, mtime=0))
    found = find_files(["catalog"])
    assert names(found) == [f"catalog/{name}" for name in (f"a{ending}", f"b{ending}.bz2", f"c{ending}.gz")]
    assert found.left_out.to_dict()["files"] == 2
    (warning,) = found.left_out.warnings()
    assert f"catalog/a{ending}.gz, catalog/b{ending}.gz). To have it read, remove one of the two" in warning
    # Behind a glob, which of the two is meant has to be said; who names both means both.
    with pytest.raises(UsageError, match=rf"a{ending}\.gz cannot be read .*beside the same file.*catalog/a{ending} is"):
        find_files([f"catalog/a{ending}*"])
    both = [f"catalog/a{ending}", f"catalog/a{ending}.gz"]
    assert names(find_files(both)) == both
    # What is named is read, and its twin in a folder is not.
    assert names(find_files([both[1], "catalog"])) == [both[1], f"catalog/b{ending}.bz2", f"catalog/c{ending}.gz"]


def test_one_file_by_several_spellings_is_read_once(workplace: Workplace, write: Write) -> None:
    first = write("a.jsonl")
    (workplace.folder / "link").symlink_to("catalog")
    (workplace.folder / "b.jsonl").symlink_to("catalog/a.jsonl")
    spellings = [
        *("catalog/a.jsonl", "./catalog/a.jsonl", "catalog//a.jsonl", "catalog/../catalog/a.jsonl", str(first)),
        *("catalog", "catalog/", "catalog/*", "link", "link/a.jsonl", "b.jsonl", f"file://{first}", "catalog/a.jsonl"),
    ]
    for spelling in spellings[1:]:
        found = find_files([spellings[0], spelling])
        assert names(found) == ["catalog/a.jsonl"], spelling
        assert "named twice and read once" in next(found.left_out.warnings())
    found = find_files(spellings)
    assert names(found) == ["catalog/a.jsonl"]
    assert len(found.left_out.doubled) == len(spellings) - 1
    assert names(find_files(["b.jsonl"])) == ["b.jsonl"]


@pytest.mark.parametrize(
    ("sign", "table", "way_out"),
    [
        ("_delta_log/00000000000000000000.json", "Delta", r"delta_scan\('catalog/t'\)"),
        ("metadata/v1.metadata.json", "Iceberg", r"iceberg_scan\('catalog/t'\)"),
        (".hoodie/hoodie.properties", "Hudi", "Spark"),
        ("snapshot/snapshot-1", "Paimon", "pypaimon"),
        ("data/ducklake-01990000-aaaa-7bbb-8ccc-0123456789ab.parquet", "DuckLake", "duckdb"),
    ],
)
def test_a_table_format_is_refused(workplace: Workplace, write: Write, sign: str, table: str, way_out: str) -> None:
    workplace.write_parquet("t/data/category=Coffee/part-0.parquet", products(1))
    write(f"t/{sign}", b"{}")
    for path in ("catalog", "catalog/t", "catalog/*", "*/t"):
        with pytest.raises(UsageError, match=f"catalog/t.* is a table of {table}: .*{way_out}"):
            find_files([path])
    (workplace.folder / "link").symlink_to("catalog/t/data/category=Coffee")
    (workplace.folder / "one.parquet").symlink_to("link/part-0.parquet")
    if table != "DuckLake":
        file = "data/category=Coffee/part-0.parquet"
        inner = ("data/category=Coffee", file, "data/*/*.parquet", "d*")
        for path in (*(f"catalog/t/{name}" for name in inner), "link", "link/part-0.parquet", "one.parquet", "one.*"):
            with pytest.raises(UsageError, match=f"catalog/t is a table of {table}"):
                find_files([path])
    else:
        for path in (f"catalog/t/{sign}", "catalog/t/data/*.parquet"):
            with pytest.raises(UsageError, match="is a table of DuckLake"):
                find_files([path])


def test_a_folder_that_cannot_be_listed_is_no_empty_one(workplace: Workplace, write: Write) -> None:
    write("a.jsonl")
    (workplace.catalog / "b").symlink_to("b")
    for path in ("catalog", "catalog/**/x.jsonl"):
        with pytest.raises(UsageError, match=r"cannot list|nothing matches"):
            find_files([path])


def test_a_run_that_writes_below_its_catalog_does_not_read_what_it_wrote(workplace: Workplace, write: Write) -> None:
    workplace.write_parquet("a.parquet", products(1))
    before = names(find_files(["catalog"]))
    for name in ("out/_plan.json", "out/_shards/000000.json", "out/report.json"):
        write(name, b"{}")
    for name in ("out/products/part-000000.parquet", "out.parquet", "outer/b.parquet"):
        workplace.write_parquet(name, products(1))
    found = find_files(["catalog"])
    assert names(found) == [*before, "catalog/out.parquet", "catalog/outer/b.parquet"]
    assert left_out(found)["file of a run"] == ["catalog/out/products/part-000000.parquet", "catalog/out/report.json"]
    assert names(find_files(["catalog/out/products"])) == ["catalog/out/products/part-000000.parquet"]
    # A glob finds no plan beside them, and a pilot's sample has none.
    own = ["catalog/out", "catalog/out.pilot"]
    workplace.write_parquet("out.pilot/sample.parquet", products(1))
    everything = [*before, "catalog/out.parquet", "catalog/outer/b.parquet"]
    assert names(find_files(["catalog"], outputs=own)) == everything
    assert names(find_files(["catalog/**/*.parquet"], outputs=own)) == everything
    assert names(find_files(["catalog/out/products/part-000000.parquet"], outputs=own)) == [
        "catalog/out/products/part-000000.parquet"
    ]
