"""A row of UTF-8 in a file of another encoding is mended where that is clear, and no other row."""

from __future__ import annotations

from pipelines.catalog.text_files import decoded, mended_record
from tests.tables import table


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, size: int) -> bytes:
        data, self._data = self._data[:size], self._data[size:]
        return data


def read_as(data: bytes, encoding: str) -> str:
    text = "".join(decoded(_Bytes(data), encoding))  # type: ignore[arg-type]
    mended = mended_record(f"1;{text}\n", ["1", text], encoding)
    assert mended is None or mended[0] == f"1;{mended[1][1]}\n"
    return text if mended is None else mended[1][1]


@table(
    ("encoding", "texts"),
    [
        ("cp1252", ["CASACO DE LÃ\xa0MERINO", "LÃ\xa0 MERINO", "LÃ\xa0merino", "Ã\xa0la carte", "AVELÃ® 50%", "LÃ»"]),
        ("cp1252", ["LÃ´S", "LÃ–MERINO", "LÃ… MERINO", "NESCAFÉ®", "BLÅ®", "BLÅ»", "Ã\xa0", "MAÇÃ verde", "Größe"]),
        ("cp1250", ["CASĂ…", "MARCĂ”x", "abc Ă™", "PĂŞTE", "CASĂ–casă"]),
        ("cp1251", ["Г»", "В°", "Размер", "Д…", "ГІ"]),
        ("iso8859-7", ["ΓΆ", "Β·"]),
        ("utf-7", ["Größe"]),
    ],
)
def test_what_reads_well_as_it_was_named_stays(encoding: str, texts: list[str]) -> None:
    assert [read_as(text.encode(encoding), encoding) for text in texts] == texts


@table("encoding", ["cp1252", "cp1250", "cp1251", "iso8859-1", "cp1254"])
def test_what_looks_odd_as_it_was_named_is_mended(encoding: str) -> None:
    texts = [
        "Größe M",
        "GRÜN",
        "MÄDCHEN",
        "CAFÉ",
        "NOËL",
        "CRÈME",
        "CAMIÓN",
        "NIÑO",
        "café",
        "Éclair",
        "NESCAFÉ®",
        "Łódź",
    ]
    texts += ["25 °C, Ø 5", "“x” – 100 €", "Mañana", "São Paulo", "Ünlü çanta", "Straße", "10 µm ±1 é"]
    assert [read_as(text.encode(), encoding) for text in texts] == texts
