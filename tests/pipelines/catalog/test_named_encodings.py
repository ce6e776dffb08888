"""Where an encoding is named, a file is read once to know whether it is that, and not at each command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipelines.catalog.staging import stage, staged_path
from pipelines.config.catalog_input import InputConfig

ROWS = {
    "ascii": "id,title\n1,Plain shoe\n2,More\n",
    "letters": "id,title\n1,Größe\n2,Café\n",
    "chinese": "编号,标题\n1,你好\n2,红鞋\n",
}
SOURCE = {"path": "c.csv", "category": {"text": "-"}, "fields": {"-": {"text": "-"}}}
WIDE = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")


@pytest.fixture
def staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes, str], tuple[str, str]]:
    """The encoding that a file is read in where one is named, and its rows as they stand there."""
    monkeypatch.setenv("HPD_CACHE", str(tmp_path / "cache"))

    def stage_it(data: bytes, named: str) -> tuple[str, str]:
        (tmp_path / "c.csv").write_bytes(data)
        found = stage(str(tmp_path / "c.csv"), "csv", InputConfig.model_validate(SOURCE | {"encoding": named}))
        rows = pq.read_table(staged_path(found.name)).to_pylist()
        names = [name for name in rows[0] if name in ("id", "title", "编号", "标题")]
        lines = [",".join(names), *(",".join(str(row[name]) for name in names) for row in rows)]
        return str(found.facts["encoding"]).lower().replace("-", ""), "\n".join(lines) + "\n"

    return stage_it


@pytest.mark.parametrize("text", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("named", [*WIDE, "cp037"])
def test_utf8_is_read_as_such_where_a_wide_encoding_is_named(
    staged: Callable[[bytes, str], tuple[str, str]], named: str, text: str
) -> None:
    for written in ("utf-8", "utf-8-sig"):
        assert staged(text.encode(written), named) == ("utf8", text)


@pytest.mark.parametrize("text", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("named", WIDE)
def test_what_is_named_is_read_with_a_mark_and_without(
    staged: Callable[[bytes, str], tuple[str, str]], named: str, text: str
) -> None:
    """ASCII in UTF-16 is UTF-8, too, as bytes go: with zeros, which no text in UTF-8 has."""
    assert staged(text.encode(named), named)[1] == text
    if named.endswith("e"):  # it has no mark by itself
        assert staged(("\ufeff" + text).encode(named), named)[1] == text


@pytest.mark.parametrize(("named", "text"), [("gb18030", "chinese"), ("big5", "chinese"), ("euc_jp", "chinese")])
def test_utf8_is_told_from_encodings_of_several_bytes_a_letter(
    staged: Callable[[bytes, str], tuple[str, str]], named: str, text: str
) -> None:
    assert staged(ROWS[text].encode(), named) == ("utf8", ROWS[text])
    own = "id,title\n1,大\n" if named != "gb18030" else ROWS[text]
    assert staged(own.encode(named), named)[1] == own
    # C4 A3 are a letter in either (ģ in UTF-8): it is what is named.
    assert staged("id,title\n1,模\n".encode("gb18030"), "gb18030")[1] == "id,title\n1,模\n"


def test_what_was_told_for_one_name_is_not_taken_for_another(
    staged: Callable[[bytes, str], tuple[str, str]],
) -> None:
    data = ROWS["letters"].encode()
    assert [staged(data, named)[0] for named in ("gb18030", "utf-16", "cp1252")] == ["gb18030", "utf8", "utf8"]
