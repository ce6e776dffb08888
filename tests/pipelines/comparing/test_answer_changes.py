"""Every answer is the same, another one, lost, found or a failure, counted with an interval."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipelines.comparing.answer_changes import Moments, clustered, wilson
from pipelines.comparing.comparison import compare_runs
from pipelines.errors import UsageError
from tests.pipelines.comparing.comparisons import ask, kinds, of
from tests.pipelines.comparing.made_runs import ABSENT, INVALID, TRUNCATED, Answer, Row, write_run
from tests.tables import table


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


@table(
    ("decoded", "same", "said"),
    [
        (["Acme", "Acme"], 3, "(1 of them are one decode that was taken over; of those decoded by both, 100%)"),
        (["Acme", "Peru"], 2, "(1 of them are one decode that was taken over; of those decoded by both, 50.0%)"),
        ([], 1, "(1 of them are one decode that was taken over)"),
    ],
)
def test_a_taken_over_answer_that_a_person_corrected_since_was_not_decoded_by_both(
    tmp_path: Path, decoded: list[str], same: int, said: str
) -> None:
    taken_over = {"Brand": "Acme", "Roast": "dark"}
    answers = {**taken_over, **dict.fromkeys(map(str, range(len(decoded))), "Acme")}
    a = write_run(tmp_path / "a", [Row("p", {**answers, "Brand": "Velor"}, reviewed=("Brand",))])
    again = {**taken_over, **{str(number): text for number, text in enumerate(decoded)}}
    b = write_run(tmp_path / "b", [Row("p", again, carried_from=dict.fromkeys(taken_over, "a"))])
    found = compare_runs(a, b).same_text
    assert (found.num_answers, found.num_same) == (len(answers), same)
    assert (found.num_same_decode, found.num_kept) == (2, 1)
    assert said in ask(a, b)[1]


def test_a_status_that_is_not_known(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", [Row("p0", {"Brand": "Acme"})])
    b = write_run(tmp_path / "b", [Row("p0", {"Brand": ("guessed",)})])
    with pytest.raises(UsageError, match="status 'guessed' is not known"):
        compare_runs(a, b)


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
