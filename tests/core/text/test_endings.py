"""Where a value ends before its line does, the rest of the line would have made no other answer of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

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
