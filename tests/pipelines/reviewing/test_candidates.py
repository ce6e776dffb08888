"""Which answers of a run's tables are held for review."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipelines.job.run import Run
from pipelines.reviewing.candidates import Candidates, draw_sample, find_candidates
from pipelines.store.tables import to_table
from tests.pipelines.reporting.made_runs import Answer
from tests.pipelines.reviewing.made_runs import coffee, reviewable_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return reviewable_run(tmp_path, [[coffee(0), coffee(1)], [coffee(2), coffee(3)]])


def rows_of(found: Candidates, attribute: str) -> list[int]:
    (line,) = [line for line in found.lines if line[0].key.attribute == attribute]
    return [candidate.key.source_row for candidate in line]


def edit(run: Path, shard: int, **cells: object) -> None:
    path = run / "attributes" / f"part-{shard:06d}.parquet"
    pq.write_table(to_table("attributes", [row | cells for row in pq.read_table(path).to_pylist()]), path)


def test_where_precision_is_asked_for_those_that_are_to_be_reviewed_wait_alone(run: Path) -> None:
    edit(run, 0, decision="accept")
    edit(run, 1, decision="review", confidence=0.4)
    found = find_candidates(Run.open(str(run)).parts, {})
    assert found.kind == "review"
    assert rows_of(found, "Brand") == [2, 3]
    assert {each.certainty for line in found.lines for each in line} == {0.4}


def test_of_more_than_can_be_held_the_least_certain_are_and_those_reviewed_do_not_count(tmp_path: Path) -> None:
    run = reviewable_run(tmp_path, [[coffee(number % 10, Weight=Answer("1")) for number in range(100)]])
    found = find_candidates(Run.open(str(run)).parts, {("Coffee", "Roast"): 3}, max_held=4)
    assert {len(line) for line in found.lines} == {20, 23}
    assert found.waiting["Coffee", "Roast"] == 100
    assert rows_of(found, "Roast")[:12] == [*range(9, 100, 10), 8, 18]


def test_a_sample_is_whole_products_and_the_same_every_time(run: Path) -> None:
    parts = Run.open(str(run)).parts
    drawn = {}
    for seed in range(40):
        (line,) = draw_sample(parts, 2, seed).lines
        assert draw_sample(parts, 2, seed).lines == [line]
        assert [each.key.attribute for each in line] == ["Brand", "Roast", "Weight", "Notes"] * 2
        drawn[seed] = [line[0].key.source_row, line[4].key.source_row]
    assert all(first != second for first, second in drawn.values())
    firsts = [first for first, _ in drawn.values()]
    assert all(3 <= firsts.count(row) <= 20 for row in range(4)), "each as likely as another"
    assert len(draw_sample(parts, 100, 0).lines[0]) == 16
