"""Runs that are not finished, or not published yet, are compared as far as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.comparing.comparison import compare_runs
from pipelines.errors import UsageError
from tests.pipelines.comparing.made_runs import Row, write_run


def test_shards_that_are_not_published_yet_are_said_to_be_left_out(tmp_path: Path) -> None:
    rows = [Row(f"p{index}", {"Brand": "Acme"}) for index in range(10)]
    a, b = (write_run(tmp_path / name, rows, price=3.6) for name in "ab")
    (tmp_path / "b" / "manifest.json").unlink()
    for shard in (1, 3):
        (tmp_path / "b" / "attributes" / f"part-{shard:06d}.parquet").unlink()
    comparison = compare_runs(a, b)
    assert (comparison.rows.both, comparison.rows.only_a, comparison.rows.rows_b) == (6, 4, 6)
    assert comparison.notes[0].startswith("B is not finished, and nobody works on it: 10 of 10 rows are committed")
    assert comparison.notes[1] == "B: 2 shards are committed and not published yet; their 4 rows are left out"
    found = comparison.b.figures
    assert (found.shards, found.products, found.decoded, found.dead_letters) == (2, 6, 6, 0), "of those that are read"
    assert (found.billed_seconds, found.is_metered, found.is_priced) == (20, True, True)
    for shard in (0, 2):
        (tmp_path / "b" / "products" / f"part-{shard:06d}.parquet").unlink()
    with pytest.raises(UsageError, match="has not published any of its 4 committed shards yet"):
        compare_runs(a, b)
