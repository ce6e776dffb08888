"""Numbers that a text states for an attribute: those of its unit's kind, by pint; which a normaliser then reads."""

from __future__ import annotations

import pint
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpd_core import Attribute, CategorySchema, Record
from pipelines.normalising.stated_numbers import label_numbers, stated_numbers

WANTED = {"Weight": "g", "Length": "cm", "Voltage": "V", "Time": "min"}
SCHEMA = CategorySchema(
    category="Tools",
    attributes=(
        *(Attribute.model_validate({"name": name, "type": "number", "unit": unit}) for name, unit in WANTED.items()),
        Attribute(name="Speeds", type="number"),
        Attribute.model_validate({"name": "Sizes", "type": "number", "unit": "cm", "multiple": True}),
    ),
)
UNITS = {"g": "g", "kg": "kg", "lb": "lb", "cm": "cm", "mm": "mm", "V": "V", "kV": "kV", "min": "min", "hours": "h"}
PINT = pint.UnitRegistry()


def stated(*fields: str) -> dict[str, tuple[str, ...]]:
    texts = {str(number): text for number, text in enumerate(fields)}
    return stated_numbers(Record("1", "Tools", texts), SCHEMA)


@given(st.lists(st.tuples(st.integers(1, 999), st.sampled_from(list(UNITS))), min_size=1, max_size=8))
def test_numbers_with_a_unit_of_the_kind_are_stated_once_for_an_amount(parts: list[tuple[int, str]]) -> None:
    found = stated("; ".join(f"about {number} {unit}" for number, unit in parts))
    assert found.keys() == WANTED.keys()
    for name, wanted in WANTED.items():
        fitting = [
            (str(number), PINT.Quantity(number, UNITS[unit]).to(wanted).magnitude)
            for number, unit in parts
            if PINT.Quantity(1, UNITS[unit]).check(PINT.Quantity(1, wanted).dimensionality)
        ]
        assert set(found[name]) <= {number for number, _ in fitting}
        amounts = [amount for number, amount in fitting if number in found[name]]
        assert all(any(amount == pytest.approx(each, rel=0.0101) for each in amounts) for _, amount in fitting)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("16 oz (454 g) tin", {"Weight": ("454",)}),
        ("Weight: 1,500", {"Weight": ("1500",), "Length": ("1500",), "Voltage": ("1500",), "Time": ("1500",)}),
        ("Weight: 500\n18 V", {"Weight": ("500",), "Length": ("500",), "Voltage": ("18",), "Time": ("500",)}),
        ("for 4 to 6 hours", {"Time": ("4", "6")}),
        ("10 x 20.5 cm", {"Length": ("10", "20.5")}),
        ("1.125 kg", {"Weight": ("1125", "1.125")}),
        ("2 speeds, model E27, 12.05.2024", {}),
        ("for -40 V to 85 V, 18V-20V", {"Voltage": ("-40", "85", "18", "20")}),
        ("from -18 to -22 V", {"Voltage": ("-18", "-22", "22")}),
        ("-10...40 V", {"Voltage": ("-10", "40")}),
        ("850 mm and 855 mm", {"Length": ("850", "855")}),
        ('poster 24"x36"', {"Length": ("24", "36")}),
        ("mat 30cmx45cm", {"Length": ("30", "45")}),
        ("rug 5'x7' in red", {"Length": ("5", "7")}),
        ("pin 8 ± 0.1 mm", {"Length": ("8", "0.1")}),
        ("5 +/- 0.2 kg", {"Weight": ("5", "0.2")}),
        ("100 + 20 g free", {"Weight": ("100", "20")}),
        (
            "Brand: Acme\r\nWeight: 2.\r\nfor 18 V",
            {"Weight": ("2",), "Length": ("2",), "Voltage": ("18",), "Time": ("2",)},
        ),
    ],
)
def test_what_texts_state(text: str, expected: dict[str, tuple[str, ...]]) -> None:
    assert stated(text) == dict.fromkeys(WANTED, ()) | expected


def test_the_name_of_a_field_labels_its_number() -> None:
    record = Record("1", "Tools", {"title": "A box for 2 kg", "Weight (g)": "500"})
    assert stated_numbers(record, SCHEMA)["Weight"] == ("500", "2")


@given(
    st.lists(st.text(max_size=40), max_size=3),
    st.lists(st.from_regex(r"[-+~]?\d[\d., ]{0,6}[a-z\"'/×x-]{0,3}"), max_size=4),
)
def test_no_text_makes_it_raise(texts: list[str], numbers: list[str]) -> None:
    for found in stated(*texts, " ".join(numbers)).values():
        assert all(float(number) == float(number) for number in found)


@pytest.mark.parametrize(
    ("label", "numbers"),
    [
        ("900MHz", ("900", "0.9")),
        ("2.4 GHz", ("2.4", "2.4")),
        ("900 V", ()),
        ("900", ()),
        ("fast", ()),
        ("1-2 MHz", ()),
    ],
)
def test_labels_in_another_unit(label: str, numbers: tuple[str, ...]) -> None:
    assert label_numbers(Attribute.model_validate({"name": "Clock", "type": "number", "unit": "GHz"}), label) == numbers
