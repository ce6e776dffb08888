"""Keys and values in tables of two columns, found in a time that grows with the text and no faster."""

from __future__ import annotations

import time

from pipelines.profiling.key_values import table_pairs
from tests.tables import table


@table(
    "piece",
    [
        "<dt>a ",
        "<dt ",
        "<dt>a<dd>b",
        "<dt>a</dt ",
        "<tr ",
        "<tr><td ",
        "<tr><td>a",
        "|a",
        "a\t",
        "|a|:|\n|:|:|\n",
        "|a|b   ",
    ],
)
def test_the_time_grows_with_the_text(piece: str) -> None:
    """What goes back at every place takes minutes for a text of this length."""
    text = piece * (400_000 // len(piece))
    begin = time.perf_counter()
    list(table_pairs(text))
    list(table_pairs(f"{piece}|a|{' ' * 200_000}|b|c"))
    list(table_pairs(f"<dt>a</dt>{' ' * 200_000}x"))
    assert time.perf_counter() - begin < 20
