"""Dollars in words."""

from __future__ import annotations

from pipelines.console.money import dollars
from tests.tables import table


@table(
    ("value", "said"),
    [
        (0, "$0"),
        (0.00329, "$0.00329"),
        (0.16, "$0.160"),
        (0.9999, "$1.00"),
        (1.3, "$1.30"),
        (999.99, "$999.99"),
        (999.996, "$1,000"),
        (12345.6, "$12,346"),
        (-2.5, "-$2.50"),
    ],
)
def test_dollars(value: float, said: str) -> None:
    assert dollars(value) == said
