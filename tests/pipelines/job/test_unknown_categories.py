"""Categories without a schema are counted by name, by the shards' manifests alone, and shown with the nearest ones."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from rich.console import Console

from pipelines.errors import UsageError
from pipelines.job import summary
from pipelines.job.job_run import RunOutcome
from pipelines.job.preflight import CatalogCounts, count_unknown, plan_job, unknown_json, unknown_lines
from pipelines.reporting.cost_plan import Planner
from pipelines.store.totals import MAX_UNKNOWN_CATEGORIES, Totals
from tests.pipelines.conftest import Workplace, product
from tests.tables import table

SCHEMAS = ("Café", "Shoes")


def manifest(categories: list[str | None]) -> dict[str, Any]:
    """Of a shard all of whose rows have no schema."""
    counts = {
        "rows": len(categories),
        "products": 0,
        "dead_letters": len(categories),
        "statuses": {},
        "reasons": {"no_schema": len(categories)},
        "unknown_categories": count_unknown(categories),
    }
    return json.loads(json.dumps({"counts": counts, "metrics": {}}))


def totals_of(manifests: Iterable[dict[str, Any]]) -> Totals:
    totals = Totals()
    for each in manifests:
        totals.add(each)
    return totals


@table("num_names", [250, 400])
def test_a_count_is_exact_or_is_said_to_be_the_least(num_names: int) -> None:
    names = [f"name {number}" for number in range(num_names)]
    random_numbers = random.Random(1)
    totals = totals_of([manifest(random_numbers.choices(names, k=1000)) for _ in range(30)])
    random_numbers = random.Random(1)
    true = Counter(name for _ in range(30) for name in random_numbers.choices(names, k=1000))
    stored = Totals.from_dict(json.loads(json.dumps(totals.to_dict())))
    known, are_least = stored.unknown_categories, stored.unknown_categories_are_least
    answer = unknown_json(known, 30_000, SCHEMAS, are_least=are_least)
    assert len(answer["categories"]) == MAX_UNKNOWN_CATEGORIES
    named = {each["category"]: each["rows"] for each in answer["categories"]}
    assert sum(named.values()) + answer["other_rows"] == 30_000
    assert answer["rows_are_least"] == (num_names > 300)
    if answer["rows_are_least"]:
        assert all(rows <= true[name] for name, rows in named.items())
    else:
        assert named == {name: true[name] for name in named}
        assert min(named.values()) >= max(rows for name, rows in true.items() if name not in named)
    is_said = [" (at " in line for line in unknown_lines(known, 30_000, SCHEMAS, are_least=are_least)]
    assert is_said == [num_names > 300] * 11


def test_the_end_of_a_run_and_its_plan_show_them(workplace: Workplace) -> None:
    rows = [product(0), product(1, category="coffee "), product(2, category="[red]\x1b[31m"), product(3, category=None)]
    workplace.write_jsonl("c.jsonl", rows)
    job = plan_job(workplace.config(output=str(workplace.folder / "out[men]")))
    outcome = RunOutcome(job.plan, totals_of([manifest(["coffee ", "[red]\x1b[31m"])]))
    stream = io.StringIO()
    summary.print_outcome(Console(file=stream, width=200), job, outcome)
    categories = CatalogCounts(Counter({"Shoes": 1, "coffee ": 1, "[red]\x1b[31m": 1, "": 1}))
    summary.print_plan(Console(file=stream, width=200), job, categories)
    text = stream.getvalue()
    assert "no schema for category 'coffee ' (1 row); did you mean 'Coffee' (differs in spaces and capitals)?" in text
    assert "no schema: will be dead-lettered; did you mean 'Coffee' (differs in spaces and capitals)?" in text
    assert "'[red]\\x1b[31m'" in text
    assert text.count(f"{workplace.folder}/out[men]") == 5, "four tables and the plan's output"
    assert "\x1b" not in text

    answer = summary.outcome_json(job, outcome, 0)["no_schema"]
    assert [each["category"] for each in answer["categories"]] == ["coffee ", "[red]\x1b[31m"]
    planned = summary.plan_json(job, categories)["no_schema"]
    assert planned == answer, "a row without any category is not among them"


def test_a_pilot_that_finds_no_schema_for_any_row_names_the_categories(workplace: Workplace) -> None:
    workplace.write_jsonl("c.jsonl", [product(number, category="shoes") for number in range(30)])
    planner = Planner.open(str(workplace.write_config()), [], None, None, None, Console(file=io.StringIO()))
    with pytest.raises(UsageError) as caught:
        planner.from_pilot(20, None)
    assert str(caught.value) == (
        "no row of the catalog can be extracted: 30 no_schema\n"
        "  no schema for category 'shoes' (30 rows); did you mean 'Shoes' (differs in capitals)?"
    )
