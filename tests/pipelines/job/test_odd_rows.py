"""A run over rows as real files have them: digits that no number type holds, cut lines, bytes for text."""

from __future__ import annotations

import decimal
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.pipelines.conftest import Workplace, product, read_table

LONG = "7" * 5000


def line(number: int, old: str = "", new: str = "", **changes: Any) -> str:
    """A row as JSON, with a part of it written otherwise."""
    return json.dumps(product(number, **changes)).replace(old, new)


# Each with the reason and a part of the message; None for a product.
LINES: list[tuple[bytes, str | None, str]] = [
    (line(0).encode(), None, ""),
    (line(1, '"p1"', LONG).encode(), None, ""),
    (line(2, '"p2"', f'"p2", "stock": {LONG}').encode(), None, ""),
    (line(3, '"p3"', '"p3", "note": "\\ud83d", "note": 1').encode(), None, ""),
    (line(4, '"p4"', "4.0").encode(), None, ""),
    (line(5, '"p5"', "4.5").encode(), "wrong_type", "not the number 4.5"),
    (
        line(6, '"p6"', '"p6", "title": "other"').encode(),
        "doubled_column",
        "column 'title': it stands twice in the line",
    ),
    (line(7, '"light"', "-Infinity").encode(), "wrong_type", "infinity is none"),
    (line(8)[:-9].encode(), "broken_line", "it is cut off"),
    ((line(9) + line(10)).encode(), "broken_line", "Extra data at character"),
    (line(11).replace("Velor", "Größe").encode("cp1252"), "broken_line", "looks like Windows-1252"),
    (line(12, title="\ud83d").encode(), "wrong_type", "half a surrogate pair"),
    (b"\xef\xbb\xbf" + line(13).encode() + b"\r", None, ""),
    (b'{"a":' * 5000, "broken_line", "nested too deeply"),
]


def write_catalog(workplace: Workplace) -> None:
    folder = workplace.catalog
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b"\n".join(data for data, _, _ in LINES) + b"\n")
    count = 4
    table = pa.table(
        {
            "id": pa.array([decimal.Decimal(20), decimal.Decimal("21.00"), decimal.Decimal("22.5"), None]),
            "category": pa.array([b"Shoes", b"Coffee", b"Shoes", b"Shoes"]),
            "title": pa.array([0.1, 12.99, 3.0, float("nan")], pa.float32()),
            "bullets": pa.array([[b"a"], [b"M\xc3\xbcsli"], [b"b"], [b"M\xfcsli"]], pa.list_(pa.binary())),
            "left": pa.array(["x"] * count),
            "right": pa.array(["y"] * count),
        }
    ).rename_columns(["id", "category", "title", "bullets", "side", "side"])
    pq.write_table(table, folder / "b.parquet")


def test_odd_rows_are_products_or_dead_letters_and_the_run_ends(workplace: Workplace) -> None:
    write_catalog(workplace)
    changes: dict[str, Any] = {
        "decoding": "made-up",
        "max_dead_letter_share": 1,
        "shards": {"target_tokens": 400, "ramp": []},
    }
    outcome = workplace.run(**changes)
    output = workplace.folder / "out"
    assert outcome.discrepancy is None
    assert (outcome.totals.rows, outcome.totals.products, outcome.totals.dead_letters) == (18, 8, 10)

    dead = {(Path(row["source_file"]).name, row["source_row"]): row for row in read_table(output, "dead_letter")}
    for number, (data, code, message) in enumerate(LINES):
        row = dead.get(("a.jsonl", number))
        assert (row and row["error_code"]) == code, data
        if row is not None:
            assert message in row["error"]
            assert row["row_json"] == data.decode(errors="replace").strip()
    assert dead["b.parquet", 2]["error_code"] == "wrong_type"
    assert json.loads(dead["b.parquet", 2]["row_json"]) == {
        **{"id": "22.50", "category": "Shoes", "title": 3.0, "bullets": ["b"], "side": "x", "side (2)": "y"},
    }
    assert (dead["b.parquet", 3]["error_code"], dead["b.parquet", 3]["category"]) == ("null_id", "Shoes")
    ids = [row["product_id"] for row in read_table(output, "products")]
    assert ids == ["p0", LONG, "p2", "p3", "4", "p13", "20", "21"]
    assert workplace.run(**changes).was_finished
