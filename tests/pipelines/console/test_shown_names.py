"""Names of a catalog in tables: none too wide, no two alike, and what is cut is marked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pipelines.console.shown_names import MAX_CELLS, shown_names, with_shown_names

LONG = "Home/Kitchen/" + "x" * 280
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


def test_of_a_long_name_both_ends_are_shown() -> None:
    pots, pans = LONG + "/Pots and lids", LONG + "/Pans"
    shown = shown_names([pots, pans])
    assert shown[pots].startswith("Home/Kitchen/xxx")
    assert shown[pots].endswith("/Pots and lids")
    assert "…" in shown[pots]
    alike = [f"{LONG}{middle}{'y' * 60}" for middle in "ab"]
    first, second = shown_names(alike).values()
    assert first != second
    assert first.count("…") == second.count("…") == 2, "they differ in the mark"
    assert shown_names(alike) == shown_names(alike[::-1])
    assert len(set(shown_names(["'Shoes '", "Shoes "]).values())) == 2


@given(st.lists(NAMES, unique=True, max_size=20), st.integers(20, 80))
def test_no_two_are_alike_and_none_is_too_wide(names: list[str], most: int) -> None:
    shown = shown_names(names, most)
    assert list(shown) == names
    assert len(set(shown.values())) == len(names)
    for text in shown.values():
        assert cell_len(text) <= most
        assert "\n" not in text


def test_only_columns_of_names_are_touched() -> None:
    rows = [("Shoes ", "Brand", " 12 "), ("Shoes ", LONG, " 3")]
    found = with_shown_names(["category", "attribute", "share"], rows)
    assert [row[0] for row in found] == ["'Shoes '"] * 2
    assert [row[2] for row in found] == [" 12 ", " 3"]
    assert cell_len(found[1][1]) <= MAX_CELLS
    assert with_shown_names(["category"], []) == []
