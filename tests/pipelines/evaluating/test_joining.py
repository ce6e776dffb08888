"""Which row of one run is which of the other: every row is in exactly one bucket."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import UsageError
from pipelines.evaluating.answer_changes import kind
from pipelines.evaluating.comparison import compare_runs
from tests.examples import examples
from tests.pipelines.evaluating.comparisons import kinds
from tests.pipelines.evaluating.made_runs import ABSENT, TRUNCATED, Row, write_run

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


@settings(max_examples=examples(30))
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
