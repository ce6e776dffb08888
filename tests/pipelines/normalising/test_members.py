"""Which member of a vocabulary a text means: never another one than a person would say."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hpd_core import Attribute
from pipelines.config.schema_file import load_schemas
from pipelines.normalising.measured_text import Normalised
from pipelines.normalising.member_names import one_form, written_signs
from pipelines.normalising.normalise import Normaliser
from tests.tables import table


def member(raw: str, *values: Any) -> Normalised:
    return Normaliser(Attribute(name="a", type="enum", values=values)).normalise(raw)


@table(
    ("label", "raws"),
    [
        ("1.5 L", ["15 L", "1-5 L", "1 5 L", ".5 L", "1.50 L"]),
        ("7.5", ["75", "7-5", "7/5", "7:5"]),
        ('1/2"', ['12"', "1/2", "12", '1-2"']),
        ("-5 °C", ["5 °C", "+5 °C", "5 C"]),
        ("5 °C", ["-5 °C", "−5 °C", "- 5 °C"]),
        ("≤ 5 kg", ["≥ 5 kg", "5 kg", "< 5 kg", ">= 5 kg", "=5 kg"]),
        ("0-3 months", ["03 months", "3 months", "-3 months"]),
        ("5-10 kg", ["510 kg", "5 10 kg"]),
        ("USB 3.1", ["USB 31", "USB 3.0", "USB 3"]),
        ("1:1", ["11", "1/1"]),
        ("±5%", ["5%", "±5"]),
        ("12'", ["12''", '12"', "12”"]),
        ("C", ["C++", "C#"]),
        ("A+", ["A++", "A"]),
        ("8+", ["8"]),
        ("Bluetooth 5.0", ["Bluetooth 5.1", "bluetooth 50"]),
    ],
)
def test_numbers_and_signs_have_to_be_the_same(label: str, raws: list[str]) -> None:
    assert {raw: member(raw, label).status for raw in raws} == dict.fromkeys(raws, "no_rule")


SIGNED = ["A+++", "A++", "A+", "A", "B", "C", "C++", "C#", "USB", "USB+", "8", "8+", "12", "12'", "0", "0-", "D--", "D"]


@given(
    st.sampled_from([*SIGNED, "A+B", "A++B", "C#x", "8+years", "A+/B", "A+(B)", "x+5", "B-", "5-", "B--"]),
    st.lists(st.integers(0, 3), min_size=12, max_size=12),
)
def test_spaces_before_signs_do_not_count(text: str, spaces: list[int]) -> None:
    """What no word follows, and what one follows: always as it is without the spaces."""
    letters = zip(text, spaces, strict=False)
    spaced = "".join(letter if letter.isalnum() else " " * count + letter for letter, count in letters)
    assert written_signs(one_form(spaced)) == written_signs(one_form(text))


# Words that look alike, and are two.
PAIRS = """
    plain plaid; polyether polyester; silicon silicone; polyamide polyimide; striped stripped; scraper scrapper;
    interior inferior; interior exterior; typical topical; cherry cheery; strip stripe; print printer; paint pain;
    brass bras; princess princes; matte matter; cloth clothe; cloth clothes; plan plant; plan plane; peach peace;
    metal medal; desert dessert; carton cartoon; causal casual; chloride chlorine; absorbent adsorbent; wired wire;
    organic inorganic; regular irregular; insulated insulating; stationary stationery; scented unscented;
    rechargeable nonrechargeable; hypotension hypertension; contract contact; cordless corded; corn corner;
    silver sliver; martial marital; ceramic ceramide; velvet velveteen; lead leaded; male female; bath bathe;
    complement compliment; propane propene; soluble insoluble; breath breathe; waterproof water-resistant
"""


@table("pair", [pair.split() for pair in PAIRS.split(";")])
def test_a_word_is_not_taken_for_another_one(pair: list[str]) -> None:
    one, other = pair
    for label, raw in ((one, other), (other, one), (f"blue {one}", f"blue {other}")):
        assert member(raw, label).status == "no_rule"


def test_no_member_of_the_samples_is_taken_for_another_one() -> None:
    """Each is looked up in its vocabulary without it: what is not there has no rule."""
    attributes = {each for schema in load_schemas("sample/schemas.yaml").values() for each in schema.attributes}
    looked_up = 0
    for attribute in attributes:
        for one in attribute.values or ():
            others = [each for each in attribute.values or () if each is not one]
            if others:
                looked_up += 1
                assert member(one.label, *others).status == "no_rule", (attribute.name, one.label)
    assert looked_up > 50
