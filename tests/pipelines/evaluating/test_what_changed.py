"""What changed overnight: changed texts with their answers, decisions, and what people answered."""

from __future__ import annotations

import json
from pathlib import Path

from pipelines.evaluating import phrases
from pipelines.evaluating.comparison import compare_runs
from pipelines.evaluating.pages import render_html, render_markdown
from tests.pipelines.evaluating.comparisons import ask, review
from tests.pipelines.evaluating.made_runs import ABSENT, Row, write_run

NEW = {"catalog.parquet": "f2"}


def tonight(folder: Path) -> tuple[str, str]:
    """Of five products: one as it was, one with another text and the same answer, one with other answers, one gone and
    one new."""
    a = write_run(
        folder / "monday",
        [
            Row("same", {"Brand": "Acme", "Roast": "dark"}),
            Row("edited", {"Brand": "Acme", "Roast": "dark"}),
            Row("changed", {"Brand": "Acme", "Roast": "dark"}),
            Row("gone", {"Brand": "Acme", "Roast": "dark"}),
            Row("died", {"Brand": "Acme", "Roast": "dark"}),
        ],
    )
    b = write_run(
        folder / "tuesday",
        [
            Row("same", {"Brand": "Acme", "Roast": "dark"}),
            Row("edited", {"Brand": "Acme", "Roast": "dark"}, text="Acme Kona, a dark roast"),
            Row("changed", {"Brand": "Velor", "Roast": ABSENT}, text="Velor Kona"),
            Row("new", {"Brand": "Acme", "Roast": "dark"}),
            Row("died", None),
        ],
        files=NEW,
    )
    return a, b


def test_changed_texts_are_listed_with_their_changed_answers(tmp_path: Path) -> None:
    found = compare_runs(*tonight(tmp_path))
    assert phrases.change_lines(found) == [
        "Products: 1 new, 1 gone",
        "Products with another text: 2; 2 of 4 answers changed",
        "Products with the same text: 2 of 4 answers changed",
        "Dead letters: 1 new, 0 gone",
    ]
    changed = {(each.product_id, each.attribute): each for each in found.changed_examples}
    assert set(changed) == {("changed", "Brand"), ("changed", "Roast")}
    assert found.examples == [], "a dead letter has no answer to show"
    example = changed["changed", "Brand"]
    assert (example.is_text_changed, phrases.answer(example.a), phrases.answer(example.b)) == (True, "Acme", "Velor")
    page, markdown = render_html(found), render_markdown(found)
    for text in (page, markdown):
        assert "Of products with another text" in text
        assert "Velor" in text
        assert "Products with another text: 2; 2 of 4 answers changed" in text
    code, text, _ = ask(*tonight(tmp_path / "again"), "--json")
    assert code == 0
    assert "Of products with another text:" in text
    data = json.loads(text.splitlines()[-1])
    assert {each["product_id"] for each in data["changed_examples"]} == {"changed"}


def test_corrections_that_lie_beside_a_run_stand_over_its_answers(tmp_path: Path) -> None:
    answers = {"Brand": "Acme", "Roast": "dark", "Origin": "Kona"}
    a, b = (write_run(tmp_path / name, [Row("p", answers), Row("q", answers)]) for name in "ab")
    review(b, 0, answers, {"Brand": ("correct", "Velor"), "Roast": ("accept",), "Origin": ("absent",)})
    found = compare_runs(a, b)
    assert phrases.change_lines(found) == [
        "Products with the same text: 2 of 6 answers changed",
        "Answers of people: 3 new, 0 gone",
    ]
    shown = {each.attribute: (phrases.answer(each.a), phrases.answer(each.b)) for each in found.examples}
    assert shown["Brand"] == ("Acme", "Velor [by a person, accepted]")
    assert shown["Origin"] == ("Kona", "(absent) [by a person, accepted]")
    assert shown["Roast"] == ("dark", "dark [by a person, accepted]")
