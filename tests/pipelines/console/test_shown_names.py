"""Names of a catalog in tables: none too wide, no two alike, and what is cut is marked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pipelines.console.terminal import shown_names

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=120)


def test_what_cannot_be_seen_is_written_out() -> None:
    shown = shown_names(["Shoes", "Shoes ", "Sh\u200boes", "Sh\u200does", "حقائب \u202eevil", "a\nb", ""])
    assert shown == {
        "Shoes": "Shoes",
        "Shoes ": "'Shoes '",
        "Sh\u200boes": r"'Sh\u200boes'",
        "Sh\u200does": r"'Sh\u200does'",
        "حقائب \u202eevil": r"'حقائب \u202eevil'",
        "a\nb": r"'a\nb'",
        "": "",
    }


@given(st.lists(NAMES, unique=True, max_size=20), st.integers(20, 80))
def test_no_two_are_alike_and_none_is_too_wide(names: list[str], most: int) -> None:
    shown = shown_names(names, most)
    assert list(shown) == names
    assert len(set(shown.values())) == len(names)
    for text in shown.values():
        assert cell_len(text) <= most
        assert "\n" not in text
