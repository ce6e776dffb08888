"""Runs that go on, have stopped, lack tables or columns, have nothing but dead letters, or no model's answers."""

from __future__ import annotations

import html
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipelines.errors import UsageError
from pipelines.reporting.page import render_html, render_json, render_markdown
from pipelines.store.ledger import Ledger
from tests.pipelines.reporting.made_runs import metrics, write_run
from tests.pipelines.reporting.reports import coffee, facts_of, undo


def test_a_run_that_has_stopped_is_reported_as_far_as_it_is_committed(run: Path) -> None:
    undo(run, 1)
    facts = facts_of(run)
    assert facts.identity.state == "stopped"
    assert (facts.totals.rows, facts.totals.products) == (4, 3)
    assert sum(category.products for category in facts.categories) == 3, "a published part is not yet a committed one"
    assert facts.account.time.billed == 120  # type: ignore[union-attr]
    assert "1 of 2 shards" in facts.notes[0]
    assert facts.notes[0] in html.unescape(render_html(facts))
    assert facts.outlook is not None
    assert facts.outlook.rows == 7, "what is left is taken to be like what is done"


def test_a_run_that_goes_on_meanwhile_is_listed_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undo(run, 1)
    listed = iter([{0}])
    monkeypatch.setattr(Ledger, "committed", lambda _: next(listed))
    facts = facts_of(run)
    assert sum(category.products for category in facts.categories) == facts.totals.products == 3
    assert facts.account.shards == facts.totals.shards == 1  # type: ignore[union-attr]


def test_a_run_that_ends_meanwhile_is_reported_as_a_whole(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed, finished, manifest = iter([{0}, {0, 1}]), iter([None]), json.loads((run / "manifest.json").read_text())
    monkeypatch.setattr(Ledger, "committed", lambda _: next(listed))
    monkeypatch.setattr(Ledger, "finished", lambda _: next(finished, manifest))
    facts = facts_of(run)
    assert (facts.identity.state, facts.totals.rows, facts.notes) == ("finished", 7, ())


def test_a_run_without_a_committed_shard(run: Path) -> None:
    undo(run, 1)
    (run / "_shards" / "000000.json").unlink()
    facts = facts_of(run)
    assert "nothing to report" in facts.notes[0]
    assert (facts.account, facts.categories, facts.sample.products, facts.outlook) == (None, (), (), None)
    for render in (render_html, render_markdown, render_json):
        assert render(facts)


def test_answers_that_no_model_gave_are_called_so(run: Path) -> None:
    plan = json.loads((run / "_plan.json").read_text())
    plan["result_config"]["decoding"] = "made-up"
    (run / "_plan.json").write_text(json.dumps(plan))
    facts = facts_of(run)
    assert facts.notes[0] == "The answers are made up: no model has read the products (decoding: made-up)."
    assert facts.notes[0] in html.unescape(render_html(facts))


def test_missing_metrics(run: Path) -> None:
    shutil.rmtree(run / "metrics")
    facts = facts_of(run)
    assert facts.account is None
    assert facts.categories[0].engine_seconds == 6
    assert facts.categories[0].usd is None
    assert any("metrics of 2 of 2 shards are missing" in note for note in facts.notes)
    assert "no metrics" in render_html(facts)
    assert "no metrics" in render_markdown(facts)


def test_every_row_dead_lettered(tmp_path: Path) -> None:
    dead = [coffee(number, dead=("no_schema", "no schema for category 'Coffee'")) for number in range(5)]
    facts = facts_of(write_run(tmp_path, [dead], [metrics(0, 10, load_seconds=5.0)]))
    (reason,) = facts.dead_letters
    assert (reason.code, reason.stage, reason.count, reason.share) == ("no_schema", "prepare", 5, 1)
    assert len(reason.examples) == 3
    assert reason.messages == (("no schema for category 'Coffee'", 5),)
    assert json.loads(reason.examples[0].row or "")["title"] == "Acme coffee 0"
    assert any("Every row is dead-lettered" in note for note in facts.notes)
    assert (facts.account.products_per_second, facts.outlook) == (0, None)  # type: ignore[union-attr]
    assert "5 × <bdi>no schema for category &#39;Coffee&#39;</bdi>" in render_html(facts)
    assert "- 5 rows: no schema for category 'Coffee'" in render_markdown(facts)


def test_every_category_without_a_schema_is_shown(tmp_path: Path) -> None:
    messages = [f"no schema for category 'C{number}'" for number in (0, 0, 1, 2, 3, 4)]
    rows = [coffee(number, dead=("no_schema", message)) for number, message in enumerate(messages)]
    rows += [coffee(10 + number, dead=("too_long", f"{number} tokens")) for number in range(5)]
    facts = facts_of(write_run(tmp_path, [rows], [metrics(0, 10)]))
    counted = {reason.code: dict(reason.messages) for reason in facts.dead_letters}
    assert counted == {
        "no_schema": {"no schema for category 'C0'": 2}
        | {f"no schema for category 'C{number}'": 1 for number in (1, 2, 3, 4)},
        "too_long": {},
    }
    assert "- 2 rows: no schema for category 'C0'" in render_markdown(facts)
    assert "- 1 row: no schema for category 'C4'" in render_markdown(facts)


def test_a_run_from_before_seconds_were_counted_by_product(run: Path) -> None:
    for path in (run / "products").glob("*.parquet"):
        pq.write_table(pq.read_table(path).drop_columns(["engine_seconds"]), path)
    for path in (run / "metrics").glob("*.parquet"):
        pq.write_table(pq.read_table(path).drop_columns(["retry_seconds", "prefix_seconds", "bytes_read"]), path)
    facts = facts_of(run)
    assert {category.usd for category in facts.categories} == {None}
    assert (facts.account.time.retry, facts.account.time.rest) == (None, 45)  # type: ignore[union-attr]
    page = render_html(facts)
    assert "did not count engine seconds by product" in page
    assert "not counted" in page


def test_a_part_that_is_gone(run: Path) -> None:
    (run / "products" / "part-000001.parquet").unlink()
    with pytest.raises(UsageError, match="part-000001"):
        facts_of(run)
