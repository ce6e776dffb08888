"""Two runs compared: hand-made ones with known answers, real ones, and such that do not fit together."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from hpd_core import Attribute
from pipelines import compare
from pipelines.comparing import phrases
from pipelines.comparing.answer_changes import Moments, clustered, kind, wilson
from pipelines.comparing.comparison import RunComparison, compare_runs
from pipelines.comparing.pages import render_html, render_markdown
from pipelines.errors import UsageError
from tests.pipelines import browser
from tests.pipelines.commands import ROOT
from tests.pipelines.comparing.made_runs import ABSENT, INVALID, TRUNCATED, Answer, Row, write_run
from tests.pipelines.conftest import Workplace, product, products, read_table
from tests.pipelines.large_runs import compare_apart, expected, write_large_run


def of(comparison: RunComparison, attribute: str) -> Any:
    (found,) = [each for each in comparison.by_attribute if each.attribute == attribute]
    return found


def kinds(agreement: Any) -> dict[str, int]:
    return {name: number for name, number in agreement.kinds.items() if number}


def ask(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(compare.app, arguments)
    return result.exit_code, result.stdout, result.stderr


# What is counted


def test_every_kind_of_change(tmp_path: Path) -> None:
    pairs: dict[str, tuple[Answer, Answer]] = {
        "same": ("Kona", "Kona"),
        "set": (["Peru", "Brazil"], ["Brazil", "Peru", "Peru"]),
        "nothing": (ABSENT, ABSENT),
        "cut": (TRUNCATED, TRUNCATED),
        "other": ("Kona", "Acme"),
        "more": (["Peru"], ["Peru", "Brazil"]),
        "case": ("kona", "Kona"),
        "lost": ("Kona", ABSENT),
        "found": (ABSENT, "Kona"),
        "broken": ("Kona", INVALID),
        "missed": (ABSENT, TRUNCATED),
        "mended": (("error",), "Kona"),
        "worse": (TRUNCATED, INVALID),
    }
    a = write_run(tmp_path / "a", [Row("p0", {name: pair[0] for name, pair in pairs.items()})])
    b = write_run(tmp_path / "b", [Row("p0", {name: pair[1] for name, pair in pairs.items()})])
    comparison = compare_runs(a, b)
    expected = {
        "same": "same_value",
        "set": "same_value",
        "nothing": "both_absent",
        "cut": "both_failed",
        "other": "other_value",
        "more": "other_value",
        "case": "other_value",
        "lost": "value_to_absent",
        "found": "absent_to_value",
        "broken": "to_failure",
        "missed": "to_failure",
        "mended": "from_failure",
        "worse": "other_failure",
    }
    assert {each.attribute: kinds(each.agreement) for each in comparison.by_attribute} == {
        name: {each: 1} for name, each in expected.items()
    }
    same = comparison.same_text
    assert (same.num_answers, same.num_same) == (13, 4)
    assert same.share is not None
    assert same.share.value == pytest.approx(4 / 13)
    assert same.statuses["value > value"] == 5
    assert same.statuses["error > value"] == 1
    assert sum(same.statuses.values()) == sum(same.kinds.values()) == 13
    assert {each.attribute for each in comparison.examples} == {
        name for name in expected if of(comparison, name).agreement.num_same == 0
    }
    assert comparison.changed_text.num_answers == 0
    assert comparison.notes == []
    backwards = compare_runs(b, a)
    assert kinds(of(backwards, "lost").agreement) == {"absent_to_value": 1}
    assert kinds(of(backwards, "mended").agreement) == {"to_failure": 1}


def test_a_run_agrees_with_its_copy(tmp_path: Path) -> None:
    rows = [Row(f"p{index}", {"Brand": "Acme", "Roast": ABSENT}) for index in range(7)] + [Row("p7", None)]
    comparison = compare_runs(write_run(tmp_path / "a", rows), write_run(tmp_path / "b", rows))
    assert (comparison.rows.both, comparison.rows.dead_both) == (8, 1)
    assert (comparison.same_text.num_same, comparison.same_text.num_answers) == (14, 14)
    assert (comparison.settings.config, comparison.settings.engine, comparison.settings.files) == ([], [], [])
    assert comparison.settings.schemas == []
    assert comparison.examples == []


def test_dead_letters_on_one_side_are_no_agreement(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", [Row("p0", None), Row("p1", {"Brand": "Acme"}), Row("p2", {"Brand": "Acme"})])
    b = write_run(tmp_path / "b", [Row("p0", {"Brand": "Acme"}), Row("p1", None), Row("p2", {"Brand": "Acme"})])
    comparison = compare_runs(a, b)
    assert (comparison.rows.dead_a, comparison.rows.dead_b, comparison.rows.dead_both) == (1, 1, 0)
    assert comparison.same_text.statuses == {"value > value": 1, "value > dead_letter": 1, "dead_letter > value": 1}
    assert kinds(comparison.same_text) == {"same_value": 1, "to_failure": 1, "from_failure": 1}
    assert comparison.examples == []


def test_attributes_that_one_run_alone_was_asked_for(tmp_path: Path) -> None:
    before = [Attribute(name="Brand"), Attribute(name="Weight", type="number", unit="g"), Attribute(name="Old")]
    after = [Attribute(name="Brand"), Attribute(name="Weight", type="number", unit="kg"), Attribute(name="New")]
    a = write_run(tmp_path / "a", [Row("p0", {"Brand": "Acme", "Weight": "1", "Old": "x"})], schemas={"Coffee": before})
    b = write_run(
        tmp_path / "b",
        [Row("p0", {"Brand": "Acme", "Weight": "2", "New": ABSENT})],
        schemas={"Coffee": after, "Tea": ["Brand"]},
    )
    comparison = compare_runs(a, b)
    assert [(each.attribute, each.change) for each in comparison.settings.schemas or ()] == [
        ("Weight", "unit: g -> kg"),
        ("Old", "removed"),
        ("New", "added"),
        (None, "added, 1 attributes"),
    ]
    assert (comparison.same_text.num_answers, comparison.same_text.num_same) == (2, 1)
    assert (of(comparison, "Old").only_a, of(comparison, "Old").only_b) == (1, 0)
    assert (of(comparison, "New").only_a, of(comparison, "New").only_b) == (0, 1)
    assert of(comparison, "Old").agreement.share is None


def test_a_dead_lettered_row_disagrees_on_what_its_run_asked_for_alone(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", [Row("p0", None), Row("p1", {"Brand": "Acme"})])
    b = write_run(tmp_path / "b", [Row(f"p{n}", {"Brand": "Acme", "New": "x"}) for n in range(2)])
    for comparison, kind_of_change in ((compare_runs(a, b), "from_failure"), (compare_runs(b, a), "to_failure")):
        assert kinds(comparison.same_text) == {"same_value": 1, kind_of_change: 1}
        new = of(comparison, "New")
        assert (new.agreement.num_answers, new.only_a + new.only_b) == (0, 2), "listed, not counted"
    (tmp_path / "a" / "_schemas.json").unlink()
    assert kinds(compare_runs(a, b).same_text) == {"same_value": 1, "from_failure": 2}, (
        "A does not say what it asked for"
    )


def test_rows_with_another_text_are_counted_apart(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", [Row("p0", {"Brand": "Acme"}), Row("p1", {"Brand": "Acme"})])
    b = write_run(
        tmp_path / "b",
        [Row("p0", {"Brand": "Kona"}, text="Kona"), Row("p1", {"Brand": "Acme"})],
        files={"catalog.parquet": "f2"},
    )
    comparison = compare_runs(a, b)
    assert comparison.rows.matched_by == "product_id", "the file has another content, so its rows may have moved"
    assert comparison.rows.text_changed == 1
    assert kinds(comparison.same_text) == {"same_value": 1}
    assert kinds(comparison.changed_text) == {"other_value": 1}
    assert comparison.settings.files == ["catalog.parquet has changed"]
    assert any("1 of 2 rows in both have another text" in note for note in comparison.notes)
    assert comparison.examples == [], "that another text has another answer is no finding"


def test_rows_of_the_same_files_are_matched_by_their_place(tmp_path: Path) -> None:
    # All ids are the same, and one file was added.
    rows = [Row("p", {"Brand": name}) for name in ("a", "b", "c")]
    a = write_run(tmp_path / "a", rows)
    b = write_run(tmp_path / "b", rows[:2], files={"catalog.parquet": "f1", "more.parquet": "f2"})
    comparison = compare_runs(a, b)
    assert comparison.rows.matched_by == "row"
    assert (comparison.rows.both, comparison.rows.only_a, comparison.rows.only_b) == (2, 1, 0)
    assert (comparison.rows.doubled_a, comparison.same_text.num_same) == (0, 2)


def test_doubled_and_missing_ids_are_said_plainly(tmp_path: Path) -> None:
    answers = {"Brand": "Acme"}
    a = write_run(tmp_path / "a", [Row("one", answers), Row("two", answers), Row("two", answers), Row("mine", answers)])
    b = write_run(
        tmp_path / "b",
        [Row("two", answers), Row("one", answers), Row(None, None), Row("new", answers), Row("new", answers)],
        files={"other.parquet": "f2"},
    )
    comparison = compare_runs(a, b)
    rows = comparison.rows
    assert (rows.both, rows.only_a, rows.only_b) == (1, 1, 2), "a doubled id that the other run lacks is only in one"
    assert (rows.doubled_a, rows.doubled_b, rows.no_id_a, rows.no_id_b) == (2, 1, 0, 1)
    assert rows.doubled_ids == ["two"]
    assert any(
        "2 rows of A and 1 of B are not compared: their product id is doubled" in note for note in comparison.notes
    )
    assert any("0 rows of A and 1 of B have no product id" in note for note in comparison.notes)


def test_answers_that_were_taken_over_are_one_decode(tmp_path: Path) -> None:
    a = write_run(
        tmp_path / "a",
        [
            Row("p0", {"Brand": "Acme", "Roast": "dark"}),
            Row("p1", {"Brand": "Acme"}, carried_from={"Brand": "before"}),
            Row("p2", {"Brand": "Acme"}),
        ],
    )
    b = write_run(
        tmp_path / "b",
        [
            Row("p0", {"Brand": "Acme", "Roast": "light"}, carried_from={"Brand": "a"}),
            Row("p1", {"Brand": "Acme"}, carried_from={"Brand": "before"}),
            Row("p2", {"Brand": "Acme"}, carried_from={"Brand": "elsewhere"}),
        ],
    )
    comparison = compare_runs(a, b)
    assert comparison.same_text.num_same_decode == 2
    assert comparison.same_text.num_answers == 4
    assert (comparison.rows.carried_a, comparison.rows.carried_b) == (1, 2)
    assert "of those decoded by both, 50.0%" in ask(a, b)[1]


def test_equal_run_ids_make_no_decode_one(tmp_path: Path) -> None:
    rows = [Row("p0", {"Brand": "Acme"})]
    a, b = (write_run(tmp_path / name, rows, run_id="nightly") for name in "ab")
    assert compare_runs(a, b).same_text.num_same_decode == 0


def test_an_unfinished_run_is_compared_as_far_as_it_is(tmp_path: Path) -> None:
    rows = [Row(f"p{index}", {"Brand": "Acme"}) for index in range(10)]
    a = write_run(tmp_path / "a", rows)
    b = write_run(tmp_path / "b", rows, unfinished_shards=2)
    comparison = compare_runs(a, b)
    assert (comparison.rows.both, comparison.rows.only_a) == (6, 4)
    assert comparison.b.state == "stopped"
    assert comparison.notes[0].startswith("B is not finished, and nobody works on it: 6 of 10 rows are committed")
    # Of a shard that is being published, some tables are there already.
    source = tmp_path / "a" / "products" / "part-000002.parquet"
    (tmp_path / "b" / "products" / source.name).write_bytes(source.read_bytes())
    assert compare_runs(a, b).rows.both == 6


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


def test_settings_that_differ(tmp_path: Path) -> None:
    rows = [Row("p0", {"Brand": "Acme"})]
    a = write_run(tmp_path / "a", rows, config={"model": "m", "engine": {"layout": "tree", "stack_size": 6}})
    b = write_run(
        tmp_path / "b",
        rows,
        config={"model": "m", "engine": {"layout": "stacked", "stack_size": 6}, "adapter": "x"},
        engine={"layout": "stacked", "adapter_revision": "r2", "versions": {"torch": "2"}},
    )
    found = compare_runs(a, b).settings
    assert [dataclasses.astuple(each) for each in found.config] == [
        ("engine.layout", "tree", "stacked"),
        ("adapter", None, "x"),
    ]
    assert [each.key for each in found.engine] == ["adapter_revision", "versions"]


def test_cost_and_speed(tmp_path: Path) -> None:
    rows = [Row(f"p{index}", {"Brand": "Acme"}) for index in range(6)]
    a = write_run(tmp_path / "a", rows, price=3.6)
    b = write_run(tmp_path / "b", rows, price=0.0)
    c = write_run(tmp_path / "c", rows)
    priced = compare_runs(a, b)
    found = priced.a.figures
    assert (found.wall_seconds, found.busy_seconds, found.billed_seconds, found.load_seconds) == (20, 10, 20, 1)
    assert (found.products_per_second, found.products_per_engine_second) == (pytest.approx(0.3), pytest.approx(0.3))
    assert found.usd_billed == pytest.approx(0.02)
    assert found.usd_per_1k == pytest.approx(0.02 / 6 * 1000)
    assert found.usd_per_engine_hour == pytest.approx(3.6)
    assert (priced.b.figures.usd_billed, priced.b.figures.usd_per_1k) == (0, 0), "a price of zero is a price"
    unknown = compare_runs(a, c).b.figures
    assert (unknown.usd_billed, unknown.usd_per_1k, unknown.priced_shards) == (None, None, 0)
    _, text, _ = ask(a, c)
    (line,) = [line for line in text.splitlines() if "1,000 decoded products" in line]
    assert [cell.strip() for cell in line.split("│")[2:5]] == ["$3.33", "–", ""]


def figure_changes(comparison: RunComparison) -> dict[str, str]:
    return {line.label: line.change for line in phrases.figure_lines(comparison)}


def test_missing_metrics_are_no_savings(tmp_path: Path) -> None:
    rows = [Row(f"p{index}", {"Brand": "Acme"}) for index in range(12)]
    a, b = (write_run(tmp_path / name, rows, price=3.6) for name in "ab")
    for shard in (0, 2):
        (tmp_path / "b" / "metrics" / f"part-{shard:06d}.parquet").unlink()
    comparison = compare_runs(a, b)
    assert comparison.notes == [
        "B: The metrics of 2 of 4 shards are missing: time, tokens and dollars are of the others alone."
    ]
    found = comparison.b.figures
    assert (found.shards, found.metered_shards, found.billed_seconds) == (4, 2, 20)
    assert found.products_per_second is None, "the time of the others is in the wall"
    changes = figure_changes(comparison)
    for sum_of_some in ("wall time", "engine time, billed", "engine time, computing", "tokens: keys", "steps", "cost"):
        assert changes[sum_of_some] == "–"
    assert changes["products"] == "+0.0%"
    assert changes["cost of 1,000 decoded products"] == changes["products/s of an engine"] == "+0.0%", "rates are known"
    whole = write_run(tmp_path / "whole", rows, price=3.6)
    assert "–" not in figure_changes(compare_runs(a, whole)).values()


def test_shards_without_a_price_are_no_savings(tmp_path: Path) -> None:
    rows = [Row(f"p{index}", {"Brand": "Acme"}) for index in range(6)]
    a, b = (write_run(tmp_path / name, rows, price=3.6) for name in "ab")
    path = tmp_path / "b" / "metrics" / "part-000000.parquet"
    part = pq.read_table(path)
    pq.write_table(
        pa.Table.from_pylist([row | {"price_per_hour": None} for row in part.to_pylist()], part.schema), path
    )
    comparison = compare_runs(a, b)
    # compare.py has no --usd-per-hour.
    assert comparison.notes == ["B: 1 of 2 shards have no price: dollars are of the others alone."]
    changes = figure_changes(comparison)
    assert (changes["cost"], changes["of it computing"], changes["engine time, billed"]) == ("–", "–", "+0.0%")


# Intervals


def test_a_wilson_interval() -> None:
    # Newcombe 1998: 81 of 263.
    found = wilson(81 / 263, 263)
    assert (round(found.low, 4), round(found.high, 4)) == (0.2553, 0.3662)
    assert (wilson(1.0, 10).high, round(wilson(1.0, 10).low, 3)) == (1.0, 0.722)


def test_answers_of_one_row_that_go_together_count_as_one() -> None:
    def moments(rows: list[tuple[int, int]]) -> Moments:
        n, x = np.array(rows).T
        return Moments(len(rows), *(int(each) for each in (n.sum(), x.sum(), n @ n, x @ n, x @ x)))

    # Of 100 rows of 10 answers, half agree in all and half in none: worth about 100 answers.
    together = clustered(moments([(10, 10), (10, 0)] * 50))
    assert together is not None
    assert together.low == pytest.approx(wilson(0.5, 100).low, abs=0.001)
    # As many agreeing answers, in every row five: worth what they are.
    apart = clustered(moments([(10, 5)] * 100))
    assert apart == wilson(0.5, 100)  # no variance at all says nothing: then a row counts once
    independent = np.random.default_rng(0).binomial(10, 0.5, 2000)
    mixed = clustered(moments([(10, int(each)) for each in independent]))
    assert mixed is not None
    assert mixed.high - mixed.low == pytest.approx(wilson(0.5, 20_000).high - wilson(0.5, 20_000).low, rel=0.1)
    assert clustered(Moments(0, 0, 0, 0, 0, 0)) is None


def test_the_interval_covers_as_often_as_it_says() -> None:
    generator, covered = np.random.default_rng(1), 0
    for _ in range(400):
        # Rows differ in how much they agree, and in how many answers they have.
        n = generator.integers(1, 12, 150)
        x = generator.binomial(n, generator.beta(8, 2, 150))
        found = clustered(Moments(150, *(int(each) for each in (n.sum(), x.sum(), n @ n, x @ n, x @ x))))
        assert found is not None
        covered += found.low <= 0.8 <= found.high
    assert 0.92 <= covered / 400 <= 0.98


# The join

IDS = st.sampled_from(["a", "b", "c", "d", "e", None])
ANSWER = st.sampled_from(["x", "y", ABSENT, TRUNCATED])


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    found = []
    for _ in range(draw(st.integers(1, 8))):
        product_id = draw(IDS)
        names = draw(st.lists(st.sampled_from(["Brand", "Roast"]), min_size=1, unique=True))
        answers = None if product_id is None or draw(st.integers(0, 4)) == 0 else {name: draw(ANSWER) for name in names}
        found.append(Row(product_id, answers, text=draw(st.sampled_from(["one", "two"]))))
    return found


def expected_counts(first: list[Row], second: list[Row], by_row: bool) -> Mapping[str, Any]:
    """The join as one would write it for a handful of rows."""

    def keyed(rows: list[Row]) -> dict[Any, list[Row]]:
        found: dict[Any, list[Row]] = {}
        for index, row in enumerate(rows):
            found.setdefault(index if by_row else row.id, []).append(row)
        return found

    a, b = keyed(first), keyed(second)
    asked = [{name for row in rows for name in row.answers or ()} for rows in (first, second)]
    counts: Counter[str] = Counter()
    changes: Counter[tuple[bool, str]] = Counter()
    for key in [*a, *(key for key in b if key not in a)]:
        in_a, in_b = a.get(key, []), b.get(key, [])
        if key is None:
            counts.update(no_id_a=len(in_a), no_id_b=len(in_b))
        elif not in_a or not in_b:
            counts.update(only_a=len(in_a), only_b=len(in_b))
        elif len(in_a) > 1 or len(in_b) > 1:
            counts.update(doubled_a=len(in_a), doubled_b=len(in_b))
        else:
            counts["both"] += 1
            mine, theirs = in_a[0], in_b[0]
            changed = mine.answers is not None and theirs.answers is not None and mine.text != theirs.text
            for name in {**(mine.answers or {}), **(theirs.answers or {})}:
                states = [
                    ("dead_letter" if name in names else "not_asked")
                    if row.answers is None
                    else "not_asked"
                    if name not in row.answers
                    else row.answers[name][0]
                    if isinstance(row.answers[name], tuple)
                    else "value"
                    for row, names in zip((mine, theirs), asked, strict=True)
                ]
                if "not_asked" not in states:
                    same = (mine.answers or {}).get(name) == (theirs.answers or {}).get(name)
                    changes[changed, kind(states[0], states[1], same)] += 1  # type: ignore[arg-type]
    return {"rows": counts, "changes": changes}


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(rows(), rows(), st.booleans())
def test_every_row_is_in_exactly_one_bucket(
    tmp_path_factory: pytest.TempPathFactory, first: list[Row], second: list[Row], by_row: bool
) -> None:
    folder = tmp_path_factory.mktemp("join")
    a = write_run(folder / "a", first)
    b = write_run(folder / "b", second, files={"catalog.parquet": "f1" if by_row else "f2"}, shard_rows=2)
    expected = expected_counts(first, second, by_row)
    if not expected["rows"]["both"]:
        with pytest.raises(UsageError, match="nothing in common"):
            compare_runs(a, b)
        return
    forth, back = compare_runs(a, b), compare_runs(b, a)
    counted = dataclasses.asdict(forth.rows)
    assert {name: number for name in expected["rows"] if (number := counted[name])} == {
        name: number for name, number in expected["rows"].items() if number
    }
    for side, number in (("a", len(first)), ("b", len(second))):
        assert counted[f"rows_{side}"] == number
        assert counted["both"] + sum(counted[f"{name}_{side}"] for name in ("only", "doubled", "no_id")) == number
    found = {
        (changed, name): number
        for changed, agreement in ((False, forth.same_text), (True, forth.changed_text))
        for name, number in kinds(agreement).items()
    }
    assert found == dict(expected["changes"])
    mirrored = dataclasses.asdict(back.rows)
    swap = {"a": "b", "b": "a"}
    for name, number in counted.items():
        other = f"{name[:-1]}{swap[name[-1]]}" if name.endswith(("_a", "_b")) else name
        assert mirrored[other] == number
    assert (back.same_text.num_answers, back.same_text.num_same) == (
        forth.same_text.num_answers,
        forth.same_text.num_same,
    )
    assert back.same_text.share == forth.same_text.share
    # A row of one file may have two ids, if another column was named for them.
    shown = [[(by_row or each.product_id, each.attribute) for each in run.examples] for run in (forth, back)]
    assert sorted(shown[0]) == sorted(shown[1])


# Examples


def test_examples_show_where_values_stand(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", [Row("p0", {"Brand": "Kona", "Origins": ["Peru", "dark"]})])
    b = write_run(tmp_path / "b", [Row("p0", {"Brand": "Nespresso", "Origins": ABSENT})])
    brand, origins = compare_runs(a, b).examples
    (item,) = brand.a.items
    assert item.evidence is not None
    assert [(place.field, place.start, place.end) for place in item.evidence] == [("title", 5, 9)]
    assert (item.is_ungrounded, brand.b.items[0].is_ungrounded) == (False, True)
    assert brand.a.probability == pytest.approx(math.exp(-0.2))
    assert [(each.text, each.is_ungrounded) for each in origins.a.items] == [("Peru", True), ("dark", False)]
    assert (origins.b.status, origins.b.items[0].text, origins.b.items[0].evidence) == ("absent", None, None)
    found = {each.attribute: each for each in compare_runs(a, b).by_attribute}
    assert (found["Brand"].ungrounded_a, found["Brand"].ungrounded_b) == (0, 1)


def test_examples_are_few_spread_and_drawn_again_alike(tmp_path: Path) -> None:
    numbers = range(40)
    a = write_run(tmp_path / "a", [Row(f"p{n}", {"Brand": "x", "Roast": "x", "Size": "x"}) for n in numbers])
    b = write_run(
        tmp_path / "b",
        [Row(f"p{n}", {"Brand": "y", "Roast": "y" if n % 2 else "x", "Size": "y" if n == 7 else "x"}) for n in numbers],
    )
    examples = compare_runs(a, b, max_examples=9).examples
    assert Counter(each.attribute for each in examples) == {"Brand": 4, "Roast": 4, "Size": 1}
    assert [each.attribute for each in examples] == sorted(each.attribute for each in examples), "least agreeing first"
    assert examples == compare_runs(a, b, max_examples=9).examples
    assert examples != compare_runs(a, b, max_examples=9, seed=1).examples
    assert compare_runs(a, b, max_examples=0).examples == []


def test_true_and_false_are_looked_for_nowhere(tmp_path: Path) -> None:
    schemas = {"Coffee": [Attribute(name="Organic", type="boolean")]}
    a = write_run(tmp_path / "a", [Row("p0", {"Organic": "true"})], schemas=schemas)
    b = write_run(tmp_path / "b", [Row("p0", {"Organic": "false"})], schemas=schemas)
    comparison = compare_runs(a, b)
    assert (of(comparison, "Organic").ungrounded_a, of(comparison, "Organic").ungrounded_b) == (None, None)
    assert [each.is_ungrounded for each in comparison.examples[0].a.items] == [False]


def test_examples_show_the_text_of_either_catalog(tmp_path: Path) -> None:
    texts = ["Acme Kona, dark roast", "Velor coffee, light roast"]
    catalog = tmp_path / "catalog.parquet"
    pq.write_table(pa.table({"title": texts, "c": ["Coffee"] * 2}), catalog)
    settings = {"path": [str(catalog)], "category": "c", "fields": [["title", "title"]]}
    answers = [("dark", "light"), ("Kona", "Velor")]
    a, b = (
        write_run(
            tmp_path / name,
            [Row(f"p{n}", {"Roast": answers[side][n]}, text=text) for n, text in enumerate(texts)],
            files={str(catalog): "f1"},
            config={"input": settings},
        )
        for side, name in enumerate("ab")
    )
    first, _ = sorted(compare_runs(a, b).examples, key=lambda each: each.product_id)
    assert first.fields is not None
    assert [(each.text, each.values) for each in first.fields[0].segments] == [
        ("Acme ", ()),
        ("Kona", (1,)),
        (", ", ()),
        ("dark", (0,)),
        (" roast", ()),
    ]
    pq.write_table(pa.table({"title": ["something else"] * 2, "c": ["Coffee"] * 2}), catalog)
    assert [each.fields for each in compare_runs(a, b).examples] == [None, None]


# Gold


def write_gold(path: Path, values: Mapping[str, Mapping[str, Any]]) -> str:
    path.write_text(
        "\n".join(
            json.dumps({"product_id": name, "category": "Coffee", "values": each}) for name, each in values.items()
        )
    )
    return str(path)


def test_gold_says_which_is_right(tmp_path: Path) -> None:
    a = write_run(
        tmp_path / "a",
        [
            Row("p0", {"Brand": "Acme", "Roast": "dark", "Size": "1"}),
            Row("p1", {"Brand": "12 oz", "Roast": ABSENT, "Size": "x"}),
            Row("p2", {"Brand": "only here"}),
        ],
    )
    b = write_run(
        tmp_path / "b",
        [
            Row("p0", {"Brand": "Acme", "Roast": ABSENT, "Size": "2"}),
            Row("p1", {"Brand": "12 ounces", "Roast": "light", "Size": "y"}),
        ],
    )
    gold = write_gold(
        tmp_path / "gold.jsonl",
        {
            "p0": {"Brand": ["Acme"], "Roast": ["dark"]},
            "p1": {"Brand": ["12 oz", "12 ounces"], "Roast": ["light"], "Size": ["z"]},
            "p2": {"Brand": ["only here"]},
        },
    )
    comparison = compare_runs(a, b, gold=gold)
    quality = comparison.quality
    assert quality is not None
    assert (quality.num_products, quality.num_gold_products, quality.num_labels) == (2, 3, 5)
    assert [dataclasses.astuple(each)[1:] for each in quality.verdicts] == [
        ("Roast", 1, 1, 0, 0),
        ("Brand", 0, 0, 1, 0),
        ("Size", 0, 0, 0, 1),
    ]
    exact, folded = quality.rates
    assert (exact.comparison, folded.comparison) == ("exact", "folded")
    # A: three of four values right of five labels; B: the same.
    assert exact.a.f1.value == exact.b.f1.value == pytest.approx(2 * 3 / (4 + 5))
    assert exact.difference.f1.value == 0
    assert exact.difference.f1.low <= 0 <= exact.difference.f1.high
    rights = {(each.product_id, each.attribute): (each.gold, each.right) for each in comparison.examples}
    assert rights == {
        ("p0", "Roast"): ("dark", "a"),
        ("p0", "Size"): (None, None),
        ("p1", "Brand"): ("12 oz | 12 ounces", "both"),
        ("p1", "Roast"): ("light", "b"),
        ("p1", "Size"): ("z", "neither"),
    }
    _, text, _ = ask(a, b, "--gold", gold)
    assert "2 of its 3 products are in both" in text


def test_the_difference_is_b_minus_a_and_labelled_examples_come_first(tmp_path: Path) -> None:
    numbers = range(30)
    a = write_run(tmp_path / "a", [Row(f"p{n}", {"Brand": "x"}) for n in numbers])
    b = write_run(tmp_path / "b", [Row(f"p{n}", {"Brand": "Acme" if n < 29 else "x"}) for n in numbers])
    gold = write_gold(tmp_path / "gold.jsonl", {f"p{n}": {"Brand": ["Acme"]} for n in (3, 11, 29)})
    comparison = compare_runs(a, b, gold=gold, max_examples=3)
    assert comparison.quality is not None
    difference = comparison.quality.rates[0].difference.f1
    assert (difference.value, difference.high) == (pytest.approx(2 / 3), 1)
    assert 0 <= difference.low <= difference.value
    assert {each.product_id for each in comparison.examples} > {"p3", "p11"}
    same = compare_runs(a, write_run(tmp_path / "c", [Row(f"p{n}", {"Brand": "x"}) for n in numbers]), gold=gold)
    assert same.quality is not None
    assert same.quality.rates[0].difference.f1 == same.quality.rates[0].difference.recall
    assert same.quality.rates[0].difference.f1.low == same.quality.rates[0].difference.f1.high == 0


# What does not fit together


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    rows = [Row("p0", {"Brand": "Acme"})]
    a = write_run(tmp_path / "a", rows)
    b = write_run(tmp_path / "b", rows)
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "file").write_text("x")
    planned = write_run(tmp_path / "planned", rows, unfinished_shards=1)
    stranger = write_run(tmp_path / "stranger", [Row("q", {"Brand": "Acme"})], files={"else.parquet": "f"})
    gold = write_gold(tmp_path / "gold.jsonl", {"other": {"Brand": ["Acme"]}})
    broken = write_run(tmp_path / "broken", rows)
    (tmp_path / "broken" / "attributes" / "part-000000.parquet").write_bytes(b"no Parquet")
    torn = write_run(tmp_path / "torn", rows)
    (tmp_path / "torn" / "products" / "part-000000.parquet").unlink()
    (tmp_path / "torn" / "_plan.json").write_text((tmp_path / "a" / "_plan.json").read_text())
    mangled = write_run(tmp_path / "mangled", rows)
    (tmp_path / "mangled" / "_plan.json").write_text('{"version": 1, "files": [')
    for arguments, message in [
        ((a, str(tmp_path / "nowhere")), "there is no run in"),
        ((a, str(tmp_path / "empty")), "there is no run in"),
        ((a, str(tmp_path / "file")), "is a file, a folder is needed"),
        ((a, a + "/"), "are the same folder"),
        ((a, str(tmp_path / "link")), "are the same folder"),
        ((a, planned), "has not committed anything yet"),
        ((a, stranger), "nothing in common: no product id"),
        ((a, broken), "part-000000.parquet"),
        ((a, torn), "products/part-000000.parquet is missing"),
        ((a, mangled), "cannot read"),
        ((a, b, "--gold", str(tmp_path / "nowhere.jsonl")), "no such gold file"),
        ((a, b, "--gold", gold), "does not belong to"),
        ((a, "nothing://there"), "nothing"),
        ((a, b, "--out", str(tmp_path / "file")), "file"),
    ]:
        code, text, error = ask(*arguments)
        assert code == 2, (arguments, text)
        assert message in error, (arguments, error)
        assert error.startswith("Error: ")
        assert error.count("\n") == 1, error


def test_a_status_that_is_not_known(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", [Row("p0", {"Brand": "Acme"})])
    b = write_run(tmp_path / "b", [Row("p0", {"Brand": ("guessed",)})])
    with pytest.raises(UsageError, match="status 'guessed' is not known"):
        compare_runs(a, b)


def test_runs_of_before_schemas_were_kept(tmp_path: Path) -> None:
    a, b = (write_run(tmp_path / name, [Row("p0", {"Brand": "Acme"})]) for name in "ab")
    (tmp_path / "a" / "_schemas.json").unlink()
    comparison = compare_runs(a, b)
    assert comparison.settings.schemas is None
    assert "Schemas are not compared" in comparison.notes[0]


# The command


def test_the_command_ends_with_one_line_of_json(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", [Row("p0", {"Brand": "[red]Mug[/red]\x1b[2J"})])
    b = write_run(tmp_path / "b", [Row("p0", {"Brand": ABSENT})])
    done = subprocess.run(
        [sys.executable, str(ROOT / "pipelines" / "compare.py"), a, b, "--json"],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "[red]Mug[/red]\ufffd[2J" in done.stdout
    assert "\x1b" not in done.stdout
    data = json.loads(done.stdout.splitlines()[-1])
    assert data["same_text"]["kinds"]["value_to_absent"] == 1
    assert data["examples"][0]["a"]["items"][0]["text"] == "[red]Mug[/red]\x1b[2J"
    assert (data["a"]["uri"], data["b"]["uri"], data["seed"]) == (a, b, 0)


def test_other_storages(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", [Row("p0", {"Brand": "Acme"})])
    b = write_run(tmp_path / "b", [Row("p0", {"Brand": "Kona"})])
    memory = fsspec.filesystem("memory")
    memory.put(a, "/compared/a", recursive=True)
    memory.put(b, "/compared/b", recursive=True)
    try:
        code, _, error = ask("memory://compared/a", "memory://compared/b", "--out", "memory://compared/out")
        assert code == 0, error
        assert json.loads(memory.cat_file("/compared/out/compare.json"))["rows"]["both"] == 1
        assert ask("memory://compared/a", "memory://compared/a/")[0] == 2
    finally:
        memory.rm("/compared", recursive=True)


HOSTILE = "<script>alert(1)</script> {{ 7 * 7 }} \" onload=x ' | `a` </style> \u202eevil \x00"


class Tags(HTMLParser):
    """What a page is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs


def hostile_pair(folder: Path) -> tuple[str, str]:
    row = {"id": HOSTILE, "text": HOSTILE, "category": HOSTILE}
    schemas = [{HOSTILE: [Attribute(name="Brand", description=text)]} for text in (HOSTILE, "plain")]
    return (
        write_run(folder / "a", [Row(answers={"Brand": HOSTILE}, **row)], run_id=HOSTILE, schemas=schemas[0]),
        write_run(
            folder / "b",
            [Row(answers={"Brand": "Kona"}, **row)],
            schemas=schemas[1],
            files={"catalog.parquet": "f2", HOSTILE: "x"},
            config={"model": HOSTILE},
        ),
    )


def test_the_page_stands_alone_and_hostile_texts_are_texts(tmp_path: Path) -> None:
    a, b = hostile_pair(tmp_path)
    gold = tmp_path / "gold.jsonl"
    gold.write_text(json.dumps({"product_id": HOSTILE, "category": HOSTILE, "values": {"Brand": [HOSTILE]}}))
    code, text, error = ask(a, b, "--gold", str(gold), "--out", str(tmp_path / "out"))
    assert code == 0, error
    assert "\x00" not in text
    page = (tmp_path / "out" / "compare.html").read_text()
    found = Tags()
    found.feed(page)
    assert found.tags["script"] == 0
    assert found.tags["style"] == 1
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert {name for name, _ in found.attributes if name.startswith("on")} == set()
    assert {value for name, value in found.attributes if name in ("src", "href")} <= {
        "data:,",
        "#main",
        "#runs",
        "#rows",
        "#agreement",
        "#attributes",
        "#quality",
        "#cost",
        "#examples",
    }
    policies = [value for name, value in found.attributes if name == "content" and value and "default-src" in value]
    assert policies
    assert policies[0].startswith("default-src 'none'; style-src 'sha256-")
    markdown = (tmp_path / "out" / "compare.md").read_text()
    assert "<script>" not in markdown
    assert "`" not in markdown.replace("\\`", "")
    data = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert data["examples"][0]["a"]["items"][0]["text"] == HOSTILE
    assert data["examples"][0]["right"] == "a"


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, True)])
def test_the_page_in_a_browser(tmp_path: Path, width: int, dark: bool) -> None:
    if reason := browser.missing():
        pytest.skip(reason)
    a, b = hostile_pair(tmp_path)
    assert ask(a, b, "--out", str(tmp_path / "out"))[0] == 0
    with browser.open_browser() as page:
        page.open(tmp_path / "out" / "compare.html", width=width, dark=dark)
        assert [request for request in page.requests if not request.startswith("data:")] == []
        assert (page.complaints, page.dialogs) == ([], [])
        assert page.evaluate("document.querySelectorAll('article.example').length") == 1
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert page.evaluate("getComputedStyle(document.querySelector('.card')).borderRadius") == "10px"


def test_a_page_of_runs_with_nothing_to_show(tmp_path: Path) -> None:
    # All dead on one side, and another text throughout.
    a = write_run(tmp_path / "a", [Row("p0", None), Row("p1", {"Brand": "x"})])
    b = write_run(
        tmp_path / "b",
        [Row("p0", None), Row("p1", {"Brand": "y"}, text="other")],
        files={"catalog.parquet": "f2"},
        unfinished_shards=0,
    )
    code, text, error = ask(a, b, "--out", str(tmp_path / "out"))
    assert code == 0, error
    assert "no answer to compare" in text
    page = (tmp_path / "out" / "compare.html").read_text()
    assert "No row has the same text in both runs." in page
    assert "1 rows have another text" in page


def test_long_lists_do_not_make_a_page_without_end(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", [Row("p0", {"Brand": "x", "Old": "y"})])
    b = write_run(tmp_path / "b", [Row("p0", {"Brand": "y"})])
    found = compare_runs(a, b)
    category, (brand, old) = found.by_category[0], found.by_attribute
    assert (brand.attribute, old.attribute) == ("Brand", "Old")
    assert found.settings.schemas is not None
    many = dataclasses.replace(
        found,
        by_category=[dataclasses.replace(category, category=f"Category {n}") for n in range(3000)],
        by_attribute=[dataclasses.replace(old, category=f"Category {n}") for n in range(3000)],
        settings=dataclasses.replace(
            found.settings, schemas=list(found.settings.schemas) * 3000, files=["a file has changed"] * 3000
        ),
    )
    page, text = render_html(many), render_markdown(many)
    for shown in (page, text):
        assert "2,500 others" in shown
        assert "Category 500<" not in shown
        assert "Category 500 " not in shown
        assert "all are in compare.json" in shown
    assert page.count("2,500 others") == 2
    assert len(page) < 500_000
    assert len(text) < 100_000


# Large runs


def test_large_runs_need_little_memory(tmp_path: Path) -> None:
    """A million answers each. The process itself, with its libraries, takes some 400 MB."""
    count = 100_000
    a, b = (write_large_run(tmp_path / name, count, differs=name == "b") for name in "ab")
    kinds, megabytes = compare_apart(a, b, memory_limit="150MB")
    assert kinds == expected(count)
    assert megabytes < 1000


# Real runs


@pytest.mark.usefixtures("shared_ray")
def test_two_real_runs(workplace: Workplace) -> None:
    workplace.write_jsonl("c.jsonl", [*products(12), product(12, category="Hats")])
    for name, changes in (("tree", {}), ("short", {"engine": {"max_value_tokens": 1}})):
        document = workplace.document()
        engine = {**document["engine"], **changes.get("engine", {})}
        workplace.run(output=str(workplace.folder / name), engine=engine, max_dead_letter_share=1)
    comparison = compare_runs(str(workplace.folder / "tree"), str(workplace.folder / "short"))
    assert [each.key for each in comparison.settings.config] == ["engine.max_value_tokens"]
    assert comparison.settings.engine == []
    assert (comparison.rows.both, comparison.rows.text_changed, comparison.rows.dead_both) == (13, 0, 1)
    same = comparison.same_text
    assert same.num_answers == 12 // 2 * 3 + 12 // 2 * 2
    answers = [
        {
            (row["source_row"], row["attribute"], row["value_index"]): (row["status"], row["value_raw"])
            for row in read_table(workplace.folder / name, "attributes")
        }
        for name in ("tree", "short")
    ]
    differing = {
        key[:2]
        for key in answers[0].keys() | answers[1].keys()
        if answers[0].get(key) != answers[1].get(key)
        and not {each.get(key, ("",))[0] for each in answers} <= {"truncated"}  # their text is no answer
    }
    assert same.num_answers - same.num_same == len(differing) > 0
    again = workplace.run(
        output=str(workplace.folder / "again"), base=str(workplace.folder / "tree"), max_dead_letter_share=1
    )
    assert again.changes is not None
    carried = compare_runs(str(workplace.folder / "tree"), str(workplace.folder / "again"))
    assert carried.same_text.num_same_decode == carried.same_text.num_answers == same.num_answers
    assert carried.b.figures.decoded == 0
    assert carried.b.figures.usd_per_1k is None
