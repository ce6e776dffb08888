"""Evidence: the places of values in the text they were read from."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from types import FrameType
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core import Attribute
from hpd_core.text.grounding import MAX_PLACES, Grounder, _fold, _fold_cluster, _is_mark
from tests.examples import examples
from tests.tables import table

TEXT = Attribute(name="a")
NUMBER = Attribute(name="n", type="number")


def places(item: str, *texts: str, attribute: Attribute = TEXT) -> list[tuple[str, str, str]]:
    """(field, text, kind) of every place; the fields are called f0, f1, ..."""
    fields = {f"f{index}": text for index, text in enumerate(texts)}
    found = Grounder(fields).find(attribute, item)
    for place in found:
        assert fields[place.field][place.start : place.end] == place.text
    return [(place.field, place.text, place.match) for place in found]


@table(
    ("item", "text", "expected", "kind"),
    [
        ("red", "A red, coloured bag", ["red"], "exact"),
        ("red", "red and red", ["red", "red"], "exact"),
        ("Red", "a RED bag", ["RED"], "folded"),
        ("iPhone 13", "iPhone 13 128 GB, iPhone 13 - 128 GB", ["iPhone 13", "iPhone 13"], "exact"),
        ("24/7", "24/7 support", ["24/7"], "exact"),
        ("5 oz", "+5 oz", ["5 oz"], "exact"),
        ("1 1/2 inch", "a 1 1/2 inch pipe", ["1 1/2 inch"], "exact"),
        ("STRASSE", "Große Straße 4", ["Straße"], "folded"),
        ("dark  roast", "dark\nroast", ["dark\nroast"], "folded"),
        ("½", "1⁄2 cup", ["1⁄2"], "folded"),
        ("Men's", "Men’s shoe", ["Men’s"], "folded"),
        ("Crème", "CRE\u0300ME brûlée", ["CRE\u0300ME"], "folded"),
        ("ﬁne", "fine wool", ["fine"], "folded"),
        ("nonstick", "a non-stick pan", ["non-stick"], "fuzzy"),
        ("12 oz", "one 12oz can", ["12oz"], "fuzzy"),
        ("12 oz", "one 12oz can, 12 oz net", ["12 oz"], "exact"),
        ("shoe", "two shoes", ["shoes"], "fuzzy"),
        ("creme", "die Crème", ["Crème"], "fuzzy"),
        ("5 oz", "1.5 oz, 5 oz", ["5 oz"], "exact"),
        ("500 ml", "1,500 ml; 500 ml.", ["500 ml"], "exact"),
        ("VELOR", "Velor™ soap", ["Velor"], "folded"),
        ("ボトル", "青いﾎﾞﾄﾙ", ["ﾎﾞﾄﾙ"], "folded"),
        ("12", "12oz", ["12"], "exact"),
        ("size 10 wide fit", "size 10, wide", ["size 10, wide"], "fuzzy"),
        ("stainless steel lid", "a lid of stainless steel", ["lid of stainless steel"], "fuzzy"),
        ("genuine cow leather strap", "a leather strap, genuine, cow", ["leather strap, genuine, cow"], "fuzzy"),
        ("ステンレス", "ステンレス製ボトル", ["ステンレス"], "exact"),
        ("红色", "鲜红色的包", ["红色"], "exact"),
        ("красный", "КРАСНЫЙ шарф", ["КРАСНЫЙ"], "folded"),
        ("अदरक", "अदरक चाय", ["अदरक"], "exact"),
    ],
)
def test_found(item: str, text: str, expected: list[str], kind: str) -> None:
    assert places(item, text) == [("f0", found, kind) for found in expected]


@table(
    ("item", "text"),
    [
        ("red", "coloured, bored"),
        ("2 oz", "12 oz"),
        ("light blue", "light, airy, thin, wide and blue"),
        ("cat", "cats" * 3),
        ("42", "43"),
        ("5 oz", "1.5 oz"),
        ("2 inch", "1/2 inch"),
        ("1/2 inch", "1 1/2 inch"),
        ("12 inch", "10-12 inch"),
        ("½ cup", "1½ cup"),
        ("-5 °C", "10-5 °C"),
        ("size 5", "size 5½"),
        ("18 °C", "minus 18 °C"),
        ("2024", "2024-05-12"),
        ("1.5", "1.5 million"),
        ("12", "Vitamin B12"),
        ("M", "an M4 screw"),
        ("Vitamin B", "Vitamin B12"),
        ("cafe", "a cafe\u0301teria"),
        ("रस", "रसोई"),
        ("2", "½ cup"),
        (".", "…"),
        ("green", "Greek yogurt"),
        ("size 10 wide fit", "size 12 wide fit"),
        ("", "anything"),
        ("---", "a - b"),
        ("word " * 40, "some words"),
    ],
)
def test_not_found(item: str, text: str) -> None:
    assert places(item, text) == []


@table(
    ("item", "text", "expected"),
    [
        ("1500", "1,500 rpm", [("1,500", "equal number")]),
        ("1500", "1,500 ml, 1500 W", [("1500", "exact"), ("1,500", "equal number")]),
        ("1500", "1.500 U/min", [("1.500", "equal number")]),
        ("1500", "1500 rpm, 1,500", [("1500", "exact")]),
        ("1.5", "15 kg, 1.5.2", []),
        ("1.5", "1,500 g", []),
        ("125", "12.5", []),
        ("20", "at -20 °C", []),
        ("5", "3-5 days", []),
        ("10", "10 to 12 inch", []),
        ("27", "E27 socket", []),
        ("3", "3.0", [("3.0", "equal number")]),
        ("24", "12x24 cm", [("24", "exact")]),
        ("18", "12 x 1.5", []),
        ("12", "tea -12 pieces", [("-12", "ambiguous")]),
        ("-12", "tea 12 pieces", []),
        ("5", "sizes 1,5,10", [("1,5,10", "ambiguous")]),
        ("0.5", ".5 kg, 1/2 kg", [(".5", "equal number"), ("1/2", "equal number")]),
        ("1", "1/2 inch", []),
        ("2.5", "2.5e6 Hz", []),
        ("2500000", "2.5e6 Hz", [("2.5e6", "equal number")]),
        # What the text leaves open, and what it leaves open of the value.
        ("1.125", "the pin, 1.125 inch", [("1.125", "ambiguous")]),
        ("1125", "the pin, 1.125 inch", [("1.125", "ambiguous")]),
        ("1.500", "1,500 g", [("1,500", "ambiguous")]),
        ("1.500", "1.500 g", [("1.500", "ambiguous")]),
        ("1.500", "weighs 1.500 kg, not 1.5 l", [("1.500", "exact")]),
        ("1,500", "weighs 1.500 kg and 2.412 t", [("1.500", "ambiguous")]),
    ],
)
def test_numbers(item: str, text: str, expected: list[tuple[str, str]]) -> None:
    assert [(found, kind) for _, found, kind in places(item, text, attribute=NUMBER)] == expected


def test_hostile_texts_are_bounded() -> None:
    assert len(places("red", "red " * 10_000)) == MAX_PLACES
    assert len(places("Red", "rEd " * 10_000)) == MAX_PLACES
    assert places("a b c d", "a " * 20_000) == []


def test_work_grows_with_the_text_and_no_faster() -> None:
    # Lines that are run, not seconds: those depend on what else the machine and the garbage collector do.
    def lines(count: int) -> int:
        run = 0

        def trace(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
            nonlocal run
            run += 1
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            places("qq zz", "ab cd " * count)
        finally:
            sys.settrace(before)
        return run

    assert lines(8_000) < 4.2 * lines(2_000), "four times the text"


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@settings(max_examples=examples(300), deadline=None)
@given(before=words, item=words, after=words)
def test_any_value_between_spaces_is_found_where_it_stands(before: str, item: str, after: str) -> None:
    text = f"{before} {item} {after}"
    found = Grounder({"f": text}).find(TEXT, item)
    # A value that begins with a combining mark is a part of the character before it.
    if item.strip() and not _is_mark(item[0]):
        assert found
        assert all(place.match == "exact" for place in found)
    for place in found:
        assert text[place.start : place.end] == place.text


@settings(max_examples=examples(300), deadline=None)
@given(text=st.text(max_size=60), item=st.text(min_size=1, max_size=12))
def test_places_are_in_the_text_and_do_not_overlap(text: str, item: str) -> None:
    found = Grounder({"f": text}).find(TEXT, item)
    assert len({place.match for place in found}) <= 1
    for place in found:
        assert 0 <= place.start < place.end <= len(text)
        assert text[place.start : place.end] == place.text
    for left, right in pairwise(found):
        assert left.end <= right.start


def _fold_letter_by_letter(text: str) -> tuple[str, list[int], list[int]]:
    """As `_fold`, without its short cut for plain stretches."""
    places: list[tuple[str, int, int]] = []
    start = 0
    for index in range(1, len(text) + 1):
        if index == len(text) or not _is_mark(text[index]):
            for letter in _fold_cluster(text[start:index]):
                if not letter.isspace():
                    places.append((letter, start, index))
                elif places and places[-1][0] == " ":
                    places[-1] = (" ", places[-1][1], index)
                elif places:
                    places.append((" ", start, index))
            start = index
    if places and places[-1][0] == " ":
        places.pop()
    return "".join(place[0] for place in places), [place[1] for place in places], [place[2] for place in places]


@given(st.text(alphabet="ab c1 2.,-`'\t\n  éÖ™®½ﬁ漢か\u3099゛´¨ﷺ\u0301\u0308ß\u00a0İſ\u1160\uff9e²٣", max_size=20))
def test_plain_stretches_are_folded_as_every_other(text: str) -> None:
    folded, size = _fold(text), len(_fold(text).text)
    starts, ends = list(folded.starts[:size]), list(folded.ends[:size])
    assert (folded.text, starts, ends) == _fold_letter_by_letter(text)


@table(
    ("item", "text", "kind"),
    [
        ("500 ml", "1 500 ml", "ambiguous"),
        ("1/4 inch", "a box of 100 1/4 inch screws", "ambiguous"),
        ("500 ml", "1 500 ml, 500 ml", "exact"),
        ("Note 12", "Note 12 128 GB", "exact"),
    ],
)
def test_a_text_that_may_end_inside_of_a_number_is_ambiguous(item: str, text: str, kind: str) -> None:
    found = Grounder({"title": text}).find(Attribute(name="Size"), item)
    assert [(place.text, place.match) for place in found] == [(item, kind)]
