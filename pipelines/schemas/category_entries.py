"""A whole schema document: the library of attributes, and the categories, which may extend each other."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from hpd_core import Attribute, CategorySchema
from hpd_core.text.near_names import NearNames
from pipelines.errors import UsageError
from pipelines.schemas.attribute_entries import read_attribute, read_library
from pipelines.schemas.spots import Spot

_SHAPE = "a schema file holds one mapping 'categories: {<category>: [<attribute>, ...]}'"
_KEYS = ("extends", "id", "aliases", "attributes")


def read_document(document: Any, spot: Spot) -> dict[str, CategorySchema]:
    """The category schemas of a parsed document, in its order. Raises `UsageError`."""
    if document is None:
        raise UsageError(f"{spot.file} is empty; {_SHAPE}")
    if not isinstance(document, dict) or "categories" not in document:
        raise spot.error(_SHAPE)
    spot.refuse_unknown(document, ("attributes", "categories"))
    library = read_library(document["attributes"], spot.at("attributes")) if "attributes" in document else {}
    categories = document["categories"]
    if not isinstance(categories, dict) or not categories:
        raise spot.error("'categories' must be a mapping of category names to lists of attributes")
    for number, name in enumerate(categories):
        spot.text(name, "category", "categories", number, is_key=True)
    return _Categories(categories, spot, library).read()


class _Categories:
    """The entries below `categories`."""

    def __init__(self, entries: Mapping[str, Any], spot: Spot, library: Mapping[str, Attribute]) -> None:
        self._spots = {name: spot.at("categories", name, label=f"category {name!r}") for name in entries}
        self._listed = {name for name, entry in entries.items() if isinstance(entry, list)}
        self._entries = {name: self._mapping(name, entry) for name, entry in entries.items()}
        self._library = library

    def read(self) -> dict[str, CategorySchema]:
        parents = {name: self._parents(name) for name in self._entries}
        try:
            order = list(TopologicalSorter(parents).static_order())
        except CycleError as error:
            # graphlib names who is extended first.
            cycle = error.args[1][::-1]
            raise (
                self._spots[cycle[0]].at("extends").error(f"extends itself: {' extends '.join(map(repr, cycle))}")
            ) from error
        read: dict[str, CategorySchema] = {}
        for name in order:
            read[name] = self._category(name, [read[parent] for parent in parents[name]])
        return {name: read[name] for name in self._entries}

    def _mapping(self, name: str, entry: Any) -> dict[str, Any]:
        spot = self._spots[name]
        if isinstance(entry, dict):
            spot.refuse_unknown(entry, _KEYS)
            return entry
        if not isinstance(entry, list) or not entry:
            raise spot.error("a non-empty list of attributes is needed, or a mapping with 'attributes' or 'extends'")
        return {"attributes": entry}

    def _parents(self, name: str) -> tuple[str, ...]:
        entry, spot = self._entries[name].get("extends"), self._spots[name].at("extends")
        if not isinstance(entry, list):
            parents: tuple[str, ...] = () if entry is None else (spot.text(entry, "extends"),)
        else:
            parents = spot.texts(entry, "extends", "extended category")
        for parent in parents:
            if parent not in self._entries:
                raise spot.unknown_name("category", parent, self._entries, NearNames(self._entries).hint(parent))
        return parents

    def _category(self, name: str, parents: list[CategorySchema]) -> CategorySchema:
        entry, spot = self._entries[name], self._spots[name]
        attributes = {attribute.name: attribute for parent in parents for attribute in parent.attributes}
        attributes |= self._own(name)
        if not attributes:
            raise spot.error("a non-empty list of attributes is needed, its own or those of a category that it extends")
        if (schema_id := entry.get("id")) is not None:
            spot.text(schema_id, "id", "id")
        return CategorySchema(
            category=name,
            attributes=tuple(attributes.values()),
            id=schema_id,
            aliases=spot.texts(entry.get("aliases"), "aliases", "alias", "aliases"),
        )

    def _own(self, name: str) -> dict[str, Attribute]:
        """The attributes that a category names itself."""
        spot = self._spots[name] if name in self._listed else self._spots[name].at("attributes")
        found: dict[str, Attribute] = {}
        for number, entry in enumerate(spot.listed(self._entries[name].get("attributes"), "attributes")):
            attribute = read_attribute(entry, spot, number, self._library)
            if attribute.name in found:
                raise spot.at(number).error(f"attribute {attribute.name!r} is listed twice")
            found[attribute.name] = attribute
        return found
