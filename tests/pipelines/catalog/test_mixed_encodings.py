"""A file has one encoding: a row of UTF-8 in a file of another encoding is refused by its line, and no other row."""

from __future__ import annotations

from pipelines.catalog.text_files import is_misread_utf8
from tests.tables import table


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
