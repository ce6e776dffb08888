"""Files that are read from their beginning on: kept once, read in pieces, known by their content, never half."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.catalog.csv_files import CsvFile
from pipelines.catalog.input_files import SourceFile, Sources, scan_sources
from pipelines.catalog.readers import read_piece
from pipelines.catalog.rows import SourceRow
from pipelines.catalog.sharding import RowRange, plan_shards
from pipelines.config.catalog_input import InputConfig
from pipelines.config.operation import ShardConfig
from pipelines.errors import UsageError
from tests.examples import examples
from tests.pipelines.conftest import Workplace

HEADER = "id,category,title\n"
ROWS = "".join(f'{number},Shoes,"Shoe {number}, red"\n' for number in range(5))


pytestmark = pytest.mark.usefixtures("own_cache")


def scan(path: Path, **settings: Any) -> Sources:
    return scan_sources(InputConfig.model_validate({"path": str(path), "id": "id", "fields": ["title"]} | settings))


def write(workplace: Workplace, name: str, data: bytes) -> Path:
    workplace.catalog.mkdir(exist_ok=True)
    path = workplace.catalog / name
    path.write_bytes(data)
    return path


def rows_of(file: SourceFile, start: int = 0, stop: int | None = None, columns: Any = None) -> list[SourceRow]:
    stop = file.stop if stop is None else stop
    every = read_piece(*file.rows, RowRange(0, 0, file.stop, file.num_rows), columns)
    count = sum(start <= row.number < stop for row in every)
    return list(read_piece(*file.rows, RowRange(0, start, stop, count), columns))


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("c.csv", lambda data: data),
        ("c.csv.gz", gzip.compress),
        ("c.csv.gz", lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:])),
        ("c.csv.bz2", bz2.compress),
        ("c.csv.xz", lzma.compress),
        ("c.csv.zst", lambda data: pa.compress(data, "zstd", asbytes=True)),
        (
            "c.csv.zst",
            lambda data: pa.compress(data[:9], "zstd", asbytes=True) + pa.compress(data[9:], "zstd", asbytes=True),
        ),
        ("c.csv.lz4", lambda data: pa.compress(data, "lz4", asbytes=True)),
    ],
)
def test_rows_are_read_as_they_stand_however_they_are_packed(
    workplace: Workplace, name: str, pack: Callable[[bytes], bytes]
) -> None:
    path = write(workplace, name, pack((HEADER + ROWS).encode()))
    (file,) = scan(path).files
    assert (file.name, file.format, file.num_rows, file.num_sampled) == (str(path), "csv", 5, 5)
    assert [(row.number, row.values) for row in rows_of(file)] == [
        (number, {"id": str(number), "category": "Shoes", "title": f"Shoe {number}, red"}) for number in range(5)
    ]
    assert [row.number for row in rows_of(file, 1, 3)] == [1, 2]
    assert rows_of(file, 4, columns=["title"])[0].values == {"title": "Shoe 4, red"}
    assert [row.number for row in read_piece(*file.rows, RowRange(0, 0, 5, 5), ["id"], numbers=[1, 4])] == [1, 4]


def test_an_encoding_is_never_guessed(workplace: Workplace) -> None:
    path = write(workplace, "c.csv", f"{HEADER}1,Shoes,plain\n2,Shoes,Größe\n".encode("cp1252"))
    for told, encoding in (("utf-8", None), ("utf-8", "utf-8"), ("ascii", "ascii")):
        with pytest.raises(UsageError, match=rf"c\.csv, line 3: the file is not {told}: byte 0xf6 .*encoding: cp1252"):
            scan(path, encoding=encoding)


def test_rows_of_utf8_in_a_file_of_another_encoding_are_refused(workplace: Workplace) -> None:
    """As files are that were put together of two: nobody wants "GrÃ¶ÃŸe"."""
    lines = [b"1,Shoes,Gr\xf6\xdfe", "2,Shoes,Größe ″".encode(), b"3,Shoes,plain", b"4,Shoes,CAF\xc9\xae"]
    path = write(workplace, "c.csv", HEADER.encode() + b"\n".join(lines))
    (file,) = scan(path, encoding="cp1252").files
    rows = list(rows_of(file))
    assert [(row.values or {}).get("title") for row in rows] == ["Größe", None, "plain", "CAFÉ®"]
    assert rows[1].problem is not None
    assert "line 3" in rows[1].problem.message


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("header", [HEADER, '"id","category","title"\n'])
def test_names_of_columns_that_stand_again_are_no_product(workplace: Workplace, mark: str, header: str) -> None:
    """As in files that were joined; a product may be called as a column is."""
    text = f"{header}1,Shoes,a\n{mark}{header}2,Shoes,title\nid,Shoes,title\n"
    (file,) = scan(write(workplace, "c.csv", text.encode())).files
    rows = rows_of(file)
    assert [row.number for row in rows if row.values is not None] == [0, 2, 3]
    assert rows[1].problem is not None
    assert rows[1].problem.message == "line 3: the names of the columns stand here again"


def test_single_quotes_are_found(workplace: Workplace) -> None:
    lines = "".join(f"'{number}','Shoes','Shoe {number}, red'\n" for number in range(5))
    (file,) = scan(write(workplace, "c.csv", (HEADER + lines).encode())).files
    assert [(row.values or {})["title"] for row in rows_of(file)] == [f"Shoe {number}, red" for number in range(5)]
    # Where they are letters, they stay.
    lines = "".join(f"{number},Shoes,'n Roll d'Or {number}'\n" for number in range(5))
    (file,) = scan(write(workplace, "d.csv", (HEADER + lines).encode())).files
    assert (rows_of(file)[3].values or {})["title"] == "'n Roll d'Or 3'"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_what_is_not_in_its_encoding_at_all_is_refused(workplace: Workplace, encoding: str) -> None:
    path = write(workplace, "c.csv", HEADER.encode() + b"1,Shoes,Gr\xf6\xdfe\n")
    with pytest.raises(UsageError, match=rf"c\.csv, line 1: the file is not {encoding}: .*utf-16-le"):
        scan(path, encoding=encoding)


@pytest.mark.parametrize(
    ("rows", "is_refused"),
    [
        ('{n},Shoes,"a, b"\n', True),
        ('{n},Shoes,"a"\n', True),
        ('{n},Shoes,"a" shoe\n', False),
        ('{n},Shoes,12" pan\n', False),
    ],
)
def test_a_quote_that_is_not_closed_does_not_decide_over_a_whole_file(
    workplace: Workplace, rows: str, is_refused: bool
) -> None:
    """Whether quotes mean something is found out by the first rows; the others may say otherwise."""
    beginning = f'{HEADER}1,Shoes,"open\n' + "2,Shoes,plain\n" * 20_000
    path = write(workplace, "c.csv", (beginning + "".join(rows.format(n=n) for n in range(3, 6))).encode())
    if is_refused:
        with pytest.raises(UsageError, match="line 20,003 has a cell in quotes, and line 2 a quote that is not closed"):
            scan(path)
    else:
        assert not scan(path).files[0].dead_in_sample.rows
    (file,) = scan(path, quote='"').files
    broken = [row for row in rows_of(file) if row.problem is not None]
    assert (file.num_rows, len(broken)) == (20_004, 4 if "shoe" in rows else 1)


def test_columns(workplace: Workplace) -> None:
    path = write(workplace, "c.csv", b"id, title ,,note,note,a.b\n1,x,y,n1,n2,z\n")
    (file,) = scan(path, category="id", fields=["title", "column 3", "a.b"]).files
    assert rows_of(file)[0].values == {
        "id": "1",
        "title": "x",
        "column 3": "y",
        "note": "n1",
        "note (2)": "n2",
        "a.b": "z",
    }
    assert rows_of(file, columns=["a.b", "id"])[0].values == {"id": "1", "a.b": "z"}
    with pytest.raises(UsageError, match=r"column 'note' .*stands 2 times in .*c\.csv"):
        scan(path, category="id", fields=["note"])
    with pytest.raises(
        UsageError, match=r"column 'name' \(input.fields\) is not in .*its columns: id, title, column 3"
    ):
        scan(path, category="id", fields=["name"])
    with pytest.raises(UsageError, match="a name that is ours"):
        scan(write(workplace, "c.csv", b"id,_hpd_row\n1,2\n"))


def test_what_has_not_changed_is_read_once(
    workplace: Workplace, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []
    before = CsvFile.write
    monkeypatch.setattr(CsvFile, "write", lambda self, target: (written.append(target), before(self, target))[1])
    path = write(workplace, "c.csv", (HEADER + ROWS).encode())
    (first,) = scan(path).files
    path.touch()
    (again,) = scan(path, fields=["id"], delimiter=",").files
    assert (again.staged, again.fingerprint, len(written)) == (first.staged, first.fingerprint, 1)
    (other,) = scan(path, encoding="latin-1").files
    write(workplace, "c.csv", (HEADER + ROWS + "9,Shoes,new\n").encode())
    (changed,) = scan(path).files
    assert len({first.staged, other.staged, changed.staged}) == 3 == len(written)
    assert changed.fingerprint != first.fingerprint
    assert {each.name for each in own_cache.glob("*.parquet")} == {first.staged, other.staged, changed.staged}


def test_a_half_written_file_is_never_taken_for_a_whole_one(
    workplace: Workplace, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever dies while writing leaves at most a file of another name, which goes away in time."""
    path = write(workplace, "c.csv", (HEADER + ROWS).encode())

    def dies(self: CsvFile, target: Path) -> None:
        target.write_bytes(b"PAR1 half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(CsvFile, "write", dies)
        with pytest.raises(KeyboardInterrupt):
            scan(path)
    assert list(own_cache.iterdir()) == []
    killed, unused = own_cache / ".x.parquet.1.tmp", own_cache / "old.parquet"
    for left in (killed, unused):
        left.write_bytes(b"PAR1 half")
        os.utime(left, (0, time.time() - 15 * 24 * 3600))
    (file,) = scan(path).files
    assert [each.name for each in own_cache.iterdir()] == [file.staged]


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_cut_into_shards_covers_every_row_once(workplace: Workplace, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 60))
    buffer = io.StringIO()
    csv.writer(buffer).writerows([("id", "category", "title"), *((n, "Shoes", "x" * (n % 7)) for n in range(count))])
    file = scan(write(workplace, "c.csv", buffer.getvalue().encode())).files[0]
    limit = data.draw(st.none() | st.integers(1, 70))
    config = ShardConfig(target_tokens=data.draw(st.integers(1, 200)))
    pieces = [piece for shard in plan_shards([file], config, 3, 1, limit) for piece in shard.pieces]
    found = [row.number for piece in pieces for row in read_piece(*file.rows, piece, ["id"])]
    assert found == list(range(min(count, limit or count)))


def test_rows_of_a_file_that_is_still_written_are_not_kept_as_those_of_its_beginning(
    workplace: Workplace, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read = write(workplace, "c.csv", (HEADER + ROWS).encode()), CsvFile.write

    def write_on(file: CsvFile, scratch: Path) -> None:
        path.write_text(HEADER + ROWS + "9,Shoes,late\n")
        read(file, scratch)

    with monkeypatch.context() as patch:
        patch.setattr(CsvFile, "write", write_on)
        with pytest.raises(
            UsageError, match="has changed while it was read; start again when it is written to its end"
        ):
            scan(path)
    assert not list(own_cache.glob("*.parquet*"))
    path.write_text(HEADER + ROWS)
    assert [file.num_rows for file in scan(path).files] == [5]
