"""The data model: what may be left out, what stays as it was, and what a member is called by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hpd_core import Attribute, CategorySchema, Member
from hpd_core.plain_data import Vocabulary
from tests.tables import table

PLAIN = CategorySchema(
    category="Shoes",
    attributes=[
        Attribute(name="Brand"),
        Attribute(name="Colour", type="enum", values=("red", 'Crème "x"')),
        Attribute(name="W", type="number", unit="g", description="d", multiple=True, max_value_tokens=5),
        Attribute(name="V", type="boolean"),
    ],
)


def test_plain_schemas_keep_their_hash_and_are_written_as_before_there_were_ids() -> None:
    assert PLAIN.hash == "1752feda7a568cae", "what answers and runs are kept under"
    assert PLAIN.model_dump(mode="json")["attributes"][1] == {
        "name": "Colour",
        "description": None,
        "type": "enum",
        "values": ["red", 'Crème "x"'],
        "unit": None,
        "multiple": False,
        "max_value_tokens": None,
    }
    assert set(PLAIN.model_dump()) == {"category", "attributes"}


@table("empty", ["", " ", "\t\xa0"])
def test_an_empty_label_or_id_is_refused(empty: str) -> None:
    for make in (
        lambda: Member(label=empty),
        lambda: Member(label="Black", id=empty),
        lambda: Attribute(name="Colour", id=empty),
        lambda: Attribute(name="Colour", type="enum", values=("Black", empty)),
        lambda: CategorySchema(category="Bags", id=empty, attributes=(Attribute(name="Colour"),)),
    ):
        with pytest.raises(ValidationError, match="is empty; leave it out where there is none"):
            make()


@table(
    ("text", "label"),
    [
        ("Black", "Black"),
        ("black", "Black"),
        ("noir", "Black"),
        ("NOIR ", "Black"),
        ("White", "White"),
        ("weiss", "White"),
        ("pale", None),  # of two members
        ("Ivory", "Ivory"),  # a label before another one's synonym
        ("ivory", "Ivory"),
        ("US", "US"),
        ("us", "us"),
        ("Us", None),  # of two labels
        ("", None),
        (" ", None),
    ],
)
def test_what_a_text_means(text: str, label: str | None) -> None:
    members = (
        Member(label="Black", synonyms=("noir", "Noir")),
        Member(label="White", synonyms=("weiss", "pale", "Ivory", " ")),
        Member(label="Ivory", synonyms=("pale",)),
        Member(label="US", synonyms=("us",)),
        Member(label="us"),
    )
    assert Vocabulary(members).label(text) == label


texts = st.text("aAbB ", max_size=3)


@given(
    st.lists(
        st.builds(Member, label=texts.filter(str.strip), synonyms=st.tuples(texts, texts)),
        unique_by=lambda member: member.label,
    )
)
def test_every_spelling_means_one_member(members: list[Member]) -> None:
    vocabulary = Vocabulary(members)
    labels = {member.label for member in members}
    assert {text: label for text, label in vocabulary.spellings.items() if text in labels} == {x: x for x in labels}
    for text in {*labels, *(text for member in members for text in member.synonyms)}:
        owners = {member.label for member in members if text in member.synonyms} if text not in labels else {text}
        is_one = len(owners) == 1 and (bool(text.strip()) or text in labels)
        assert vocabulary.spellings.get(text) == (owners.pop() if is_one else None)
