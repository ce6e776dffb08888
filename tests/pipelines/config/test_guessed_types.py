"""What values are, by counting them; and schemas from gold with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from hpd_core import Member, Unit
from pipelines.profiling.from_gold import GuessedType, guessed_type
from tests.tables import table


def enum_of(*labels: str) -> tuple[Member, ...]:
    return tuple(Member(label=label) for label in labels)


@table(
    ("values", "kind"),
    [
        ({"12": 3, "3.5": 1, "-2": 1}, GuessedType("number")),
        ({"12 cm": 3, "3,5 CM": 2, "7cm": 1}, GuessedType("number", Unit(want="cm"))),
        ({"12 cm": 3, "5 in": 2, "30 mm": 1}, GuessedType("number", Unit(want="cm"))),
        ({"16 fl oz": 4, "8 Fl Oz": 1}, GuessedType("number", Unit(want="fl oz"))),
        ({'28"': 4}, GuessedType("number", Unit(want='"'))),
        ({"80%": 4}, GuessedType("number", Unit(want="%"))),
        ({"$1,299.00": 3, "$12.50": 2}, GuessedType("number", Unit(want="$"))),
        ({"1.299,00 €": 3, "€ 12,50": 2}, GuessedType("number", Unit(want="€"))),
        ({"USD 12": 3, "USD 9": 3}, GuessedType("number", Unit(want="USD"))),
        ({"12 cm": 3, "5 kg": 3}, GuessedType()),
        ({"12 cm": 3, "5": 3}, GuessedType()),
        ({"12 cm x 3 cm": 4}, GuessedType()),
        ({"10-20": 4}, GuessedType()),
        ({"12": 2}, GuessedType()),
        ({"01234": 3, "99999": 1}, GuessedType()),
        ({"4006381333931": 5}, GuessedType()),
        ({"yes": 3, "No": 2}, GuessedType("boolean")),
        ({"ja": 2, "nein": 2, "vielleicht": 2}, GuessedType()),
        ({"2024-01-31": 2, "1.2.2023": 2}, GuessedType("date")),
        ({"red": 5, "blue": 4}, GuessedType("enum", members=enum_of("red", "blue"))),
        ({"red": 5, "Red": 2, "blue": 4}, GuessedType("enum", members=enum_of("red", "blue"))),
        ({"red": 50, "blue": 50, "teal": 1}, GuessedType("enum", members=enum_of("red", "blue", "teal"))),
        ({"red": 5, "blue": 4, "teal": 1}, GuessedType()),
        ({"red": 20}, GuessedType()),
        ({"red": 2, "blue": 2}, GuessedType()),
        ({"line\nbreak": 5, "blue": 5}, GuessedType()),
        ({" ": 5}, GuessedType()),
        ({}, GuessedType()),
    ],
)
def test_the_type_of_values(values: dict[str, int], kind: GuessedType) -> None:
    assert guessed_type(values) == kind


values = st.text(max_size=12) | st.sampled_from(["12 cm", "red", "yes", "1e9", "½", "12 \x00", "3 ²"])


def gold(path: Path, *products: tuple[str, dict[str, Any]]) -> Path:
    lines = [
        json.dumps({"product_id": str(number), "category": category, "values": values})
        for number, (category, values) in enumerate(products)
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path
