"""Examples of answers that differ: few, spread, drawn again alike, with the text they stand in."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest

from pipelines.comparing.comparison import compare_runs
from tests.pipelines.comparing.made_runs import ABSENT, Row, write_run


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
    same = [Row(f"p{n}", {"Brand": "x", "Roast": "x", "Size": "x"}) for n in numbers]
    a = write_run(tmp_path / "a", same, shard_rows=10)
    b = write_run(
        tmp_path / "b",
        [Row(f"p{n}", {"Brand": "y", "Roast": "y" if n % 2 else "x", "Size": "y" if n == 7 else "x"}) for n in numbers],
        shard_rows=10,
    )
    examples = compare_runs(a, b, max_examples=9).examples
    assert Counter(each.attribute for each in examples) == {"Brand": 4, "Roast": 4, "Size": 1}
    assert [each.attribute for each in examples] == sorted(each.attribute for each in examples), "least agreeing first"
    assert examples == compare_runs(a, b, max_examples=9).examples
    assert examples != compare_runs(a, b, max_examples=9, seed=1).examples
    assert compare_runs(a, b, max_examples=0).examples == []
