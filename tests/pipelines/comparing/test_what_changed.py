"""What changed overnight: changed texts with their answers, decisions, and what people answered."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.comparing import phrases
from pipelines.comparing.comparison import RunComparison, compare_runs
from pipelines.comparing.examples import ChangeExample
from pipelines.comparing.pages import render_html, render_markdown
from tests.pipelines.comparing.comparisons import ask, review
from tests.pipelines.comparing.made_runs import ABSENT, Row, write_run
from tests.tables import table

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
    assert "Answers to changed texts that differ" in text
    data = json.loads(text.splitlines()[-1])
    assert {each["product_id"] for each in data["changed_examples"]} == {"changed"}


def test_both_texts_of_a_changed_product_are_shown_as_far_as_they_can_be_read(tmp_path: Path) -> None:
    catalogs = {name: tmp_path / name / "catalog.parquet" for name in ("monday", "tuesday")}
    texts = {"monday": "Acme Kona, dark roast", "tuesday": "Velor Kona, light roast"}
    for name, catalog in catalogs.items():
        catalog.parent.mkdir()
        pq.write_table(pa.table({"title": [texts[name]], "c": ["Coffee"]}), catalog)
    a, b = (
        write_run(
            tmp_path / "runs" / name,
            [Row("p", {"Brand": texts[name].split()[0]}, text=texts[name])],
            files={str(catalog): name},
            config={"input": {"path": [str(catalog)], "category": "c", "fields": [["title", "title"]]}},
        )
        for name, catalog in catalogs.items()
    )

    def marked(example: ChangeExample) -> list[list[str] | None]:
        return [
            None if fields is None else [each.text for field in fields for each in field.segments if each.values]
            for fields in (example.fields, example.fields_b)
        ]

    (example,) = compare_runs(a, b).changed_examples
    assert marked(example) == [["Acme"], ["Velor"]]
    catalogs["monday"].unlink()  # the shop's export is written over every night
    (example,) = compare_runs(a, b).changed_examples
    assert marked(example) == [None, ["Velor"]]
    catalogs["tuesday"].unlink()
    found = compare_runs(a, b)
    assert marked(found.changed_examples[0]) == [None, None]
    assert "The text that B has read could not be read back." in render_html(found)


def pair(folder: Path, before: Row, after: Row) -> RunComparison:
    return compare_runs(write_run(folder / "a", [before]), write_run(folder / "b", [after]))


def test_a_decision_that_changed_is_a_change_though_the_answer_is_the_same(tmp_path: Path) -> None:
    answers = {"Brand": "Acme", "Roast": "dark", "Origin": "Kona", "Size": "x"}
    found = pair(
        tmp_path,
        Row("p", answers, decided={"Brand": "review", "Roast": "accept", "Origin": "accept"}),
        Row("p", answers, decided={"Brand": "accept", "Roast": "review", "Origin": "accept", "Size": "accept"}),
    )
    assert {each.attribute: tuple(each[2:]) for each in found.trust} == {"Brand": (1, 0, 0, 0), "Roast": (0, 1, 0, 0)}
    assert {each.attribute for each in found.examples} == {"Brand", "Roast"}
    assert found.same_text.num_same == 4
    assert phrases.change_lines(found) == ["Decisions: 1 answers now accepted, 1 now to review"]
    brand = next(each for each in found.examples if each.attribute == "Brand")
    assert (phrases.answer(brand.a), phrases.answer(brand.b)) == ("Acme [to review]", "Acme [accepted]")
    assert "now to review" in render_html(found)


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


@table("older", ["a", "b"])
def test_a_run_of_before_there_were_decisions_has_not_changed_by_that(tmp_path: Path, older: str) -> None:
    answers = {"Brand": "Acme", "Roast": "dark"}
    runs = [write_run(tmp_path / name, [Row("p", answers, decided=dict.fromkeys(answers, "accept"))]) for name in "ab"]
    for path in (tmp_path / older / "attributes").iterdir():
        pq.write_table(pq.read_table(path).drop_columns(["decision", "confidence", "source", "probability"]), path)
    found = compare_runs(*runs)
    assert (found.trust, found.examples, phrases.change_lines(found)) == ([], [], [])
    assert "Nothing: every row is in both" in render_html(found)
