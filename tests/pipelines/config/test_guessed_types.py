"""What values are, by counting them; and schemas from gold with it."""

from __future__ import annotations

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
        ({'28"': 4}, GuessedType("number", Unit(want='"'))),
        ({"$1,299.00": 3, "$12.50": 2}, GuessedType("number", Unit(want="$"))),
        ({"12 cm": 3, "5 kg": 3}, GuessedType()),
        ({"12 cm": 3, "5": 3}, GuessedType()),
        ({"12 cm x 3 cm": 4}, GuessedType()),
        ({"12": 2}, GuessedType()),
        ({"01234": 3, "99999": 1}, GuessedType()),
        ({"4006381333931": 5}, GuessedType()),
        ({"yes": 3, "No": 2}, GuessedType("boolean")),
        ({"ja": 2, "nein": 2, "vielleicht": 2}, GuessedType()),
        ({"2024-01-31": 2, "1.2.2023": 2}, GuessedType("date")),
        ({"red": 5, "blue": 4}, GuessedType("enum", members=enum_of("red", "blue"))),
        ({"red": 50, "blue": 50, "teal": 1}, GuessedType("enum", members=enum_of("red", "blue", "teal"))),
        ({"red": 5, "blue": 4, "teal": 1}, GuessedType()),
        ({"red": 20}, GuessedType()),
        ({"DP": 5, "SP": 4, "12-Port": 4}, GuessedType()),
        ({"line\nbreak": 5, "blue": 5}, GuessedType()),
        ({}, GuessedType()),
    ],
)
def test_the_type_of_values(values: dict[str, int], kind: GuessedType) -> None:
    assert guessed_type(values) == kind
