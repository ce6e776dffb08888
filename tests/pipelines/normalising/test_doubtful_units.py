"""Units that are written alike, and quantities that are written in two parts: right or left open, never another."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.normalising.unit_reading import quantity_at
from pipelines.normalising.units import convert, is_known, unit_names, units_of, wanted_unit
from tests.examples import examples
from tests.pipelines.normalising.test_normalise import number, text
from tests.tables import table


@table(
    ("unit", "raw", "around", "norm"),
    [
        # Bits and bytes; mega and milli.
        ("MB", "1", "| Gbit", "125"),
        ("MB", "16", "| gb", "16000"),
        ("Mbps", "800", "| MBps", "6400"),
        ("mW", "5", "| MW", "5000000000"),
        # Letters that pint has for others.
        ("C", "25", "| °C", "25"),
        ("F", "21", "| °C", "69.8"),
        ("H", "5", "|H", "5"),
        ("b", "8", "|B", "64"),
        ("units", "10", "| pieces", "10"),
        ("count", "100", "| count", "100"),
        # Ounces.
        ("ml", "12", "| oz", "354.8823548"),
        ("g", "12", "Net wt | oz (340g)", "340.1942775"),
        ("g", "12", "| oz of coffee", "340.1942775"),
        # One quantity in two parts.
        ("lb", "3", "Weighs | lbs, 8 oz", "3.5"),
        ("cm", "5", "| feet and 6 inches", "167.64"),
        ("min", "1", "| h, 30 min", "90"),
        ("kg", "2", "| kg 10 pieces", "2"),
        ("ml", "16", "a lightweight | oz bottle", "473.176473"),
        ("cm", "12", "Wide: | in\nOne year of warranty", "30.48"),
        ("cm", "12", "(|' x 8')", "365.76"),
        # One letter, or wide ones.
        ("cm", "5", "|㎜", "0.5"),
        ("cm", "5", "| ｃｍ", "5"),
        ("ml", "2", "| ℓ", "2000"),
        ("cm", "5", "mit | Metern", "500"),
        ("V", "12", "|VDC", "12"),
        # The number's own unit counts, whatever a label says.
        ("cm", "10", "Size (cm): | x 20 x 30 in", "25.4"),
        # The text says which pint it means.
        ("ml", "1", "| pint (568 ml)", "568"),
        ("ml", "2", "| pints / 1.14 l", "1140"),
        ("ml", "2", "| gallon (UK)", "9092.18"),
        ("ml", "12", "| fl oz (355 ml)", "354.8823548"),
        ("g", "1", "| oz (31.1 g) fine silver", "31.1"),
        ("ml", "12", "| fl oz UK", "340.95675"),
        # What else stands there says nothing of it.
        ("g", "12", "| oz (250 g drained)", "340.1942775"),
        ("g", "5", "| oz (26 g protein)", "141.7476156"),
        ("ml", "2", "Volume (ml): |L x 3L", "2000"),
        ("K", "77", "|K (kelvin)", "77"),
        ("°C", "300", "|K (°C)", "26.85"),
        # Powers at the end of a sentence.
        ("g/m²", "220", "| g/m2.", "220"),
        # Letters for width, depth, height, length; thousands.
        ("cm", "24", '|"W x 30"H', "60.96"),
        ("in", "27-3/4", '|"D', "27.75"),
        ("in", "30", "24W x |H x 12d inches", "30"),
        ("cm", "24", "|cmW x 30cmH", "24"),
        ("K", "3000", "|K min. 80 CRI", "3000"),
        ("rpm", "15", "|K rpm drive", "15000"),
        ("years", "6", "Age: |+ months", "0.5"),
        ("g", "500", "Weight (g): | Colour: red", "500"),
        ("cm", "10", "Width (cm): |, 20, 30", "10"),
        ("g", "500", "|克装", "500"),
        ("ml", "1", "| pint or 568 ml", "568"),
        ("cm", "1", "| in (3 cm)", "2.54"),
    ],
)
def test_what_a_unit_means(unit: str, raw: str, around: str, norm: str) -> None:
    found = number(unit, raw, around)
    assert (found.status, found.norm, found.unit) == ("ok", norm, unit)


@table(
    ("unit", "raw", "around", "status"),
    [
        ("MB", "1", "| Gb", "ambiguous"),
        ("mw", "5", "| MW", "conflict"),
        ("ml", "12", "Net wt | oz (340g) coffee", "conflict"),
        ("ml", "12", "| oz / 340 g", "conflict"),
        ("ml", "16", "| oz of coffee beans", "ambiguous"),
        ("g", "2", "| Pfund Brot", "ambiguous"),
        ("h", "2", "| h 30", "ambiguous"),
        ("ft", "5", "|'6 tall", "ambiguous"),
        ("cm", "1", "|m80", "ambiguous"),
        ("oz", "8", "3 lbs, | oz", "ambiguous"),  # a part of it
        ("m", "2", "| m, 50 cm", "ambiguous"),  # or two lengths
        ("s", "1990", "the |s", "ambiguous"),
        # A schema's own unit that may be one of several.
        ("ton", "2", "| t", "ambiguous"),
        ("Gb", "16", "| GB", "ambiguous"),
        # Names in quotes, and a share.
        ("cm", "12", "the “|” series", "ambiguous"),
        ("cm", "12", '{"size": "|"}', "ambiguous"),
        ("cm", "1", "| in 10 people", "ambiguous"),
        ("in", "12", "|d x 3h", "ambiguous"),
        ("rpm", "15", "|K", "ambiguous"),
        ("l", "2", "| gallon (UK/US)", "ambiguous"),
        ("kW", "500", "Power in kW: |W x 8h", "ambiguous"),
        ("cm", "14", "|K in 18 inch", "ambiguous"),
        # A word behind the number may be its unit, whatever the label says; so may the unit of a list's last number.
        *(("kg", "5", f"Weight (kg): |{word}", "ambiguous") for word in (" stone", " ozs", "吋", "   g", "\u200bg")),
        *(("cm", "10", f"Width (cm): |{rest} 12 in", "ambiguous") for rest in (" and", " &", ";", " up to")),
        # One quantity of two parts.
        *(("cm", "5", f"|{rest}", "ambiguous") for rest in ("'-6\"", "' - 6\"", " ft - 6 in", " ft + 6 in")),
        # A longer word, or a power.
        *(("min", "5", f"|{word}", "ambiguous") for word in ("分米", "分贝", "分之一")),
        *(("kg", "5", f"|{word}", "ambiguous") for word in ("キロワット", "公斤力", " kg m⁻³", " kg cm-3")),
        *(("m", "5", f"| {word}", "ambiguous") for word in ("metres squared", "m carrés", "м кв", "m**2", "ft sq")),
        # The text contradicts itself, or names the system first.
        *(("cm", "10", f"| {rest}", "conflict") for rest in ("in (20 cm)", "ft (1 m)")),
        *(("l", "1", f"{system} | gallon", "ambiguous") for system in ("UK", "Imperial", "British")),
    ],
)
def test_what_may_be_another_unit_is_left_open(unit: str, raw: str, around: str, status: str) -> None:
    assert number(unit, raw, around).status == status


@table(
    ("raw", "norm"),
    [
        ("10 cm and 20 cm", None),
        ("10 cm\n20 cm", None),
        ("5 ft 12 in", None),
        ("5 ft 0 in", "152.4 cm"),
        ('3/4"-1"', "1.905 to 2.54 cm"),
        ("5'-6'", "152.4 to 182.88 cm"),
        ("1-2 m", "100 to 200 cm"),
        ("between 1 and 2 m", "100 to 200 cm"),
        ("10 x 20 x 30 in", "25.4 x 50.8 x 76.2 cm"),
        ("5+2 m", None),
        ("5+ m", "≥ 500 cm"),
        ('24"W x 30"H', "W 60.96 x H 76.2 cm"),
    ],
)
def test_a_text_of_two_quantities_is_not_the_first_of_them(raw: str, norm: str | None) -> None:
    found = text(raw, "cm", "Size (cm): |")
    assert (found.status, found.norm) == ("no_rule" if norm is None else "ok", norm)


@table("raw", ["1,250 kg", "1.250 kg", "1,250", "2,500 in", "1.250 to 3 kg", "≥ 1,250 kg"])
@table("unit", ["kg", "g", None])
def test_three_digits_behind_a_sign_are_left_open_behind_any_sign(raw: str, unit: Any) -> None:
    found = text(raw, unit)
    assert (found.num, found.min) == (None, None)
    assert found.status == ("ambiguous" if unit else "ok")


@table("end", ["", ",", ".", ")", "]", ";", ":", "\n", " and soft"])
def test_every_spelling_is_read_in_a_sentence(end: str) -> None:
    for each in unit_names():
        found = quantity_at(Fraction(7), "Here: ", f" {each.name}{end}", {})
        assert each.unit in {unit.unit for unit in found.units}, each


def test_no_unit_of_the_table_is_asked_for_as_another_one() -> None:
    """A schema that names a unit as texts do gets that one, or nothing is known of it: never pint's of that name."""
    for each in unit_names():
        wanted = wanted_unit(each.name)
        meant = {(unit.kind, unit.unit) for unit in units_of(each.name)}
        assert (wanted.kind, wanted.unit) in meant or not is_known(wanted), each


WANTED = ("cm", "kg", "ml", "W", "h", "°C")
MEASURES = [
    *("{a} {u}", "Size {a}{u}, {b} {v}", "{b} {v} / {a} {u}", "{a} {u} x {b} {v}", "Width ({v}): {a} {u}"),
    *("{b}{v}: {a}{u}", "{a} {u} ({b} {v})", "from {a} {u} to {b} {v}", "{b} {v} ({a} {u}) soft"),
    *("set of {b}, {a}-{u} each", "{b} x {a} {u}"),
]


@given(
    st.sampled_from(WANTED),
    st.sampled_from(MEASURES),
    st.sampled_from([each.name for each in unit_names()]),
    st.sampled_from([each.name for each in unit_names()]),
    st.sampled_from(["2", "12", "0.5", "250", "1.75"]),
    st.sampled_from(["3", "7.5", "40", "0.2"]),
)
@settings(max_examples=examples(400))
def test_a_number_becomes_no_amount_that_the_text_does_not_have(
    unit: str, form: str, own: str, other: str, amount: str, beside: str
) -> None:
    """Accept as `ok` only one of the two amounts of the text, or both together, in the wanted unit."""
    before, after = (part.format(b=beside, u=own, v=other) for part in form.split("{a}"))
    sentence = f"{before}|{after}"
    found = number(unit, amount, sentence)
    if found.status != "ok" or found.num is None:
        return
    wanted = wanted_unit(unit)
    named = [each for name in (own, other, f"{own}.", f"{other}.") for each in units_of(name)]
    meant = [each for each in named if each.kind == wanted.kind]
    amounts = [convert(Fraction(each), one, wanted) for each in (amount, beside) for one in meant]
    parts = [each for each in meant if each.unit.endswith("meter") == meant[0].unit.endswith("meter")]
    amounts += [
        convert(Fraction(amount), one, wanted) + convert(Fraction(beside), two, wanted)
        for one in parts
        for two in parts
    ]
    assert any(found.num == pytest.approx(float(each), rel=1e-6) for each in amounts), (sentence, found)
