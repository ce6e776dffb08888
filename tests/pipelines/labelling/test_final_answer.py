"""Of all that a teacher writes, its final answer counts; where that cannot be told, there is none."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core import Attribute, CategorySchema
from pipelines.labelling.final_answer import NoAnswer, read_answer
from tests.examples import examples
from tests.tables import table

SCHEMA = CategorySchema(
    category="Lamps",
    attributes=(
        Attribute(name="Brand"),
        Attribute(name="Shade colour"),
        Attribute(name="Power", type="number", unit="W"),
    ),
)
FIELDS = {"title": "Corvina desk lamp, green shade, 40 W"}
RIGHT = {"Brand": "Corvina", "Shade colour": "green", "Power": 40}
FINAL = json.dumps(RIGHT)
DRAFT = json.dumps({"Brand": "Merle", "Shade colour": "red", "Power": 25})
FORM = '{"Brand": "...", "Shade colour": "<colour>", "Power": "number"}'
LABELS = {"Brand": "Corvina", "Shade colour": "green", "Power": "40"}


def answered(text: str, *, is_cut: bool = False) -> tuple[dict[str, str | None], dict[str, int]] | NoAnswer:
    found = read_answer(SCHEMA, text, FIELDS, is_cut=is_cut)
    if isinstance(found, str):
        return found
    return {name: value.text for name, value in found.values.items()}, dict(found.problems)


@table(
    "text",
    [
        FINAL,
        f"```json\n{json.dumps(RIGHT, indent=2)}\n```",
        f"Sure! Here it is: {FINAL} Anything else?",
        json.dumps(dict(reversed(RIGHT.items()))),
        json.dumps(FINAL),  # encoded twice
        f"An example is {{'Brand': ...}}, yours is {FINAL}",
        # thoughts
        f"<think>Perhaps {{}} or {DRAFT}?</think>{FINAL}",
        f"Perhaps {DRAFT}?</think>{FINAL}",
        f"[THINK]{DRAFT}[/THINK]{FINAL}",
        f"<|channel|>analysis<|message|>{DRAFT}<|end|><|start|>assistant<|channel|>final<|message|>{FINAL}",
        # drafts and examples
        f"Draft: {DRAFT}\nWait, the title says otherwise.\nFinal answer:\n```json\n{FINAL}\n```",
        f"My first guess was {DRAFT}. The answer is {FINAL}",
        f"Format: {FORM}\nAnswer: {FINAL}",
        f"{FORM}\n{FINAL}",
        f"For example: {DRAFT}\n\n{FINAL}",
        f"Final answer: {FINAL}\nExplanation: not {DRAFT}, since the shade is green.",
        f"**Answer**\n\n{FINAL}\n\nAn alternative would be {DRAFT}",
        f'{{"properties": {{"Brand": {{"type": "string"}}, "Power": {{"type": "number"}}}}}}\n{FINAL}',
        # the same said twice, or in parts
        f"{FINAL}\n{FINAL}",
        f'{FINAL}\nI chose {{"Brand": "Corvina"}} since it stands in the title.',
        f'{{"Brand": "Corvina"}} was too short. {FINAL}',
        '{"Brand": "Corvina"}\n{"Shade colour": "green"}\n{"Power": 40}',
        'Brand: {"Brand": "Corvina"}\nShade colour: {"Shade colour": "green"}\nPower: {"Power": 40}',
        '[{"Brand": "Corvina"}, {"Shade colour": "green", "Power": 40}]',
        # about the answer
        f'{FINAL}\nEvidence: {{"Brand": "title", "Shade colour": "title", "Power": "title"}}',
        f'{FINAL}\n\n**Confidence scores:**\n```json\n{{"Brand": 0.9, "Shade colour": 0.8, "Power": 1}}\n```',
        f'Sources: {{"Brand": "first word"}}\n{FINAL}',
        f'{{"attributes": {FINAL}, "confidence": {{"Brand": 0.9, "Shade colour": 0.8, "Power": 1}}}}',
        f'{{"values": {FINAL}, "scores": {{"Brand": 0.9, "Shade colour": 0.8, "Power": 1}}}}',
        f'{{"extracted": {FINAL}, "evidence": {{"Brand": "title", "Shade colour": "title", "Power": "title"}}}}',
        f"<answer>{FINAL}</answer> whereas {DRAFT} was considered",
        # words behind it that do not take it back
        f"{FINAL}\nThe product is correction fluid.",
        f"{FINAL}\nThere is no mistake.",
        f"{FINAL}\nIs there anything wrong? If a value is wrong, tell me.",
        f"{FINAL}\nNo size is given. It should be complete.",
        # objects around it
        f"[{FINAL}]",
        f'{{"1": {FINAL}}}',
        f'{{"product": {{"attributes": {FINAL}}}}}',
        f'{{"product": {FINAL}, "alternatives": [{DRAFT}]}}',
        f'{{"draft": {DRAFT}, "final": {FINAL}}}',
        f'{{"initial_answer": {DRAFT}, "revised_answer": {FINAL}}}',
        f'{{"product_analysis": {FINAL}}}',
        f"<example>{DRAFT}</example>\n<output>{FINAL}</output>",
        f'{{"thoughts": {json.dumps(DRAFT)}, "answer": {FINAL}}}',
        '{"general": {"Brand": "Corvina"}, "details": {"Shade colour": "green", "Power": 40}}',
        f'<tool_call>{{"name": "attributes", "arguments": {FINAL}}}</tool_call>',
        f'{{"name": "attributes", "arguments": {json.dumps(FINAL)}}}',
        json.dumps({"output": f"```json\n{FINAL}\n```"}),
        # nearly JSON
        "{'Brand': 'Corvina', 'Shade colour': 'green', 'Power': 40,}",
        '{"Brand": "Corvina", // from the title\n "Shade colour": "green", Power: 40}',
        f"{{{FINAL}}}",
        f"\\boxed{{{FINAL}}}",
        f"<|begin_of_box|>{FINAL}<|end_of_box|>",
        # what a model goes on with behind its turn
        f"{FINAL}<|im_end|>\n<|im_start|>user\nThe next one<|im_end|>\n<|im_start|>assistant\n{DRAFT}",
        f"{FINAL}</s> {DRAFT}",
    ],
)
def test_the_final_answer_is_found(text: str) -> None:
    assert answered(text) == (LABELS, {})


@table(
    ("text", "problems"),
    [
        (
            '{"Brand": {"value": "Corvina", "evidence": "Corvina desk"}, "Shade colour": ["green"], '
            '"Power": {"value": 40, "unit": "W"}}',
            {"wrapped_value": 3},
        ),
        (
            '[{"attribute": "Brand", "value": "Corvina"}, {"attribute": "Shade colour", "value": "green"}, '
            '{"attribute": "Power", "value": 40}]',
            {"wrapped_value": 3},
        ),
        ('[["Brand", "Corvina"], ["Shade colour", "green"], ["Power", 40]]', {}),
        (f"{DRAFT}\n\nThe title says otherwise. Corrected:\n\n{FINAL}", {"earlier_answer": 1}),
        (f"{DRAFT}\nBut the shade is green, so: {FINAL}", {"earlier_answer": 1}),
        (f"{DRAFT}\nUpdated:\n```json\n{FINAL}\n```", {"earlier_answer": 1}),
        (
            '{"brand": "Corvina", "Brand": "Corvina", "Shade colour": "green", "Power": 40}',
            {"doubled_key": 1, "misspelled_key": 1},
        ),
        ('{"brand": "Corvina", "SHADE_COLOUR": "green", "Power": 40}', {"misspelled_key": 2}),
    ],
)
def test_what_is_read_all_the_same_is_counted(text: str, problems: dict[str, int]) -> None:
    assert answered(text) == (LABELS, problems)


def test_a_unit_is_not_dropped() -> None:
    assert answered('{"Power": {"value": 1, "unit": "kW"}}') == (
        {"Power": None},
        {"wrapped_value": 1, "missing_key": 2},
    )
    assert answered('{"Shade colour": {"value": 3, "unit": "cm"}}') == (
        {"Shade colour": "3 cm"},
        {"wrapped_value": 1, "missing_key": 2},
    )


@table(
    ("text", "is_cut", "why"),
    [
        *((text, False, "none") for text in ("", "no", "null", "[]", "{", "{ words }", "{Brand: Corvina}")),
        (FORM, False, "template"),
        ('{"Brand": "the brand", "Shade colour": "your colour here"}', False, "template"),
        ('{"Brand": "string", "Shade colour": "Shade colour"}', False, "template"),
        ('{"Brand": "Corvina", "Shade', True, "unclosed"),
        ('{"Brand": "Corvina"', False, "unclosed"),
        (f'{{"product": {FINAL}, "alternatives": [{{"Brand": "Mer', True, "unclosed"),
        (f'{DRAFT}\nNo: {{"Brand": "Corv', True, "unclosed"),
        (f"<think>First {DRAFT}, but the title says", True, "thinking"),
        (f"<think>{DRAFT}", False, "thinking"),
        (f"{DRAFT}<think>No, wait", True, "thinking"),
        (f"{DRAFT}\nWait, the title says", True, "cut_behind"),
        (f"Draft: {DRAFT}\nNow", True, "cut_behind"),
        (f"{FINAL}\n{DRAFT}", False, "several"),
        # nothing says which one is meant, whatever words stand between the two
        (f"{FINAL}\nCompare with the Merle lamp: {DRAFT}", False, "several"),
        (f"{DRAFT}\n\nThe title says otherwise.\n\n{FINAL}", False, "several"),
        ('{"Brand": "Merle"}\n' + FINAL, False, "several"),
        (f'{FINAL}\nHow sure I am: {{"Brand": 0.9, "Shade colour": 0.8, "Power": 1}}', False, "several"),
        (f"Final answer: {DRAFT}\nFinal answer: {FINAL}", False, "several"),
        (f"Answer: {DRAFT}\nLet me see. The colour", True, "cut_behind"),
        (f"[{FINAL}, {DRAFT}]", False, "several"),
        (f'{{"a": {FINAL}, "b": {DRAFT}}}', False, "several"),
        (f'{{"products": [{FINAL}, {DRAFT}]}}', False, "several"),
        (f"Answer: {DRAFT}\nHmm. {FINAL}", False, "several"),
        (f'{DRAFT}\nThe brand is wrong, it is {{"Brand": "Corvina"}}', False, "several"),
        (f"{DRAFT}\n\nThat is wrong, it is {FINAL}", False, "several"),
        (f"Option A: {FINAL}\nOption B: {DRAFT}\nThe best one is A.", False, "several"),
        (f"{DRAFT}\nWait, the title says otherwise.", False, "taken_back"),
        (f"Answer: {DRAFT}\nThis is wrong, but I cannot tell.", False, "taken_back"),
        (f"{DRAFT}\nNo, scratch that. The brand is Corvina.", False, "taken_back"),
        (f"{DRAFT}\nActually, the shade is green.", False, "taken_back"),
        (f"{DRAFT}\nThe shade colour should be green.", False, "taken_back"),
        (f"```json\n{DRAFT}\n```\nThat's not right.", False, "taken_back"),
    ],
)
def test_where_it_cannot_be_told_there_is_none(text: str, is_cut: bool, why: NoAnswer) -> None:
    assert answered(text, is_cut=is_cut) == why


@table("text", [FINAL, f"{FINAL}\n```", f"Final answer: {FINAL}\nThis is", f"<answer>{FINAL}</ans"])
def test_what_was_whole_before_the_cut_counts(text: str) -> None:
    assert answered(text, is_cut=True) == (LABELS, {})


def test_keys() -> None:
    text = '{"brand": "Corvina", "Brand": "Corvina", "Brand": "Corvina", "shade_colour": "green", "Price": 3}'
    problems = {"doubled_key": 2, "misspelled_key": 2, "unknown_key": 1, "missing_key": 1}
    assert answered(text) == ({"Brand": "Corvina", "Shade colour": "green"}, problems)
    text = '{"brand": "Merle", "Brand": "Corvina", "Power": 40}'
    problems = {"doubled_key": 1, "misspelled_key": 1, "missing_key": 1}
    assert answered(text) == ({"Power": "40"}, problems), "which one is meant?"
    text = '{"Brand": "Merle", "Shade colour": "green", "Brand": "Corvina", "Power": 40}'
    assert answered(text) == ({"Shade colour": "green", "Power": "40"}, {"doubled_key": 1}), "which one is meant?"
    text = '{"Brand": "Merle", "Brand": "Corvina", "brand": "Merle"}'
    assert answered(text) == ({}, {"doubled_key": 2, "misspelled_key": 1, "missing_key": 2})
    assert answered('{"brand": "Corvina", "BRAND": "Merle"}') == (
        {},
        {"doubled_key": 1, "misspelled_key": 2, "missing_key": 2},
    )
    assert answered('{"Price": 3, "Rating": "good"}') == ({}, {"unknown_key": 2, "missing_key": 3})


BOOKS = CategorySchema(category="Books", attributes=(Attribute(name="Title"), Attribute(name="Author")))


@table(
    "title",
    [
        *("The Hobbit", "Your Name", "Wish You Were Here", "Text", "[REC]", "Title", "Kestrel [Draft]", "1984…"),
        *("<Analysis>", "[Planning] a city", "Price: <s>9</s> 8"),
    ],
)
def test_a_value_that_the_text_has_is_one(title: str) -> None:
    answer = json.dumps({"Title": title, "Author": None}, ensure_ascii=False)
    for text in (answer, f"```json\n{answer}\n```", f"Here it is: {answer}", f'{{"Title": "It"}}\nCorrected: {answer}'):
        found = read_answer(BOOKS, text, {"title": f"Book: {title} (new)"})
        assert not isinstance(found, str), (text, found)
        assert (found.values["Title"].text, found.values["Author"].status) == (title, "absent"), text


def test_a_value_that_lost_a_letter_is_none() -> None:
    assert answered('{"Brand": "Corv\ufffdna"}') == ({"Brand": None}, {"missing_key": 2})
    found = read_answer(SCHEMA, '{"Brand": "Corv\ufffdna"}', {"title": "Corv\ufffdna lamp"})
    assert not isinstance(found, str)
    assert found.values["Brand"].text == "Corv\ufffdna", "the product text has it so"


def test_an_attribute_that_is_called_like_a_wrapper() -> None:
    schema = CategorySchema(
        category="X", attributes=(Attribute(name="Product"), Attribute(name="Value"), Attribute(name="Name"))
    )
    for text in (
        '{"Product": "lamp", "Value": "3", "Name": "Corvina"}',
        '{"product": {"Product": "lamp", "Value": "3", "Name": "Corvina"}}',
        '[{"name": "Product", "value": "lamp"}, {"name": "Value", "value": "3"}, {"name": "Name", "value": "Corvina"}]',
    ):
        found = read_answer(schema, text, FIELDS)
        assert not isinstance(found, str)
        assert {name: value.text for name, value in found.values.items()} == {
            "Product": "lamp",
            "Value": "3",
            "Name": "Corvina",
        }, text


NESTED = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8) | st.just("\ud83d"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["Brand", "value", "unit", "answer", "\ud83d", "attribute"]), inner, max_size=3
        )
    ),
    max_leaves=10,
)


@given(st.lists(NESTED | st.sampled_from(["<think>", "</think>", "Final: ", "Example: "]), max_size=5), st.booleans())
@settings(max_examples=examples(300))
def test_any_answer_is_survived(parts: list[Any], is_cut: bool) -> None:
    text = "\n".join(part if isinstance(part, str) else json.dumps(part) for part in parts)
    found = read_answer(SCHEMA, text, FIELDS, is_cut=is_cut)
    if not isinstance(found, str):
        assert set(found.values) <= set(LABELS)


@given(
    st.dictionaries(st.sampled_from(list(LABELS)), st.sampled_from(["a", "b", "7"]), min_size=1),
    st.sampled_from(["Draft: ", "For example ", "My first guess is ", "Format: "]),
    st.sampled_from(["Final answer: ", "The corrected answer: ", "Finally:\n```json\n"]),
)
@settings(max_examples=examples(100))
def test_a_draft_is_never_the_answer(draft: dict[str, str], before: str, final: str) -> None:
    assert answered(f"{before}{json.dumps(draft)}\n{final}{FINAL}") == (LABELS, {})
    assert answered(f"{final}{FINAL}\n{before}{json.dumps(draft)}") == (LABELS, {})
