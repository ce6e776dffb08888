"""Category schemas from the attributes that gold files are labelled with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hpd_core import Attribute, CategorySchema
from pipelines.quality.gold import GoldProduct


def schemas_from_gold(products: Iterable[GoldProduct], *, require_values: bool = False) -> dict[str, CategorySchema]:
    """The schemas that `products` are labelled with: every labelled attribute, as a string.

    Categories are in alphabetical order, attributes by number of labelled products, then name. A category
    whose products have no label at all is left out.

    Args:
        products: the lines of one or more gold files.
        require_values: leave out attributes that are absent wherever they are labelled.
    """
    num_labels: dict[str, Counter[str]] = {}
    with_values: set[tuple[str, str]] = set()
    multiple: set[tuple[str, str]] = set()
    for product in products:
        counter = num_labels.setdefault(product.category, Counter())
        for name, value in product.values.items():
            counter[name] += 1
            if not value.is_absent:
                with_values.add((product.category, name))
            if len(value.items) > 1:
                multiple.add((product.category, name))
    schemas = {}
    for category, counter in sorted(num_labels.items()):
        names = sorted(counter, key=lambda name: (-counter[name], name))
        attributes = tuple(
            Attribute(name=name, multiple=(category, name) in multiple)
            for name in names
            if not require_values or (category, name) in with_values
        )
        if attributes:
            schemas[category] = CategorySchema(category=category, attributes=attributes)
    return schemas
