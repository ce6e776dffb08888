"""What a file is, by its first bytes and its name."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile

import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.catalog.file_kinds import HEAD_BYTES
from pipelines.catalog.file_telling import kind_of
from tests.examples import examples
from tests.tables import table

LINE = b'{"id": "1", "title": "Velor shoe"}\n'
PACKED = gzip.compress(LINE, mtime=0)  # with the time, every worker of pytest would have other tests
TABLE = pa.table({"id": ["1"]})


def written(write: object) -> bytes:
    sink = io.BytesIO()
    write(TABLE, sink)  # type: ignore[operator]
    return sink.getvalue()


PARQUET = written(pq.write_table)


def zipped(name: str) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr(name, LINE)
    return sink.getvalue()


@table("name", ["a.jsonl", "a.ndjson", "a.json", "a.jl", "a.JSONLINES", "a.txt", "part-00000", "a.parquet"])
@table(
    "content",
    [
        LINE,
        b"\xef\xbb\xbf" + LINE,
        b"\n \r\n" + LINE,
        LINE[:-1],
        LINE.replace(b"\n", b"\r\n") * 3,
        b"{broken\n" + LINE,
        b'["header"]\n' + LINE,
        LINE.replace(b"Velor", "Größe".encode("latin-1")),
        b'{"id": ' + b"7" * 5000 + b"}\n",
        b'{"text": "' + b"x" * HEAD_BYTES,
        b"{}\n",
    ],
)
def test_json_lines_are_json_lines_whatever_their_name(name: str, content: bytes) -> None:
    assert kind_of(name, content).format == "jsonl"


@table(
    ("name", "content", "what", "way_out"),
    [
        ("a.parquet.gz", gzip.compress(PARQUET, mtime=0), "gzip around Parquet", "gunzip"),
        ("a.jsonl.gz", gzip.compress(PACKED, mtime=0), "gzip around gzip around JSON Lines", "gunzip"),
        ("a.jsonl.gz", PACKED[:3] + b"broken", "damaged gzip", "write it again"),
        ("a.json.gz", gzip.compress(b'[{"a": 1}]', mtime=0), "gzip around one JSON array", "gunzip"),
        ("a.parquet.bz2", bz2.compress(PARQUET), "bzip2 around Parquet", "bunzip2"),
        ("a.parquet.xz", lzma.compress(PARQUET), "xz around Parquet", "unxz"),
        ("a.parquet.zst", pa.compress(PARQUET, "zstd", asbytes=True), "zstd around Parquet", "unzstd"),
        ("a.parquet.lz4", pa.compress(PARQUET, "lz4", asbytes=True), "lz4 around Parquet", "unlz4"),
        ("a.jsonl.sz", b"\xff\x06\0\0sNaPpY", "snappy around JSON Lines", "snzip"),
        ("a.jsonl.zip", zipped("a.jsonl"), "zip around JSON Lines", "unzip"),
        ("a.parquet", b"PARE1234", "encrypted Parquet", "decrypt"),
        ("a.parquet", b"", "empty", "write it again"),
        ("a.parquet", b"<!DOCTYPE html>", "web page", "download the file again"),
        ("a.parquet", b"<?xml version='1.0'?><Error>", "XML", "Convert other XML"),
        ("a.parquet", b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "Git LFS pointer", "git lfs pull"),
        ("a.parquet", b"ORC\1\2\3", "ORC", "store it"),
        ("a.json", b'[{"a": 1},\n {"a": 2}]\n', "one JSON array", "jq -c '.[]'"),
        ("a.json", b'[{"a": 1}]', "one JSON array", "jq -c '.[]'"),
        ("a.json", b'[{"a": "' + b"x" * HEAD_BYTES, "one JSON array", "jq -c '.[]'"),
        ("a.json", b'{\n  "a": 1\n}\n', "one JSON object over several lines", "jq -c ."),
        ("a.json", b'{"a": [\n1]}', "one JSON object over several lines", "jq -c ."),
        ("a.jsonl", LINE.decode().encode("utf-16"), "text in UTF-16, not UTF-8", "iconv -f UTF-16 "),
        ("a", LINE.decode().encode("utf-16-le"), "text in UTF-16LE", "iconv -f UTF-16LE "),
        ("a.jsonl", LINE.decode().encode("utf-16-be"), "text in UTF-16BE", "iconv -f UTF-16BE "),
        ("a.jsonl", LINE.decode().encode("utf-32"), "text in UTF-32", "iconv -f UTF-32 "),
        ("a.jsonl", LINE.decode().encode("utf-32-be"), "text in UTF-32BE", "iconv -f UTF-32BE "),
        ("a.jsonl", LINE.replace(b"\n", b"\r") * 2, "end with CR alone", r"tr '\r' '\n'"),
        ("a.jsonl", b"\0" * 100, "NUL bytes", "copy it again"),
    ],
)  # fmt: skip
def test_what_was_meant_to_be_read_is_refused_with_the_way_out(
    name: str, content: bytes, what: str, way_out: str
) -> None:
    kind = kind_of(name, content[:HEAD_BYTES])
    assert kind.format is None
    assert what in kind.what
    assert way_out in kind.way_out
    assert kind.is_refused


@table(
    ("name", "content"),
    [
        # Names that begin as other formats do.
        ("a.csv", b"PARENT_SKU,title\n1,shoe\n"),
        ("a.csv", b"\xef\xbb\xbfORCID;title\r1;shoe\r"),
        ("a.tsv", b"id\tname\tDUCK\n1\ta\tb\n"),
        ("a.xls", b"id\ttitle\r\n1\tshoe\r\n"),
        ("a.txt", b"PARENT\ttitle\tbrand\n1\tshoe\tVelor\n"),
        # Whatever its cells hold, as the rows' own dead letters can tell.
        ("a.csv", b"id,title\n" + b"1,\0\1\2\3\4\5\6\7\n" * 9),
    ],
)
def test_a_row_of_column_names_makes_a_table(name: str, content: bytes) -> None:
    assert kind_of(name, content).format == "csv"


@table(
    ("name", "content", "what"),
    [
        ("a.tar.gz", gzip.compress(b"\0\1", mtime=0), "gzip"),
        ("a.orc", written(lambda table, sink: pyarrow.orc.write_table(table, sink)), "ORC"),
        ("a.feather", written(lambda table, sink: pyarrow.feather.write_feather(table, sink)), "Arrow IPC"),
        ("a.avro", b"Obj\1", "Avro"),
        ("a.docx", zipped("word/document.xml"), "Office file"),
        ("a.zip", zipped("a.csv"), "zip"),
        ("a.db", b"SQLite format 3\0", "SQLite"),
        ("part-00000", b"1,Velor shoe\n", "text"),
        ("a.bin", b"\1\2\3\4", "no known kind of data"),
        ("a.parquet.tmp", PARQUET, "unfinished"),
        ("a.jsonl.inprogress", LINE, "unfinished"),
        ("a.jsonl.part", LINE, "unfinished"),
        ("a.parquet.INCOMPLETE", PARQUET, "unfinished"),
        ("a.jsonl_.gstmp", LINE, "unfinished"),
        ("a.parquet.bak", PARQUET, "backup copy"),
        ("a.jsonl~", LINE, "backup copy"),
        ("a.geojson", b'{\n"type": 1\n}', "one JSON object over several lines"),
    ],
)
def test_other_data_is_left_out_and_warned_of(name: str, content: bytes, what: str) -> None:
    kind = kind_of(name, content)
    assert (kind.format, kind.is_data, kind.is_refused) == (None, True, False)
    assert what in kind.what


@table(
    ("name", "content"),
    [
        ("README", b"Read me"),
        ("README.md", b'# Data\n{"id": 1}\n'),
        ("LICENSE.txt", b"..."),
        ("notes.txt", b"hello"),
        ("a.png", b"\x89PNG\r\n\x1a\n"),
        ("a.png", b"version https://git-lfs.github.com/spec/v1\n"),
        ("a", b"\xff\xd8\xff\xe0"),
        ("a.md5", b"d41d8cd98f00b204e9800998ecf8427e\n"),
        ("a.ipynb", b'{\n "cells": []\n}'),
        ("Thumbs.db", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
        ("._a.parquet.x", b"\0\5\x16\7"),
        ("2024_$folder$", b""),
        ("a", b""),
    ],
)
def test_what_is_no_data_is_left_out(name: str, content: bytes) -> None:
    kind = kind_of(name, content)
    assert (kind.format, kind.is_data, kind.is_refused) == (None, False, False)


def test_the_configured_format_is_kept_or_refused() -> None:
    assert kind_of("a.txt", b"no json\n", "jsonl").format == "jsonl"
    assert kind_of("a.csv", LINE, "jsonl").format == "jsonl"
    assert kind_of("a", PARQUET, "parquet").format == "parquet"
    for name, content, configured in (
        ("a.parquet", PARQUET, "jsonl"),
        ("a.jsonl", LINE, "parquet"),
        ("a.csv", b"id\n", "parquet"),
        ("a.parquet.tmp", PARQUET, "parquet"),
        ("a.json", b"[\n1]", "jsonl"),
    ):
        assert kind_of(name, content, configured).is_refused  # type: ignore[arg-type]
    assert not kind_of("2024_$folder$", b"", "parquet").is_refused


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=300), st.sampled_from(["a", "a.jsonl", "a.parquet", "a.csv", "a.gz", "a.json.zst"]))
def test_any_bytes_are_of_some_kind(content: bytes, name: str) -> None:
    for start in (b"", b"\x1f\x8b", b"BZh", b"PAR1", b"\xfd7zXZ\0", b"{", b"[", b"\xff\xfe"):
        kind = kind_of(name, start + content)
        assert kind.what
        assert kind.way_out
        if kind.format is not None:
            assert not kind.is_refused


FEED = b'<?xml version="1.0"?><rss xmlns:g="http://base.google.com/ns/1.0"><channel><item/></channel></rss>'


@table(
    ("name", "content", "file_format"),
    [
        ("a.csv", b"id,title\n", "csv"),
        ("a.TSV", b"id\ttitle\n", "csv"),
        ("a.csv", b"", "csv"),
        ("a.csv", "id,größe\n".encode("latin-1"), "csv"),
        ("a.csv", "id;title\n1;x\n".encode("utf-16"), "csv"),
        ("a.csv", LINE, "jsonl"),
        ("a.csv", b"id,title\n1,a\0b and more than that\n", "csv"),
        ("a.csv.gz", gzip.compress(b"id,title\n", mtime=0), "csv"),
        ("a.jsonl.gz", PACKED, "packed jsonl"),
        ("a", PACKED, "packed jsonl"),
        ("a.json", PACKED, "packed jsonl"),
        ("a.jsonl.bz2", bz2.compress(LINE), "packed jsonl"),
        ("a.jsonl.xz", lzma.compress(LINE), "packed jsonl"),
        ("a.jl.zst", pa.compress(LINE, "zstd", asbytes=True), "packed jsonl"),
        ("a.jsonl.lz4", pa.compress(LINE, "lz4", asbytes=True), "packed jsonl"),
        ("a.csv.bz2", bz2.compress(b"id,title\n"), "csv"),
        ("a.tsv.zst", pa.compress(b"id\ttitle\n", "zstd", asbytes=True), "csv"),
        ("feed.txt", b"id\ttitle\tlink\n1\ta\tb\n2\tc\td\n", "csv"),
        ("feed.xml", FEED, "xml"),
        ("feed", FEED.decode().encode("utf-16"), "xml"),
        ("feed.xml.gz", gzip.compress(FEED, mtime=0), "xml"),
        ("a.xlsx", zipped("xl/workbook.xml"), "excel"),
        ("a.ods", zipped("content.xml"), "excel"),
    ],
)
def test_what_is_read_from_its_beginning_on(name: str, content: bytes, file_format: str) -> None:
    assert kind_of(name, content).format == file_format


def test_a_format_that_is_named_needs_no_ending() -> None:
    assert kind_of("dump", b"id,title\n", "csv").format == "csv"
    assert kind_of("dump.txt.gz", gzip.compress(b"id,title\n", mtime=0), "csv").format == "csv"
    assert kind_of("dump.gz", PACKED, "jsonl").format == "packed jsonl"
    assert kind_of("a.csv", PARQUET, "csv").is_refused
