"""Whole runs of two models on a local Ray, with tiny ones: a second look of about a second each."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from hpd_core import Engine, EngineConfig, Record, RecordResult
from pipelines.config.schema_file import load_schemas
from pipelines.normalising.stated_numbers import stated_numbers
from pipelines.quality.both_answers import certainty, is_answer
from pipelines.store.tables import TABLES
from tests.pipelines.conftest import Workplace, products, read_table
from tests.pipelines.quality.conftest import NUM_PRODUCTS


def answers(workplace: Workplace, adapter: str | None) -> Mapping[str, RecordResult]:
    """What a model says when it is asked for all."""
    schemas = load_schemas(workplace.document()["schemas"])
    records = [
        Record(row["id"], row["category"], {"title": row["title"], "bullets": "\n".join(row["bullets"])})
        for row in products(NUM_PRODUCTS)
    ]
    records = [replace(each, numbers=stated_numbers(each, schemas[each.category])) for each in records]
    settings = EngineConfig.model_validate(workplace.document()["engine"])
    with Engine.from_pretrained(str(workplace.model), settings, adapter) as engine:
        return {result.id: result for result in engine.extract(records, schemas)}


def test_what_the_small_model_is_not_sure_of_is_the_larger_ones(cascade: Workplace, larger: Path) -> None:
    outcome = cascade.run(cost={"usd_per_hour": 36.0})
    output = cascade.folder / "out"
    assert outcome.discrepancy is None
    assert outcome.totals.products == NUM_PRODUCTS
    small, large = answers(cascade, None), answers(cascade, str(larger))
    below = cascade.changes["cascade"]["below"]
    manifest = json.loads((output / "manifest.json").read_text())
    rows = [row for row in read_table(output, "attributes") if row["value_index"] == 0]

    product_sample: set[str] = set()
    asked = replaced_ones = changed = 0
    for row in rows:
        first = small[row["product_id"]].values[row["attribute"]]
        is_asked = certainty(first, None) < below
        second = large[row["product_id"]].values[row["attribute"]]
        is_replaced = is_asked and (is_answer(second.status) or not is_answer(first.status))
        stands = second if is_replaced else first
        # What it says of one attribute is what it says of it when it answers all.
        assert row["status"] == stands.status
        if stands.status == "value":
            assert row["value_raw"] == stands.items[0]
        assert row["num_tokens"] == stands.num_tokens
        assert row["logprob_mean"] == pytest.approx(stands.logprob_mean, abs=1e-4)
        assert (row["adapter_revision"] is not None) == is_replaced
        assert row["adapter_revision"] == (manifest["cascade"]["adapter_revision"] if is_replaced else None)
        asked += is_asked
        product_sample |= {row["product_id"]} if is_asked else set()
        replaced_ones += is_replaced
        if not is_replaced:
            assert row["replaced"] is None
            continue
        (replaced,) = row["replaced"]
        changed += (first.status, first.items) != (stands.status, stands.items)
        assert (replaced["source"], replaced["status"]) == ("model", first.status)
        assert replaced["adapter_revision"] is None
        assert replaced["logprob_mean"] == pytest.approx(first.logprob_mean, abs=1e-4)
        if first.status == "value":
            assert replaced["value"] == first.text
    assert 0 < asked < len(rows), "the threshold tells answers apart"
    assert changed > 0
    found = outcome.totals.cascade
    assert (found["answers"], found["asked"], found["replaced"]) == (len(rows), asked, replaced_ones)
    assert (found["changed"], found["kept"]) == (changed, asked - replaced_ones)
    assert manifest["totals"]["cascade"] == dict(found)

    for row in read_table(output, "products"):
        of_product = [each for each in rows if each["product_id"] == row["product_id"]]
        assert row["num_absent"] == sum(each["status"] == "absent" for each in of_product)
        assert (row["cascade_seconds"] > 0) == (row["product_id"] in product_sample)
        assert row["adapter_revision"] is None


def test_the_metrics_are_of_both_models(cascade: Workplace) -> None:
    outcome = cascade.run(cost={"usd_per_hour": 36.0})
    rows = read_table(cascade.folder / "out", "metrics")
    by_pass = {number: [row for row in rows if row["pass"] == number] for number in (1, 2)}
    assert {row["shard"] for row in by_pass[1]} == {row["shard"] for row in by_pass[2]}
    assert len(rows) == 2 * len(outcome.plan.shards)
    for number in (1, 2):
        assert sum(row["load_seconds"] > 0 for row in by_pass[number]) == 1
        assert sum(row["value_tokens"] for row in by_pass[number]) > 0
        # Each engine has half of a machine without GPUs.
        assert {row["price_per_hour"] for row in by_pass[number]} == {18.0}
    # Sums over the table are right, whoever reads it.
    assert sum(row["num_rows"] for row in rows) == sum(row["num_products"] for row in rows) == NUM_PRODUCTS
    totals = outcome.totals.metrics
    for name in ("cost_billed", "cost_useful", "billed_seconds", "busy_seconds", "value_tokens", "load_seconds"):
        assert math.isclose(totals[name], sum(row[name] for row in rows)), name
    assert outcome.totals.priced_shards == len(outcome.plan.shards)
    assert all(set(row) == set(TABLES["metrics"].names) for row in rows)
