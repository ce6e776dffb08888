"""The larger model fails, dies, or the whole run is killed between the two: no answer is lost, none is doubled.

The search for a bad record restarts an actor several times, half a minute in all; the killed job starts Ray anew each
time, one to two minutes; the others take some seconds.
"""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import pytest

from pipelines.job import ray_stages
from tests.pipelines.commands import assert_same
from tests.pipelines.conftest import Workplace, product, products, read_table
from tests.pipelines.job import faulty
from tests.pipelines.kills import Kill, KilledRun

ROWS = 12
BAD = 5


def poisoned(cascade: Workplace, kind: type, **changes: Any) -> None:
    """A run in which the larger model cannot take one record, which the first one can."""
    rows = products(ROWS)
    rows[BAD]["title"] = "poison"
    cascade.write_parquet("a.parquet", rows)
    whole = {**cascade.changes["cascade"], "below": 1}
    with mock.patch.object(ray_stages, "DecodeAgain", kind):
        outcome = cascade.run(cascade=whole, retries={"max_attempts": 1}, **changes)
    found = outcome.totals
    assert (found.products, found.dead_letters, outcome.discrepancy) == (ROWS, 0, None)
    answers = read_table(cascade.folder / "out", "attributes")
    assert all(row["replaced"] is None for row in answers if row["adapter_revision"] is None)
    of_small = {(row["source_row"], row["attribute"]) for row in answers if row["adapter_revision"] is None}
    of_bad = {(row["source_row"], row["attribute"]) for row in answers if row["source_row"] == BAD}
    assert of_bad <= of_small, "the first model's answers stay"
    assert len({row for row, _ in of_small}) < ROWS / 2, "of no other record, but for what is no answer"
    assert found.cascade["kept"] == len(of_small)
    assert found.cascade["asked"] == found.cascade["replaced"] + len(of_small)


def test_a_record_on_which_the_larger_model_fails_keeps_its_answers(cascade_on_ray: Workplace) -> None:
    poisoned(cascade_on_ray, faulty.RaisingAgain)
    # The tries are on record apart: the first model had none that failed.
    output = cascade_on_ray.folder / "out"
    assert not list(output.glob("_attempts/*/*.error.json"))
    assert list(output.glob("_cascade/_attempts/*/*.error.json"))
    rows = read_table(output, "metrics")
    assert sum(row["retries"] for row in rows if row["pass"] == 1) == 0
    assert sum(row["retries"] for row in rows if row["pass"] == 2) > 0
    actors = [{row["actor_id"] for row in rows if row["pass"] == number} for number in (1, 2)]
    assert [len(each) for each in actors] == [1, 1]
    assert actors[0] != actors[1]


@pytest.mark.full
def test_a_run_that_is_killed_between_the_models_is_continued(cascade_on_ray: Workplace) -> None:
    """Made-up answers: what is killed is the job, not an engine.

    A kill at a commit is the same with one model (`job/test_kills.py`).
    """
    rows = [*products(30), product(30, category=None), product(31, category="Hats")]
    cascade_on_ray.write_parquet("a.parquet", rows)
    cascade_on_ray.changes |= {"decoding": "made-up", "max_dead_letter_share": 1.0, "log_seconds": 1}
    cascade_on_ray.changes["shards"] = {"target_tokens": 200, "ramp": []}
    cascade_on_ray.changes["cascade"] = {
        **cascade_on_ray.changes["cascade"],
        "below": 0.7,
        "adapter": None,
        "engine": {"max_value_tokens": 7},
    }
    calm = cascade_on_ray.folder / "calm"
    cascade_on_ray.run(output=str(calm))
    output = cascade_on_ray.folder / "killed"
    config = cascade_on_ray.write_config(output=str(output))
    # Of a shard's tries one of each model begins, and the first one's end is on record: the second end that is, and
    # the third try, are somewhere between the models.
    kills = [
        Kill("end", 2, "after", "machine"),
        Kill("begin", 9, "after", "self"),
    ]
    with KilledRun(config, output, kills) as run:
        run.drive(max_starts=6)
        assert len(run.fired()) == len(kills), run.explain("not every kill has happened")
    for table in ("products", "attributes", "dead_letter"):
        assert_same(read_table(calm, table), read_table(output, table))
    metrics = read_table(output, "metrics")
    shards = [shard["id"] for shard in json.loads((output / "_plan.json").read_text())["shards"]]
    assert sorted((row["shard"], row["pass"]) for row in metrics) == [(shard, n) for shard in shards for n in (1, 2)]
    totals = json.loads((output / "manifest.json").read_text())["totals"]
    assert totals["cascade"] == json.loads((calm / "manifest.json").read_text())["totals"]["cascade"]
    assert 0 < totals["cascade"]["asked"] < totals["cascade"]["answers"]
