"""The one JSON object after a teacher's reasoning counts; where that cannot be told, there is no answer."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hpd_core import Attribute, CategorySchema
from pipelines.labelling.final_answer import NoAnswer, read_answer
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


BEFORE = ["", "Sure! Here it is: ", "```json\n", "<answer>"]
BEFORE += ["<think>Perhaps {}?</think>", f"Perhaps {DRAFT}?</think>\n", f"[THINK]{DRAFT}[/THINK]"]
BEFORE += [f"<|channel|>analysis<|message|>{DRAFT}<|end|><|start|>assistant<|channel|>final<|message|>"]
AFTER = ["", "\n```", "</answer>", "<|im_end|>"]


@given(st.sampled_from(BEFORE), st.sampled_from(AFTER), st.integers(0, 2), st.sampled_from([None, 2]), st.booleans())
def test_one_object_is_the_answer(before: str, after: str, depth: int, indent: int | None, in_list: bool) -> None:
    """Whatever stands before it, in whatever it is wrapped."""
    answer: Any = RIGHT
    for _ in range(depth):
        answer = {"product": answer}
    wrapped = json.dumps([answer] if in_list else answer, indent=indent)
    assert answered(f"{before}{wrapped}{after if depth == 0 and not in_list else ''}") == (LABELS, {})


ODD = [
    json.dumps(dict(reversed(RIGHT.items()))),
    json.dumps(FINAL),  # encoded twice
    f"An example is {{'Brand': ...}}, yours is {FINAL}",
    f"Draft: {DRAFT}\nWait, the title says otherwise.\nFinal answer:\n```json\n{FINAL}\n```",
    f"My first guess was {DRAFT}. The answer is {FINAL}",
    f"Format: {FORM}\nAnswer: {FINAL}",
    f"{FORM}\n{FINAL}",
    f"For example: {DRAFT}\n\n{FINAL}",
    f"Final answer: {FINAL}\nExplanation: not {DRAFT}, since the shade is green.",
    f"**Answer**\n\n{FINAL}\n\nAn alternative would be {DRAFT}",
    f'{{"properties": {{"Brand": {{"type": "string"}}, "Power": {{"type": "number"}}}}}}\n{FINAL}',
    f'{FINAL}\nI chose {{"Brand": "Corvina"}} since it stands in the title.',
    f'{{"Brand": "Corvina"}} was too short. {FINAL}',
    '{"Brand": "Corvina"}\n{"Shade colour": "green"}\n{"Power": 40}',
    'Brand: {"Brand": "Corvina"}\nShade colour: {"Shade colour": "green"}\nPower: {"Power": 40}',
    '[{"Brand": "Corvina"}, {"Shade colour": "green", "Power": 40}]',
    f'{FINAL}\nEvidence: {{"Brand": "title", "Shade colour": "title", "Power": "title"}}',
    f'{FINAL}\n\n**Confidence scores:**\n```json\n{{"Brand": 0.9, "Shade colour": 0.8, "Power": 1}}\n```',
    f'Sources: {{"Brand": "first word"}}\n{FINAL}',
    f'{{"attributes": {FINAL}, "confidence": {{"Brand": 0.9, "Shade colour": 0.8, "Power": 1}}}}',
    f'{{"extracted": {FINAL}, "evidence": {{"Brand": "title", "Shade colour": "title", "Power": "title"}}}}',
    f"<answer>{FINAL}</answer> whereas {DRAFT} was considered",
    f"{FINAL}\nThe product is correction fluid.",
    f"{FINAL}\nThere is no mistake.",
    f"{FINAL}\nNo size is given. It should be complete.",
    f'{{"product": {FINAL}, "alternatives": [{DRAFT}]}}',
    f'{{"draft": {DRAFT}, "final": {FINAL}}}',
    f'{{"initial_answer": {DRAFT}, "revised_answer": {FINAL}}}',
    f'{{"product_analysis": {FINAL}}}',
    f"<example>{DRAFT}</example>\n<output>{FINAL}</output>",
    f'{{"thoughts": {json.dumps(DRAFT)}, "answer": {FINAL}}}',
    '{"general": {"Brand": "Corvina"}, "details": {"Shade colour": "green", "Power": 40}}',
    f'<tool_call>{{"name": "attributes", "arguments": {FINAL}}}</tool_call>',
    f'{{"name": "attributes", "arguments": {json.dumps(FINAL)}}}',
    "{'Brand': 'Corvina', 'Shade colour': 'green', 'Power': 40,}",
    '{"Brand": "Corvina", // from the title\n "Shade colour": "green", Power: 40}',
    f"{{{FINAL}}}",
    f"<|begin_of_box|>{FINAL}<|end_of_box|>",
    f"{FINAL}<|im_end|>\n<|im_start|>user\nThe next one<|im_end|>\n<|im_start|>assistant\n{DRAFT}",
    f"{FINAL}</s> {DRAFT}",
]


@table("text", ODD)
def test_an_odd_answer_is_right_or_asked_for_again(text: str) -> None:
    found = read_answer(SCHEMA, text, FIELDS)
    values = {} if isinstance(found, str) else found.values
    assert {name: value.text for name, value in values.items() if value.status != "invalid"}.items() <= LABELS.items()


@table(
    ("text", "is_cut", "why"),
    [
        ("", False, "empty"),
        (f"{FINAL}\n{FINAL}", False, "several"),
        *((text, False, "none") for text in ("no", "null", "[]", "{ words }", "{Brand: Corvina}")),
        (FORM, False, "template"),
        ('{"Brand": "Brand", "Shade colour": "Shade colour"}', False, "template"),
        ('{"Brand": "Corvina", "Shade', True, "unclosed"),
        ('{"Brand": "Corvina"', False, "unclosed"),
        ("{'Brand': 'Corvina'}", False, "unclosed"),
        (f'{DRAFT}\nNo: {{"Brand": "Corv', True, "unclosed"),
        ('{"a": ' * 10_000, False, "unclosed"),
        (f"<think>First {DRAFT}, but the title says", True, "thinking"),
        (f"{DRAFT}<think>No, wait", True, "thinking"),
        (f"{DRAFT}\nWait, the title says", True, "words"),
        (f"{DRAFT}\nActually, the shade is green.", False, "words"),
        (f"Draft: {DRAFT}", True, "words"),
        (f"{FINAL}\n{DRAFT}", False, "several"),
        (f"Draft: {DRAFT}\nFinal answer: {FINAL}", False, "several"),
        (f"[{FINAL}, {DRAFT}]", False, "several"),
        (f"{{ words }} {FINAL}", False, "unclosed"),
        ('{ // attributes\n "Brand": "Merle", "lamp": {"Brand": "Corvina"} }', False, "unclosed"),
        ('{"lamp": {"Brand": "Corvina"}, "lamp": {"Brand": "Merle"}}', False, "none"),
        ('{"Brand": "Corvina"} {"Brand": "Corvina", "Brand": "Merle"}', False, "several"),
        (f'{{"products": [{FINAL}, {DRAFT}]}}', False, "several"),
    ],
)
def test_where_it_cannot_be_told_there_is_none(text: str, is_cut: bool, why: NoAnswer) -> None:
    assert answered(text, is_cut=is_cut) == why


@table("text", [FINAL, f"{FINAL}\n```", f"{FINAL}</answer>"])
def test_what_was_whole_before_the_cut_counts(text: str) -> None:
    assert answered(text, is_cut=True) == (LABELS, {})


def test_keys() -> None:
    text = '{"brand": "Corvina", "Brand": "Corvina", "Brand": "Corvina", "shade_colour": "green", "Price": 3}'
    problems = {"misspelled_key": 2, "unknown_key": 1, "missing_key": 1}
    assert answered(text) == ({"Brand": "Corvina", "Shade colour": "green"}, problems)
    text = '{"brand": "Merle", "Brand": "Corvina", "Power": 40}'
    problems = {"doubled_key": 1, "misspelled_key": 1, "missing_key": 1}
    assert answered(text) == ({"Power": "40"}, problems), "which one is meant?"
    text = '{"Brand": "Merle", "Shade colour": "green", "Brand": "Corvina", "Power": 40}'
    assert answered(text) == ({"Shade colour": "green", "Power": "40"}, {"doubled_key": 1}), "which one is meant?"
    text = '{"Brand": "Merle", "Brand": "Corvina", "brand": "Merle"}'
    assert answered(text) == ({}, {"doubled_key": 1, "misspelled_key": 1, "missing_key": 2})
    assert answered('{"brand": "Corvina", "BRAND": "Merle"}') == (
        {},
        {"doubled_key": 1, "misspelled_key": 2, "missing_key": 2},
    )
    assert answered('{"Price": 3, "Rating": "good"}') == ({}, {"unknown_key": 2, "missing_key": 3})


def test_a_value_that_lost_a_letter_is_none() -> None:
    assert answered('{"Brand": "Corv\ufffdna"}') == ({"Brand": None}, {"missing_key": 2})
    found = read_answer(SCHEMA, '{"Brand": "Corv\ufffdna"}', {"title": "Corv\ufffdna lamp"})
    assert not isinstance(found, str)
    assert found.values["Brand"].text == "Corv\ufffdna", "the product text has it so"
