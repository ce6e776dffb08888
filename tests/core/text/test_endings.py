"""Where a value ends before its line does, the rest of the line would have made no other answer of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hpd_core.text.endings import Endings, Read, is_telling, start_of
from hpd_core.text.template import render_answer_line
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.values import parse_value
from hpd_core.types import Attribute
from tests.tiny_model import build_tokenizer

SEGMENTS = SegmentTokenizer(build_tokenizer())
ENDINGS = SEGMENTS.endings(len(SEGMENTS.tokenizer))

PIECES = [*'"\\[]{},: aé', '\\"', '",', '", "', '"]', "],", "null", "true", "12", "-."]
lines = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


def ended(text: str, is_typed: bool = False) -> str | None:
    """What is written of a line; None if it is written to its end."""
    ids = SEGMENTS.encode_text([text + "\n"])[0]
    written = ids[: ENDINGS.length(ids, is_typed)]
    return None if len(written) == len(ids) else SEGMENTS.decode([written])[0]


@given(lines, st.booleans(), st.booleans())
@example('"a", "b"', False, True)
@example('["a"], "b"]', True, False)
@example('"a\\", "b",', False, True)
@example("[\\],", False, False)
def test_nothing_behind_it_makes_another_answer(line: str, multiple: bool, closed: bool) -> None:
    """Read as JSON, by text/values.py: the whole line, and what is written of it."""
    attribute = Attribute(name="A", multiple=multiple)
    written = ended(line)
    if written is not None:
        whole, part = parse_value(attribute, line, closed=closed), parse_value(attribute, written, closed=True)
        if whole.status == "truncated":
            assert part.status == "invalid", "nothing behind would have made JSON of it"
        else:
            assert (part.status, part.items) == (whole.status, whole.items)


@given(st.text(st.sampled_from("0123.,- x/e"), max_size=14))
@example("20,000, 5")
@example("1,5,10, 3")
def test_nothing_behind_a_typed_number_makes_another_one(line: str) -> None:
    attribute = Attribute(name="A", type="number")
    line = f" {line}"
    written = ended(line, is_typed=True)
    if written is not None:
        whole, part = (parse_value(attribute, text, closed=True) for text in (line, written))
        assert (part.status, part.items) == (whole.status, whole.items)


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("multiple", [True, False])
@pytest.mark.parametrize("kind", ["string", "number", "boolean", "enum"])
@given(behind=st.text(st.sampled_from('nab1"\\,[]{}: e.-\n')))
def test_nothing_behind_null_makes_another_answer(kind: Any, multiple: bool, closed: bool, behind: str) -> None:
    values = ("null", "b") if kind == "enum" else None
    attribute = Attribute(name="A", type=kind, values=values, multiple=multiple)
    read = parse_value(attribute, " null" + behind, closed=closed)
    assert (read.status, read.items) == ("absent", ())


@given(st.data(), st.sampled_from(["string", "number", "boolean", "enum"]), st.booleans())
def test_an_answer_as_it_is_taught_ends_before_its_line(data: st.DataObject, kind: Any, multiple: bool) -> None:
    """With a comma that is no part of it, or, where one word says it, without."""
    texts = {
        "string": st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1).filter(str.strip),
        "number": st.sampled_from(["0", "-7", "12.05"]),
        "boolean": st.sampled_from(["true", "false"]),
        "enum": st.sampled_from(["light, very", 'a "b"']),
    }[kind]
    items = data.draw(st.one_of(st.none(), st.lists(texts, min_size=1, max_size=3 if multiple else 1).map(tuple)))
    attribute = Attribute(
        name="A", type=kind, multiple=multiple, values=("light, very", 'a "b"') if kind == "enum" else None
    )
    line = render_answer_line(attribute, items).rstrip("\n")
    written = ended(line, kind != "string")
    if kind == "number" and items is not None and not multiple:
        assert written is None, "digits may follow the comma: the line ends with its newline"
        return
    assert written is not None
    expected, found = (parse_value(attribute, text, closed=True) for text in (line, written))
    assert (found.status, found.items, found.num_dropped) == (expected.status, expected.items, 0)
    if line.endswith(",") and not any(word in line for word in ("null", "true", "false")):
        assert written == line
    assert json.loads(written.rstrip(",")) == json.loads(line.rstrip(","))


@given(st.text(max_size=5), st.sampled_from(list(Read)))
def test_a_text_that_tells_nothing_is_read_like_a_letter(text: str, state: Read) -> None:
    if not is_telling(text):
        endings = Endings.of_texts(2, {0: text, 1: "x"})
        assert endings.behind[state, 0] == endings.behind[state, 1]


def test_a_vocabulary_without_endings_and_one_with_more() -> None:
    none = Endings.none(5)
    assert none.length([1, 2, 3], False) == 3
    assert none.also([2]).length([1, 2, 3], True) == 2
    at_ends = ENDINGS.at_line_ends()
    ids = SEGMENTS.encode_text([' "red",\n'])[0]
    assert at_ends.length(ids, False) == len(ids) == ENDINGS.length(ids, False) + 1
    assert start_of(False) == Read.NOTHING
