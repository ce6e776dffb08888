"""Every answer is the same, another one, lost, found or a failure, counted with an interval."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipelines.evaluating.answer_changes import Moments, clustered
from pipelines.evaluating.comparison import compare_runs
from tests.pipelines.evaluating.comparisons import kinds, of
from tests.pipelines.evaluating.made_runs import ABSENT, INVALID, TRUNCATED, Answer, Row, write_run


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
