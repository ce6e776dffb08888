"""What values are, by counting them; and schemas from gold with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpd_core import Member, Unit
from pipelines.schemas.value_kinds import ValueKind, kind_of_values
from tests.pipelines.schemas.imports import done


def enum_of(*labels: str) -> tuple[Member, ...]:
    return tuple(Member(label=label) for label in labels)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"12": 3, "3.5": 1, "-2": 1}, ValueKind("number")),
        ({"12 cm": 3, "3,5 CM": 2, "7cm": 1}, ValueKind("number", Unit(want="cm"))),
        ({"12 cm": 3, "5 in": 2, "30 mm": 1}, ValueKind("number", Unit(want="cm"))),
        ({"16 fl oz": 4, "8 Fl Oz": 1}, ValueKind("number", Unit(want="fl oz"))),
        ({'28"': 4}, ValueKind("number", Unit(want='"'))),
        ({"80%": 4}, ValueKind("number", Unit(want="%"))),
        ({"$1,299.00": 3, "$12.50": 2}, ValueKind("number", Unit(want="$"))),
        ({"1.299,00 €": 3, "€ 12,50": 2}, ValueKind("number", Unit(want="€"))),
        ({"USD 12": 3, "USD 9": 3}, ValueKind("number", Unit(want="USD"))),
        ({"12 cm": 3, "5 kg": 3}, ValueKind()),
        ({"12 cm": 3, "5": 3}, ValueKind()),
        ({"12 cm x 3 cm": 4}, ValueKind()),
        ({"10-20": 4}, ValueKind()),
        ({"12": 2}, ValueKind()),
        ({"01234": 3, "99999": 1}, ValueKind()),
        ({"4006381333931": 5}, ValueKind()),
        ({"yes": 3, "No": 2}, ValueKind("boolean")),
        ({"ja": 2, "nein": 2, "vielleicht": 2}, ValueKind()),
        ({"2024-01-31": 2, "1.2.2023": 2}, ValueKind("date")),
        ({"red": 5, "blue": 4}, ValueKind("enum", members=enum_of("red", "blue"))),
        ({"red": 5, "Red": 2, "blue": 4}, ValueKind("enum", members=enum_of("red", "blue"))),
        ({"red": 50, "blue": 50, "teal": 1}, ValueKind("enum", members=enum_of("red", "blue", "teal"))),
        ({"red": 5, "blue": 4, "teal": 1}, ValueKind()),
        ({"red": 20}, ValueKind()),
        ({"red": 2, "blue": 2}, ValueKind()),
        ({"line\nbreak": 5, "blue": 5}, ValueKind()),
        ({" ": 5}, ValueKind()),
        ({}, ValueKind()),
    ],
)
def test_the_kind_of_values(values: dict[str, int], kind: ValueKind) -> None:
    assert kind_of_values(values) == kind


def test_further_forms_are_synonyms_unless_another_member_is_called_so() -> None:
    forms = {"navy": ["dark blue", "blue"], "blue": ["BLUE", "azure"]}
    kind = kind_of_values({"navy": 5, "blue": 5}, forms)
    assert kind.members == (
        Member(label="navy", synonyms=("dark blue",)),
        Member(label="blue", synonyms=("azure",)),
    )


values = st.text(max_size=12) | st.sampled_from(["12 cm", "red", "yes", "1e9", "½", "12 \x00", "3 ²"])


@given(st.dictionaries(values, st.integers(1, 50), max_size=8))
def test_every_kind_makes_an_attribute(counts: dict[str, int]) -> None:
    attribute = kind_of_values(counts).attribute("x", multiple=True)
    assert (attribute.type == "enum") == (attribute.values is not None)


def gold(path: Path, *products: tuple[str, dict[str, Any]]) -> Path:
    lines = [
        json.dumps({"product_id": str(number), "category": category, "values": values})
        for number, (category, values) in enumerate(products)
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_gold_proposes_types_with_their_counts(tmp_path: Path) -> None:
    bags = [
        (
            "Bags",
            {
                "Width": [f"{number} cm"],
                "Colour": [["red"], ["blue", "navy"]],
                "Lined": ["yes"],
                "Name": [f"n{number}"],
            },
        )
        for number in range(6)
    ]
    hats = [("Hats", {"Colour": ["red", "crimson"], "Name": None}) for _ in range(4)]
    path = gold(tmp_path / "gold.jsonl", *bags, *hats)
    typed = done(tmp_path, path)
    assert typed.attribute("Bags", "Width").unit == Unit(want="cm")
    colour = typed.attribute("Bags", "Colour")
    assert colour.multiple
    assert colour.values == (Member(label="red", synonyms=("crimson",)), Member(label="blue", synonyms=("navy",)))
    assert typed.attribute("Hats", "Colour").values == colour.values
    assert not typed.attribute("Hats", "Colour").multiple
    assert typed.attribute("Bags", "Lined").type == "boolean"
    assert typed.attribute("Bags", "Name").type == "string"
    assert "# 16 values, 2 different: red 10, blue 6" in typed.text
    assert "types: 2 enum, 1 boolean, 1 string, 1 number" in typed.printed
    assert not typed.remarks()

    plain = done(tmp_path, path, "--plain")
    assert {each.type for schema in plain.schemas.values() for each in schema.attributes} == {"string"}
    assert plain.names("Bags") == typed.names("Bags")
    assert plain.text.startswith("categories:\n  Bags:\n  - ")
    assert list(done(tmp_path, path, "--plain", "--category", "Hats").schemas) == ["Hats"]
    assert list(done(tmp_path, path, "--category", "Hats").schemas) == ["Hats"]
