"""Gold says which of two runs is right."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from pipelines.evaluating.comparison import compare_runs
from tests.pipelines.evaluating.comparisons import ask, write_gold
from tests.pipelines.evaluating.made_runs import ABSENT, Row, write_run


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
    assert "gold.jsonl: 2 products, " in text


def test_the_difference_is_b_minus_a_and_labelled_examples_come_first(tmp_path: Path) -> None:
    numbers = range(30)
    wrong = [Row(f"p{n}", {"Brand": "x"}) for n in numbers]
    mostly_right = [Row(f"p{n}", {"Brand": "Acme" if n < 29 else "x"}) for n in numbers]
    a, b = (write_run(tmp_path / name, rows, shard_rows=10) for name, rows in (("a", wrong), ("b", mostly_right)))
    gold = write_gold(tmp_path / "gold.jsonl", {f"p{n}": {"Brand": ["Acme"]} for n in (3, 11, 29)})
    comparison = compare_runs(a, b, gold=gold, max_examples=3)
    assert comparison.quality is not None
    difference = comparison.quality.rates[0].difference.f1
    assert (difference.value, difference.high) == (pytest.approx(2 / 3), 1)
    assert 0 <= difference.low <= difference.value
    assert {each.product_id for each in comparison.examples} > {"p3", "p11"}
    same = compare_runs(a, write_run(tmp_path / "c", wrong, shard_rows=10), gold=gold)
    assert same.quality is not None
    assert same.quality.rates[0].difference.f1 == same.quality.rates[0].difference.recall
    assert same.quality.rates[0].difference.f1.low == same.quality.rates[0].difference.f1.high == 0
