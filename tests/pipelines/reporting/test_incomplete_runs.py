"""Runs that go on, have stopped, lack tables or columns, have nothing but dead letters, or no model's answers."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pytest

from pipelines.reporting.page import render_html
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


def test_a_run_that_ends_meanwhile_is_reported_as_a_whole(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed, finished, manifest = iter([{0}, {0, 1}]), iter([None]), json.loads((run / "manifest.json").read_text())
    monkeypatch.setattr(Ledger, "committed", lambda _: next(listed))
    monkeypatch.setattr(Ledger, "finished", lambda _: next(finished, manifest))
    facts = facts_of(run)
    assert (facts.identity.state, facts.totals.rows, facts.notes) == ("finished", 7, ())


def test_every_row_dead_lettered(tmp_path: Path) -> None:
    dead = [coffee(number, dead=("no_schema", "no schema for category 'Coffee'")) for number in range(5)]
    facts = facts_of(write_run(tmp_path, [dead], [metrics(0, 10, load_seconds=5.0)]))
    (reason,) = facts.dead_letters
    assert (reason.code, reason.stage, reason.count, reason.share) == ("no_schema", "prepare", 5, 1)
    assert len(reason.examples) == 3
    assert reason.messages == (("no schema for category 'Coffee'", 5),)
    assert json.loads(reason.examples[0].row or "")["title"] == "Acme coffee 0"
    assert any("Every row is dead-lettered" in note for note in facts.notes)
    assert facts.account.products_per_second == 0  # type: ignore[union-attr]
    assert "5 × <bdi>no schema for category &#39;Coffee&#39;</bdi>" in render_html(facts)
