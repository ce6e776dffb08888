"""Schemas and products for the tiny model: many short texts, two categories, every attribute type."""

from __future__ import annotations

from hpd_core import Attribute, CategorySchema, Record

SHOES = CategorySchema(
    category="Shoes",
    attributes=(
        Attribute(name="Brand"),
        Attribute(name="Size", type="number"),
        Attribute(name="Colour", multiple=True),
        Attribute(name="Vegan", type="boolean"),
    ),
)
COFFEE = CategorySchema(
    category="Coffee",
    attributes=(Attribute(name="Roast", type="enum", values=("red", "dark")), Attribute(name="Origin")),
)
SCHEMAS = {"Shoes": SHOES, "Coffee": COFFEE}


def products(count: int, first: int = 0) -> list[Record]:
    words = ["Velor", "red", "running", "light", "soft", "42", "arabica", "beans", "blue", "pack"]
    records = []
    for n in range(first, first + count):
        text = " ".join(words[(n * k + k * k) % len(words)] for k in range(1, 3 + n % 7))
        records.append(
            Record(str(n), "Coffee" if n % 3 == 2 else "Shoes", {"title": f"{text} {n}", "text": text[::-1]})
        )
    return records
