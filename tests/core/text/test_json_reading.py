"""Backslashes in what a model copies: kept where the text has them, JSON's escapes elsewhere."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from hpd_core.text.values import parse_value
from hpd_core.types import Attribute
from tests.tables import table

TEXT = Attribute(name="a")
LIST = Attribute(name="a", multiple=True)

READ = [
    # written, the record's text, what is meant
    (r'"cotton\nylon"', r"shirt, cotton\nylon, M", r"cotton\nylon"),
    (r'"cotton\nylon"', "wool", "cotton\nylon"),
    (r'"cotton\nylon"', "cotton\nylon", "cotton\nylon"),
    (r'"cotton\\nylon"', r"cotton\nylon", r"cotton\nylon"),
    (r'"L\XL"', r"S\M, L\XL", r"L\XL"),
    (r'"red\blue"', r"colour red\blue", r"red\blue"),
    (r'"red\blue"', "colour red", r"red\blue"),
    (r'"C:\temp"', r"in C:\temp", r"C:\temp"),
    (r'"\\server\share"', r"on \\server\share", r"\\server\share"),
    (r'"$\frac{1}{2}$"', r"of $\frac{1}{2}$ inch", r"$\frac{1}{2}$"),
    (r'"1/2\""', '1/2" disc', '1/2"'),
    (r'"Cr\u00e8me"', "Crème", "Crème"),
    (r'"Cr\u00e8me"', r"Cr\u00e8me brulee", r"Cr\u00e8me"),
    (r'"Levi\'s"', "Levi's jeans", "Levi's"),
    (r'"A\&B"', "A&B mug", "A&B"),
    (r'"3\/4"', "3/4 inch", "3/4"),
    ('"S\\"', "size S\\, red", "S\\"),
    ('"12\\"', '12" disc', '12"'),
    (r'"\ud83d\ude00"', "mug", "😀"),
]


@table(("written", "text", "meant"), READ)
@table("ending", [",", ""])
def test_a_backslash_is_read_by_the_text(written: str, text: str, meant: str, ending: str) -> None:
    value = parse_value(TEXT, f" {written}{ending}\n", closed=True, fields={"title": "mug", "text": text})
    assert (value.status, value.items, value.num_dropped) == ("value", (meant,), 0)
    items = parse_value(LIST, f' [{written}, "M"]{ending}\n', closed=True, fields={"text": text})
    assert (items.status, items.items) == ("value", (meant, "M"))


@table(
    ("raw", "text", "closed", "status"),
    [
        (' "S\\",\n', "size S", True, "invalid"),  # nothing tells where the string ends
        (' "12\\",\n', "", True, "invalid"),
        (' "S\\"', "size S\\", False, "truncated"),
        (' "S\\', "size S\\", False, "truncated"),
        (r' "\ud83d",' + "\n", "mug", True, "invalid"),
    ],
)
def test_what_cannot_be_told_is_no_value(raw: str, text: str, closed: bool, status: str) -> None:
    assert parse_value(TEXT, raw, closed=closed, fields={"title": text}).status == status


@table("fields", [None, {"title": "mug"}, {"title": "cotton\nylon"}])
@table("member", ["cotton\\nylon", "L\\XL", "S\\", "C:\\temp", '1/2\\"', "cotton\nylon", "Levi's"])
def test_a_member_is_copied_as_it_stands(member: str, fields: dict[str, str] | None) -> None:
    for multiple in (False, True):
        attribute = Attribute(name="a", type="enum", values=("mug", member), multiple=multiple)
        for written in (f'"{member}"', json.dumps(member)):
            line = f" [{written}],\n" if multiple else f" {written},\n"
            if "\n" in written:
                continue  # the line would end there
            assert parse_value(attribute, line, closed=True, fields=fields).items == (member,)


@given(st.text(alphabet="abnrtuf0\\'\"/é ", max_size=12))
def test_what_is_copied_from_the_text_survives(letters: str) -> None:
    """Written as JSON wants it, it is what the text says; copied as it stands, too, if it can be told where it ends."""
    word = f"k{letters}k"
    fields = {"title": f"mug {word} mug"}
    assert parse_value(TEXT, f" {json.dumps(word)},\n", closed=True, fields=fields).text == word
    if '"' not in word:
        assert parse_value(TEXT, f' "{word}",\n', closed=True, fields=fields).text == word
