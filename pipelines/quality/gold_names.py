"""What gold calls an attribute, and what the schemas call it that the gold is for.

Two attributes that a source calls alike are told apart by a number in a schema ("Color", "color (2)"): the second has
the source's name as its id, and labels were written with that. So a name that no attribute has is looked for among ids,
then among aliases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from hpd_core import Attribute, CategorySchema
from pipelines.errors import UsageError

T = TypeVar("T")


class GoldNames:
    """Names of attributes in gold, by the schemas that it is for; without any, all stay as they are."""

    def __init__(self, schemas: Sequence[Mapping[str, CategorySchema]]) -> None:
        self._schemas = schemas
        self._known: dict[tuple[str, str], str] = {}

    def asked(self, category: str, name: str) -> str:
        """The name of the attribute that is meant; the name itself where the schemas do not tell."""
        if (category, name) not in self._known:
            found = [each for schemas in self._schemas if category in schemas for each in schemas[category].attributes]
            self._known[category, name] = _asked(name, found)
        return self._known[category, name]

    def by_asked(self, category: str, values: Mapping[str, T], place: str) -> dict[str, T]:
        """A line's labels under the names that are asked for. Raises `UsageError` if two are of one attribute."""
        found: dict[str, T] = {}
        written: dict[str, str] = {}
        for name, value in values.items():
            asked = self.asked(category, name)
            if asked in found:
                raise UsageError(
                    f"{place}: {written[asked]!r} and {name!r} both label the attribute {asked!r}; leave out one"
                )
            found[asked], written[asked] = value, name
        return found


def _asked(name: str, attributes: Sequence[Attribute]) -> str:
    if any(each.name == name for each in attributes):
        return name
    with_id = {each.name for each in attributes if each.id == name}
    aliased = {each.name for each in attributes if name in each.aliases}
    return next((found.pop() for found in (with_id, aliased) if len(found) == 1), name)
