"""A file of which some rows are UTF-8 and others not is filled as it was read, each row in its own encoding."""

from __future__ import annotations

from pathlib import Path

from hpd_core import Attribute, CategorySchema
from tests.pipelines.comparing.made_runs import Row
from tests.pipelines.exporting.made_runs import exported, write_shop_run
from tests.tables import table

SCHEMAS = {"A": CategorySchema(category="A", attributes=(Attribute(name="Color"),))}
COLOR = b"Color (product.metafields.custom.color)"


def fill(folder: Path, data: bytes, rows: list[Row], id_column: str | None) -> tuple[bytes, dict[str, int]]:
    path = folder / "shop.csv"
    path.write_bytes(data)
    uri = write_shop_run(folder / "run", path, "csv", id_column, rows, schemas=SCHEMAS)
    plan = folder / "run" / "_plan.json"
    plan.write_text(plan.read_text().replace('"fields"', '"encoding": "cp1252", "fields"'))
    result = exported(uri, "--to", "shopify", "--out", str(folder / "new.csv"))
    return (folder / "new.csv").read_bytes(), result["left_out"]


@table("id_column", ["Handle", None])
def test_each_row_is_filled_in_its_own_encoding(tmp_path: Path, id_column: str | None) -> None:
    ids = ["a", "grün-2", "c"] if id_column else [f"shop:{number}" for number in (0, 1, 3)]
    rows = [Row(ids[index], {"Color": "weiß"}, "", "A", number) for index, number in enumerate((0, 1, 3))]
    lines = [b"Handle,Title", "a,Größe S".encode("cp1252"), "grün-2,Größe M".encode(), b"Handle,Title", b"c,T"]
    told = [COLOR, b"wei\xdf", "weiß".encode(), COLOR, b"wei\xdf"]
    filled, _ = fill(tmp_path, b"\n".join(lines), rows, id_column)
    assert filled == b"\n".join(b",".join(pair) for pair in zip(lines, told, strict=True))


def test_letters_that_would_hide_that_a_row_is_utf8_are_left_out(tmp_path: Path) -> None:
    data = "Handle,Title\na,Größe\n".encode("cp1252") + "b,Größe\n".encode()
    filled, left_out = fill(tmp_path, data, [Row("b", {"Color": "日本"}, "", "A", 1)], "Handle")
    assert left_out == {"letters that the file's encoding does not have": 1}
    assert "b,Größe,\n".encode() in filled
