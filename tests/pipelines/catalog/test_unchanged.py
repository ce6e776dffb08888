"""A catalog that somebody exports anew while a run reads it: the run stops, and does not end with a mixture of both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.catalog.sharding import RowRange
from pipelines.errors import RunError
from pipelines.job.context import PreparedRecord
from pipelines.job.preflight import plan_job
from pipelines.job.prepare_stage import read_catalog
from pipelines.job.rounds import job_context
from pipelines.store.ledger import Ledger
from tests.pipelines.conftest import Workplace, products


def read_all(workplace: Workplace, change: Callable[[], object]) -> list[str]:
    """Ids of the rows, read as a job reads them; `change` is called between the plan and the last piece."""
    job = plan_job(workplace.config())
    context = job_context(job, Ledger(job.output, "s"))
    pieces = [piece for shard in job.plan.shards for piece in shard.pieces]
    assert len(pieces) > 1

    def ids(piece: RowRange) -> list[str]:
        return [row.record.id for row in read_catalog(piece, context) if isinstance(row, PreparedRecord)]

    found = [each for piece in pieces[:-1] for each in ids(piece)]
    change()
    return found + ids(pieces[-1])


def write(workplace: Workplace, name: str, start: int, count: int = 30) -> Path:
    if name.endswith("jsonl"):
        return workplace.write_jsonl(name, products(count, start))
    return workplace.write_parquet(name, products(count, start), row_group_size=10)


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl"])
@pytest.mark.parametrize("count", [30, 31, 300])
def test_a_catalog_that_is_written_anew_stops_the_run(workplace: Workplace, name: str, count: int) -> None:
    write(workplace, name, 0)
    with pytest.raises(
        RunError, match=r"has changed during the run: .* extract the new one into another output folder"
    ):
        read_all(workplace, lambda: write(workplace, name, 100, count))
