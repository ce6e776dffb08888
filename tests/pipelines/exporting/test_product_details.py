"""Google's details of a product in one cell of a text feed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipelines.exporting.details import Detail, is_called, read_details, with_detail, write_details
from tests.tables import table

_parts = st.text(st.sampled_from('ab:,"; é\n'), max_size=6).map(str.strip)
_details = st.lists(st.builds(Detail, _parts, _parts, _parts), max_size=4)


@table(
    ("cell", "details"),
    [
        # As the page of the attribute has them.
        (
            'General:Product Type:Digital player,Display:Diagonal Size:"2.5"""',
            [Detail("General", "Product Type", "Digital player"), Detail("Display", "Diagonal Size", '2.5"')],
        ),
        (":Lining:cotton", [Detail("", "Lining", "cotton")]),
        ("a:b:c, d:e:f", [Detail("a", "b", "c"), Detail("d", "e", "f")]),
        ("", []),
        ("Lining:cotton", None),
        ("a:b:c:d", None),
        ("a text", None),
    ],
)
def test_cells(cell: str, details: list[Detail] | None) -> None:
    assert read_details(cell) == details


@given(details=_details, name=_parts, value=_parts.filter(bool), overwrites=st.booleans())
def test_a_detail_is_added_or_replaced_and_no_other_is_lost(
    details: list[Detail], name: str, value: str, overwrites: bool
) -> None:
    cell = write_details(details)
    new = with_detail(cell, name, value, overwrites=overwrites)
    assert new is not None
    found = read_details(new)
    assert found is not None
    others = [each for each in details if not is_called(each.name, name)]
    assert [each for each in found if not is_called(each.name, name)] == others
    mine = [each.value for each in details if is_called(each.name, name)]
    kept = mine and any(mine) and not overwrites
    assert [each.value for each in found if is_called(each.name, name)] == (mine if kept else [value])
