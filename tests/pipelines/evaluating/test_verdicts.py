"""What is read of a judge's words, and what is counted from it; properties."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from hpd_core import Attribute
from pipelines.evaluating.questions import (
    CLASSES,
    INSTRUCTION,
    asked_again,
    fits,
    llm_estimates,
    llm_rates,
    question,
    read_verdicts,
)
from pipelines.quality.scoring import RateEstimates

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12).map(str.strip).filter(bool)
VALUES = st.dictionaries(NAMES, st.one_of(st.none(), st.text(max_size=8), st.lists(st.text(max_size=4), min_size=1)))


@st.composite
def judged_values(draw: st.DrawFn) -> tuple[dict[str, object], dict[str, str]]:
    """Values, and a class that fits each."""
    values = draw(VALUES.filter(bool))
    classes = {
        name: draw(st.sampled_from([each for each in CLASSES if fits(each, value is None)]))
        for name, value in values.items()
    }
    return values, classes


@given(
    judged_values(),
    st.sampled_from(["{}", "<result>{}</result>", "```json\n{}\n```", 'Brand: "x" {{y}}\n<RESULT>\n{}']),
)
def test_every_class_is_read_wherever_the_object_stands(judged: tuple[dict, dict], frame: str) -> None:
    values, classes = judged
    reading = read_verdicts(frame.replace("{}", json.dumps(classes, ensure_ascii=False)), values)
    assert reading.classes == classes
    assert reading.problem == ""


@given(st.text(), VALUES)
def test_no_text_is_too_odd_and_nothing_is_lost(text: str, values: dict) -> None:
    reading = read_verdicts(text, values)
    assert reading.classes.keys() | reading.problems.keys() == values.keys()
    assert not reading.classes.keys() & reading.problems.keys()


def test_the_last_object_in_the_last_tags_counts() -> None:
    values = {"Brand": "Acme", "Colour": None}
    first, last = {"Brand": "incorrect", "Colour": "missing"}, {"brand ": "Correct", "COLOUR": "correct_null"}
    text = f"<result>{json.dumps(first)}</result> No: <result>{json.dumps(last)}</result> {{}}"
    assert read_verdicts(text, values).classes == {"Brand": "correct", "Colour": "correct null"}
    nested = json.dumps({"product": {"Brand": "correct"}})
    assert read_verdicts(nested, values).classes == {"Brand": "correct"}
    noted = f'{{"note": {json.dumps(first)}}} Finally: {json.dumps(last)}'
    assert read_verdicts(noted, values).classes == {"Brand": "correct", "Colour": "correct null"}
    with_note = json.dumps({**last, "as I said": first})
    assert read_verdicts(with_note, values).classes == {"Brand": "correct", "Colour": "correct null"}
    doubled = '{"Brand": "correct", "Brand": "incorrect", "Colour": "missing"}'
    assert read_verdicts(doubled, values).problems == {"Brand": "has two classes"}
    # Two attributes that differ in case alone are told apart by it.
    both = read_verdicts('{"size": "correct", "Size": "incorrect", "SIZE": "missing"}', {"size": "1", "Size": "2"})
    assert both.classes == {"size": "correct", "Size": "incorrect"}


def estimated(by_product: list[list[int]], **options: int) -> RateEstimates:
    found = llm_estimates(by_product, **options)
    assert found is not None
    return found


def test_products_of_which_nothing_was_decided_are_in_no_rate_and_no_interval() -> None:
    decided = [[1, 0, 1, 0, 0], [2, 0, 0, 0, 0], [0, 0, 0, 1, 1]]
    undecided = [[0, 0, 0, 0, 0]]
    assert estimated([*decided, *undecided * 50]) == estimated(decided)
    assert estimated([[2, 0, 0, 0, 0], *undecided * 9]).f1.low == 1
    for nothing in ([], undecided * 3):
        assert llm_estimates(nothing) is None
    assert llm_rates(undecided[0]) is None


@given(st.text(), st.text())
def test_a_product_that_looks_like_the_prompt_stays_a_text(text: str, value: str) -> None:
    hostile = f"{{values}} {text} {{attributes}}"
    (message,) = question([Attribute(name="Brand")], {"title": hostile}, {"Brand": value})
    after = INSTRUCTION.partition("{product}")[2]
    assert message["content"].endswith(
        after.replace("{values}", json.dumps({"Brand": value}, ensure_ascii=False, indent=1))
    )
    assert f"title: {hostile.strip()}" in message["content"]
    again = asked_again([message], "", "'Brand' has no class")
    assert len(again) == 1, "an empty answer is no message"
    assert again[0]["content"].startswith(message["content"])
