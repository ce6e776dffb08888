"""Runs that were not written by hand: large ones, which need little memory, and real ones."""

from __future__ import annotations

import pytest

from pipelines.evaluating.comparison import compare_runs
from tests.pipelines.conftest import Workplace, product, products, read_table


@pytest.mark.full
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
