"""What a file is, by its first bytes and its name."""

from __future__ import annotations

import bz2
import gzip
import io
import zipfile

import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.catalog.file_kinds import HEAD_BYTES, kind_of
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


@table(
    ("name", "content", "what", "way_out"),
    [
        ("a.parquet.gz", gzip.compress(PARQUET, mtime=0), "gzip around Parquet", "gunzip"),
        ("a.jsonl.gz", PACKED[:3] + b"broken", "damaged gzip", "write it again"),
        ("a.json.gz", gzip.compress(b'[{"a": 1}]', mtime=0), "gzip around one JSON array", "gunzip"),
        ("a.parquet.bz2", bz2.compress(PARQUET), "bzip2 around Parquet", "bunzip2"),
        ("a.parquet.zst", pa.compress(PARQUET, "zstd", asbytes=True), "zstd around Parquet", "unzstd"),
        ("a.jsonl.sz", b"\xff\x06\0\0sNaPpY", "snappy around JSON Lines", "snzip"),
        ("a.jsonl.zip", zipped("a.jsonl"), "zip around JSON Lines", "unzip"),
        ("a.parquet", b"PARE1234", "encrypted Parquet", "decrypt"),
        ("a.parquet", b"", "empty", "write it again"),
        ("a.parquet", b"<!DOCTYPE html>", "web page", "download the file again"),
        ("a.parquet", b"<?xml version='1.0'?><Error>", "XML", "Convert other XML"),
        ("a.parquet", b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "Git LFS pointer", "git lfs pull"),
        ("a.parquet", b"ORC\1\2\3", "ORC", "store it"),
        ("a.json", b'[{"a": 1},\n {"a": 2}]\n', "one JSON array", "jq -c '.[]'"),
        ("a.json", b'[{"a": "' + b"x" * HEAD_BYTES, "one JSON array", "jq -c '.[]'"),
        ("a.json", b'{\n  "a": 1\n}\n', "one JSON object over several lines", "jq -c ."),
        ("a.jsonl", LINE.decode().encode("utf-16"), "text in UTF-16, not UTF-8", "iconv -f UTF-16 "),
        ("a", LINE.decode().encode("utf-16-le"), "text in UTF-16LE", "iconv -f UTF-16LE "),
        ("a.jsonl", LINE.decode().encode("utf-32"), "text in UTF-32", "iconv -f UTF-32 "),
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
