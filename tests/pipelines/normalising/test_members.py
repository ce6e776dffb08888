"""Which member of a vocabulary a text means: never another one than a person would say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpd_core import Attribute
from pipelines.normalising import member_names
from pipelines.normalising.member_names import one_form, written_signs
from pipelines.normalising.normalise import normalise
from pipelines.normalising.normalised import Normalised
from pipelines.schemas.schema_file import load_schemas
from tests.tables import table


def member(raw: str, *values: Any) -> Normalised:
    return normalise(Attribute(name="a", type="enum", values=values), raw)


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


@table(
    ("label", "raws"),
    [
        ("1.5 L", ["1,5 l", "1.5L", "1.5-L"]),
        ('1/2"', ["½ ″", "1 / 2”", "1/2''", "1/2′′"]),
        ("-5 °C", ["−5°c", "- 5 ℃"]),
        ("≤ 5 kg", ["<= 5kg", "≤5 KG"]),
        ("0-3 months", ["0–3 Months", "0 - 3 months"]),
        ("A4", ["A-4", "a 4"]),
        ("4-season", ["4 Season"]),
        ("10 x 20", ["10×20"]),
        ("Black/White", ["black & white", "Black + White", "black-white"]),
        ("Women's", ["womens", "WOMEN’S"]),
    ],
)
def test_another_form_of_the_same_signs_is_the_same(label: str, raws: list[str]) -> None:
    assert {raw: member(raw, label).norm for raw in raws} == dict.fromkeys(raws, label)


SIGNED = ["A+++", "A++", "A+", "A", "B", "C", "C++", "C#", "USB", "USB+", "8", "8+", "12", "12'", "0", "0-", "D--", "D"]


@table(
    ("raw", "norm"),
    [
        *[("A +", "A+"), ("A ++", "A++"), ("a + + +", "A+++"), ("(A +)", "A+"), ("A +, ", "A+"), ("A ＋", "A+")],
        *[("C ++", "C++"), ("C #", "C#"), ("USB +", "USB+"), ("8 +", "8+"), ("12 ′", "12'"), ("0 −", "0-")],
        *[("B-", None), ("B -", None), ("(B–)", None), ("A+ +++", None), ("D - -", "D--"), ("D -", None)],
        *[("8++", None), ("C+", None), ("USB -", None)],
    ],
)
def test_a_sign_is_of_the_word_before_it_whatever_space_is_between(raw: str, norm: str | None) -> None:
    assert member(raw, *SIGNED).norm == norm


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


def test_vocabularies_are_forgotten_by_how_many_labels_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_names, "_MAX_LABELS", 25)
    remembered = member_names._Remembered()
    monkeypatch.setattr(member_names, "_remembered", remembered)
    for number in range(6):
        assert member(f"V{number} 1", *(f"v{number} {index}" for index in range(10))).norm == f"v{number} 1"
    assert sum(len(key.members) for key in remembered._names) <= 25
