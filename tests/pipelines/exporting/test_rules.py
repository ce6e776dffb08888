"""Values as the targets want them, and why not: the table of published rules."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pipelines.exporting.answers import ExportedItem
from pipelines.exporting.value_forms import Rule
from pipelines.shops.akeneo import AKENEO, SYMBOLS, akeneo_unit, unit_of
from pipelines.shops.google import GOOGLE, GOOGLE_DETAILS
from pipelines.shops.shopify import SHOPIFY
from tests.tables import table

HANDLES = replace(
    SHOPIFY["reference"],
    choices=("Rose gold", "Rose-Gold", "Été", "Weiß", "Größe Ø", "日本", "日本 XL", "C", "C++", "Øl", "Ol"),
)
"""A rule for a taxonomy with these values."""


def items(*texts: str, unit: str | None = None, id_: str | None = None) -> list[ExportedItem]:
    return [ExportedItem(text, None, unit, id_) for text in texts]


@table(
    ("rule", "given_", "written"),
    [
        (GOOGLE["color"], items("Red", "Navy blue"), "Red/Navy blue"),
        (GOOGLE["color"], items("Red", "Red"), "Red"),
        (GOOGLE["gender"], items("Female"), "female"),
        (GOOGLE["size_system"], items("mex"), "MEX"),
        (GOOGLE["size_type"], items("big", "tall"), "big,tall"),
        (GOOGLE["product_width"], items("35.56", unit="cm"), "35.56 cm"),
        (GOOGLE["product_weight"], items("2", unit="Pound"), "2 lb"),
        (GOOGLE["product_weight"], items("2600", unit="g"), "2.6 kg"),
        (GOOGLE["product_weight"], items("1000000.5", unit="gram"), "1000.0005 kg"),
        (GOOGLE["product_weight"], items("2001", unit="oz"), "125.0625 lb"),
        (GOOGLE["is_bundle"], items("true"), "yes"),
        (GOOGLE["brand"], items("Two\nlines"), "Two lines"),
        (GOOGLE["gtin"], items("4006381333931"), "4006381333931"),
        (GOOGLE["gtin"], items("4006381-33393 1"), "4006381333931"),
        (GOOGLE_DETAILS["number"], items("10 to 12", unit="cm"), "10 to 12 cm"),
        (GOOGLE_DETAILS["text"], items("10 cm", unit="cm"), "10 cm"),
        (SHOPIFY["text"], items("oak; oiled"), "oak; oiled"),
        (HANDLES, items("Rose gold", "Été"), "rose-gold; ete"),
        (HANDLES, items("Rose gold", "Rose-Gold"), "rose-gold"),
        (HANDLES, items("Weiß", "Größe Ø"), "weiss; grosse-o"),
        (GOOGLE["gtin"], items("4006381-33393 1", "4006381333931"), "4006381333931"),
        (SHOPIFY["measure"], items("10.5", unit="cm"), '{"value": 10.5, "unit": "cm"}'),
        (AKENEO["boolean"], items("false"), "0"),
        (AKENEO["multiselect"], [*items("Red", id_="red"), *items("Blue", id_="blue")], "red,blue"),
    ],
)
def test_what_is_written(rule: Rule, given_: list[ExportedItem], written: str) -> None:
    filled = rule.fill(given_)
    assert (rule.cell(filled), filled.reason) == (written, None)


@table(
    ("rule", "given_", "reason"),
    [
        (GOOGLE["color"], items("red", "blue", "green", "white"), "4 values, 3 at most"),
        (GOOGLE["color"], items("red, blue"), "not of the form that is wanted"),
        (GOOGLE["color"], items("R"), "not of the form that is wanted"),
        (GOOGLE["color"], items("See image"), "'See image' is no value there"),
        (GOOGLE["color"], items("red", "Various"), "'Various' is no value there"),
        (GOOGLE["brand"], items("No brand"), "'No brand' is no value there"),
        (GOOGLE["color"], items("x" * 41), "longer than 40 characters"),
        (GOOGLE["color"], items("x" * 40, "y" * 40, "z" * 40), "longer than 100 characters"),
        (GOOGLE["color"], items("black/white"), "holds '/', which separates values there"),
        (GOOGLE["gender"], items("dogs"), "none of male, female, unisex"),
        (GOOGLE["product_width"], items("0.5", unit="cm"), "not from 1 to 3000"),
        (GOOGLE["product_width"], items("35", unit="mm"), "in mm, and cm, in are taken"),
        (GOOGLE["product_weight"], items("2000001", unit="g"), "not from 0 to 2000"),
        (GOOGLE["product_weight"], items("-1", unit="g"), "not from 0 to 2000"),
        (GOOGLE["product_width"], items("30-40", unit="cm"), "not one number"),
        (GOOGLE["gtin"], items("123"), "no number of 8, 12, 13 or 14 digits"),
        (GOOGLE["gtin"], items("٤٠٠٦٣٨١٣٣٣٩٣١"), "no number of 8, 12, 13 or 14 digits"),
        (GOOGLE["gtin"], items("4006381333932"), "its check digit is wrong"),
        (GOOGLE["gtin"], items("2000000000008"), "of a range for coupons or for a shop's own use"),
        (GOOGLE_DETAILS["text"], items("x" * 1001), "longer than 1,000 characters"),
        (SHOPIFY["text"], items("é" * 32_769), "longer than 65,536 bytes"),
        (GOOGLE["adult"], items("maybe"), "neither true nor false"),
        (SHOPIFY["texts"], items("a; b", "c"), "holds ';', which separates values there"),
        (HANDLES, items("日本"), "no handle can be made of it"),
        (HANDLES, items("C", "C++", "Weiß"), "several of its values would be 'c' there"),
        (
            SHOPIFY["number"],
            [*items("5", unit="kg"), *items("5", unit="cm")],
            "several of its values would be '5' there",
        ),
        (SHOPIFY["measure"], items("3"), "in no unit"),
        (AKENEO["select"], items("Red"), "no option code in the schema"),
        (AKENEO["select"], items("Red", id_="gid://1"), "not of the form that is wanted"),
    ],
)
def test_what_breaks_a_rule_is_named(rule: Rule, given_: list[ExportedItem], reason: str) -> None:
    assert rule.fill(given_) == ((), reason)


@given(st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=5))
def test_what_is_written_keeps_every_rule(texts: list[str]) -> None:
    for rule in (*GOOGLE.values(), *SHOPIFY.values(), *AKENEO.values()):
        filled = rule.fill(items(*texts, unit="cm", id_="code"))
        assert bool(filled.values) != bool(filled.reason)
        assert rule.max_length is None or len(rule.cell(filled)) <= rule.max_length
        assert len(filled.values) <= rule.max_items
        if rule.form == "choice":
            assert set(filled.values) <= set(rule.choices)


def test_capitals_of_units_count_where_they_mean_another_unit() -> None:
    written = {
        **{"mV": "MILLIVOLT", "MV": None, "MB": "MEGABYTE", "Mb": None, "mb": None, "Gb": None, "kB": "KILOBYTE"},
        **{"mW": "MILLIWATT", "MW": "MEGAWATT", "mAh": "MILLIAMPEREHOUR", "MAH": None, "kw": "KILOWATT"},
        **{"CM": "CENTIMETER", "ML": "MILLILITER", "L": "LITER", "Kg": "KILOGRAM", "cal": "CALORIE", "Cal": None},
        **{"days": "DAY", "fl oz": "OUNCE", "hz": "HERTZ", "S": None},
    }
    assert {unit: akeneo_unit(unit) for unit in written} == written


@table(("family", "code"), [(family, code) for family, codes in SYMBOLS.items() for code in codes])
def test_units_of_akeneos_families_come_back(family: str, code: str) -> None:
    unit = unit_of(family, code)
    assert unit is not None
    assert akeneo_unit(unit.want) == code
