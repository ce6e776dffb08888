"""The search for records that break the engine, with a real engine and ledger; a process dies by an exception here.

Deaths that are real, under Ray, are in test_extract.py.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq
import pytest

from hpd_core import Record
from pipelines.errors import RunError
from pipelines.job.context import DecodedShard, PreparedShard
from pipelines.job.decode_stage import ShardDecoder
from pipelines.job.finish_stage import finish_shard
from pipelines.job.preflight import plan_job
from pipelines.job.prepare_stage import prepare_shard
from pipelines.job.rounds import job_context
from pipelines.store.folders import Folder
from pipelines.store.ledger import Ledger
from tests.pipelines.conftest import Workplace, products

NUM_RECORDS = 60


class DiedError(BaseException):
    """The process ends here."""


class Process:
    """A decoder whose engine fails on poisoned records; started anew whenever it has died."""

    def __init__(self, workplace: Workplace, poisoned: set[int], *, dies_in: str) -> None:
        rows = products(NUM_RECORDS)
        for index in poisoned:
            rows[index]["title"] = "poison"
        workplace.write_parquet("a.parquet", rows)
        job = plan_job(workplace.config(shards={"target_tokens": 10**6, "ramp": []}))
        assert len(job.plan.shards) == 1
        self.job = job_context(job, Ledger(job.output, "aaaa"))
        self.prepared: PreparedShard = prepare_shard(job.plan.shards[0], self.job)
        self.poisoned = {i for i, record in enumerate(self.prepared.records) if record.row in poisoned}
        self.dies_in = dies_in
        self.num_deaths = 0

    def decode(self) -> DecodedShard:
        while True:
            decoder = ShardDecoder(self.job)
            real = decoder._engine
            try:
                # A reload would put an engine without poison in the place of this one.
                decoder._reload = self.die if self.dies_in == "reload" else lambda: None  # type: ignore[method-assign]
                decoder._engine = Poisoned(real, self)  # type: ignore[assignment]
                return decoder.decode(self.prepared)
            except DiedError:
                self.num_deaths += 1
                assert self.num_deaths < 50
            finally:
                real.close()

    def die(self) -> None:
        raise DiedError


class Poisoned:
    def __init__(self, engine: Any, process: Process) -> None:
        self._engine, self._process = engine, process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, records: Sequence[Record], *arguments: Any) -> Any:
        if any(record.fields["title"] == "poison" for record in records):
            if self._process.dies_in == "submit":
                self._process.die()
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return self._engine.submit(records, *arguments)


@pytest.mark.parametrize(
    "dies_in", ["submit", *(pytest.param(place, marks=pytest.mark.full) for place in ("reload", "nowhere"))]
)
@pytest.mark.parametrize("poisoned", [{17}, {3, 40, 41, 59}])
def test_all_poisoned_records_are_given_up_and_no_other(workplace: Workplace, poisoned: set[int], dies_in: str) -> None:
    """Also where every new engine in the same process dies at once, as after a CUDA error."""
    process = Process(workplace, poisoned, dies_in=dies_in)
    decoded = process.decode()
    assert set(decoded.failures) == process.poisoned
    assert {i for i, result in enumerate(decoded.results) if result is None} == process.poisoned
    for record, result in zip(process.prepared.records, decoded.results, strict=True):
        assert result is None or result.id == record.record.id
    assert decoded.num_attempts == process.job.ledger.history(0).num_tries
    assert decoded.metrics["num_records"] <= NUM_RECORDS
    assert (process.num_deaths > 0) == (dies_in != "nowhere")


def test_a_storage_that_fails_beside_the_engine_is_not_held_against_a_record(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(workplace, {17}, dies_in="submit")
    write = Folder.write

    def failing(folder: Folder, name: str, data: bytes) -> None:
        if name.endswith(".done.json"):
            raise OSError(5, "no network")
        write(folder, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write", failing)
        with pytest.raises(OSError, match="no network"):
            process.decode()
    assert set(process.decode().failures) == process.poisoned


def test_dead_rows_are_not_committed_without_their_text(workplace: Workplace) -> None:
    """They are read again from the input; if it is away, the shard waits for it."""
    process = Process(workplace, {17}, dies_in="nowhere")
    decoded = process.decode()
    path = workplace.catalog / "a.parquet"
    hidden = path.rename(workplace.folder / "away")
    with pytest.raises(RunError, match=r"cannot read .*a\.parquet"):
        finish_shard(decoded, process.job)
    hidden.rename(path)
    tables = finish_shard(decoded, process.job).tables
    (row,) = pq.read_table(io.BytesIO(tables["dead_letter"].data)).to_pylist()
    assert json.loads(row["row_json"])["title"] == "poison"
