"""What closed attributes can be answered with, as tries of tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpd_core import Attribute
from hpd_core.text.member_tries import MemberTrie, closed_lines
from hpd_core.text.value_kinds import attribute_kind
from hpd_core.text.values import parse_value


def test_what_cannot_be_told_apart_is_no_trie() -> None:
    assert MemberTrie.of([(1, 2), (1, 2)], [0, 1]) is None, "two members are the same tokens"
    assert MemberTrie.of([(1, 2), (1, 2, 3)], [0, 1]) is None, "one is the beginning of another"
    assert MemberTrie.of([(1, 2), (1, 2)], [4, 4]) is not None


labels = st.text(st.sampled_from("aA \u00a0é\u0301e"), min_size=1, max_size=3).filter(str.strip)


@given(
    st.lists(labels, min_size=1, max_size=5, unique_by=str.strip),
    st.lists(st.tuples(st.integers(0, 4), labels), max_size=5),
)
def test_labels_that_differ_in_case_spaces_or_unicode_form_alone_are_told_apart(
    of_members: list[str], synonyms: list[tuple[int, str]]
) -> None:
    """Each line is read as the member whose probability it has; labels that a reader cannot tell apart are refused."""
    members = [
        {"label": label, "synonyms": [text for of, text in synonyms if of == number]}
        for number, label in enumerate(of_members)
    ]
    attribute = Attribute.model_validate({"name": "Colour", "type": "enum", "values": members})
    lines = closed_lines(attribute_kind(attribute))
    assert len({line for line, _ in lines}) == len(lines)
    assert {member for _, member in lines} == set(range(len(members) + 1)), "each can be answered"
    for line, member in lines[:-1]:
        assert parse_value(attribute, line, closed=True).text == of_members[member - 1]
    twin = {"name": "Colour", "type": "enum", "values": [of_members[0], of_members[0] + " "]}
    with pytest.raises(ValueError, match=r"lists a value twice: .* differ in white space at their ends"):
        Attribute.model_validate(twin)
