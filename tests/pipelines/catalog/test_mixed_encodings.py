"""A file has one encoding: a row of UTF-8 in a file of another encoding is refused by its line, and no other row."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from pipelines.catalog.staging import stage, staged_path
from pipelines.catalog.text_files import is_misread_utf8
from pipelines.config.catalog_input import ReadOptions
from tests.tables import table


def test_a_row_of_utf8_is_refused_and_the_others_are_read(tmp_path: Path) -> None:
    lines = [b"id,title", *(text.encode("cp1252") for text in ("1,Größe", "2,Café")), "3,Größe".encode(), b"4,Shoe"]
    (tmp_path / "c.csv").write_bytes(b"\n".join(lines))
    rows = pq.read_table(
        staged_path(stage(str(tmp_path / "c.csv"), "csv", ReadOptions("csv", "cp1252")).name)
    ).to_pylist()
    assert [row["title"] for row in rows] == ["Größe", "Café", None, "Shoe"]
    assert "line 4: it is UTF-8, and the file is cp1252: write the file in one encoding" in rows[2]["_hpd_problem"]


@table("encoding", ["cp1252", "cp1250", "cp1251", "iso8859-1", "cp1254"])
def test_utf8_is_told_from_what_is_named(encoding: str) -> None:
    texts = ["Größe M", "GRÜN", "CAFÉ", "NOËL", "CAMIÓN", "NESCAFÉ®", "Łódź", "25 °C, Ø 5", "“x” – 100 €", "10 µm ±1 é"]
    for text in texts:
        assert is_misread_utf8(text.encode().decode(encoding, "surrogateescape"), encoding), text


@table(
    ("encoding", "texts"),
    [
        ("cp1252", ["NESCAFÉ®", "MAÇÃ verde", "Größe", "CORAÇÃO DE LÃ\xa0MERINO", "plain"]),
        ("cp1251", ["Размер", "«НИВ»", "ПВХ"]),
        ("iso8859-7", ["ΓΆΛΑ"]),
    ],
)
def test_what_is_named_is_read_as_such(encoding: str, texts: list[str]) -> None:
    for text in texts:
        assert not is_misread_utf8(text, encoding), text
