"""The commit protocol, without Ray: attempts may crash anywhere, race each other, and be repeated."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.errors import UsageError
from pipelines.store.folders import Folder
from pipelines.store.isolation import Span, Try
from pipelines.store.ledger import History, Ledger
from pipelines.store.tables import EncodedTable
from tests.tables import table

TABLES = ("attributes", "products")


class CrashError(Exception):
    """The process dies here."""


def tables(shard: int, attempt: str) -> dict[str, EncodedTable]:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"shard": [shard], "attempt": [attempt]}), buffer)
    return {name: EncodedTable(buffer.getvalue(), num_rows=1) for name in TABLES}


def commit(ledger: Ledger, shard: int, attempt: str) -> None:
    counts = {"rows": 1, "products": 1, "dead_letters": 0, "statuses": {}, "reasons": {}}
    ledger.commit(shard, attempt, tables(shard, attempt), {"counts": counts, "metrics": {}})


def published(folder: Path) -> dict[int, list[str]]:
    """Shard -> the attempts that its rows come from, one per table."""
    found: dict[int, list[str]] = {}
    for name in TABLES:
        for path in sorted(folder.glob(f"{name}/*.parquet")):
            for row in pq.read_table(path).to_pylist():
                found.setdefault(row["shard"], []).append(row["attempt"])
    return found


def recover(ledger: Ledger) -> None:
    """What the driver does at the end of every session."""
    for _ in ledger.publish_missing(ledger.manifests(ledger.committed())):
        pass


def test_a_copy_whose_temporary_name_is_swept_away_under_it_is_published_all_the_same(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    commit(Ledger(folder, "s"), 0, "a")

    class Swept(Folder):
        def _link(self, *arguments: Any, **named: Any) -> bool:
            linked = super()._link(*arguments, **named)
            self.remove_half_written("attributes")
            self.remove_half_written("products")
            return linked

    zombie = Ledger(Swept(str(tmp_path)), "t")
    zombie.publish(zombie.manifest(0))
    assert published(tmp_path) == {0: ["a", "a"]}


def test_tries_count_over_sessions_and_their_ends_are_remembered_within_one(tmp_path: Path) -> None:
    first = Ledger(Folder(str(tmp_path)), "aaaa")
    assert first.history(5) == History(0, [])
    whole, half = Span(0, 8), Span(0, 4)
    first.end_try(5, first.begin_try(5, 1, whole), "RuntimeError: boom")
    first.end_try(5, first.begin_try(5, 2, half))
    first.begin_try(5, 3, Span(4, 8))
    tries = [Try(whole, False, "RuntimeError: boom"), Try(half, True), Try(Span(4, 8), False)]
    assert first.history(5) == History(3, tries)
    second = Ledger(Folder(str(tmp_path)), "bbbb")
    assert second.history(5) == History(3, [])
    second.begin_try(5, 4, whole)
    assert second.history(5) == History(4, [Try(whole, False)])
    assert first.history(5) == History(4, tries)
    assert first.history(6) == History(0, [])


def test_a_part_that_is_done_again_is_no_progress(tmp_path: Path) -> None:
    ledger = Ledger(Folder(str(tmp_path)), "aaaa")
    assert ledger.num_parts_done() == 0
    for number, span in enumerate([Span(0, 4), Span(0, 4), Span(4, 8)], start=1):
        ledger.end_try(5, ledger.begin_try(5, number, span))
    ledger.end_try(5, ledger.begin_try(5, 4, Span(8, 12)), "boom")
    ledger.end_try(6, ledger.begin_try(6, 1, Span(0, 4)))
    assert ledger.num_parts_done() == 3


ENGINE: dict[str, Any] = {"model_id": "m", "dtype": "float32", "layout": "tree", "device": "cpu"}


@table(("change", "is_fine"), [({}, True), ({"device": "cuda"}, True), ({"dtype": "bfloat16"}, False)])
def test_all_engines_of_a_run_must_answer_alike(tmp_path: Path, change: dict[str, Any], is_fine: bool) -> None:
    ledger = Ledger(Folder(str(tmp_path)), "s")
    ledger.check_engine(ENGINE)
    check: Callable[[], None] = lambda: ledger.check_engine(ENGINE | change)  # noqa: E731
    if is_fine:
        check()
    else:
        with pytest.raises(UsageError, match="was begun with dtype 'float32', this engine has 'bfloat16'"):
            check()
    assert ledger.engine() == ENGINE
