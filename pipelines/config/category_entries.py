"""Schema documents: the library of attributes, and the categories, which may extend each other."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, TypeAlias

from hpd_core import Attribute, CategorySchema
from hpd_core.text.near_names import NearNames
from pipelines.config.attribute_entries import read_entry, read_library
from pipelines.config.nested_entries import Entry, leaves_of
from pipelines.config.spots import Spot
from pipelines.errors import UsageError

# What may stand in a schema file, and in a category that is a mapping, beside what a category has.
DOCUMENT = {
    "attributes": "the library: a mapping of handles to attributes that several categories share; one without a `name` "
    "is called by its handle",
    "categories": "a mapping of names to categories: lists of attributes, or mappings",
}
EXTENDS = {
    "extends": "a category, or a list of them, whose attributes come first; of one name its own counts, then that of "
    "the nearest category that has one, of several the one listed first"
}

_SHAPE = "a schema file holds one mapping 'categories: {<category>: [<attribute>, ...]}'"
_Own: TypeAlias = Mapping[str, tuple[Entry, Spot]]
"""Name -> entry that a category itself lists, and its place in the file."""
_KEYS = (*EXTENDS, *(name for name in CategorySchema.model_fields if name != "category"))


def read_document(document: Any, spot: Spot) -> dict[str, CategorySchema]:
    """Read the category schemas of a parsed document, in its order. Raises `UsageError`."""
    if document is None:
        raise UsageError(f"{spot.file} is empty; {_SHAPE}")
    if not isinstance(document, dict) or "categories" not in document:
        raise spot.error(_SHAPE)
    spot.refuse_unknown(document, DOCUMENT)
    library = read_library(document["attributes"], spot.at("attributes")) if "attributes" in document else {}
    categories = document["categories"]
    if not isinstance(categories, dict) or not categories:
        raise spot.error("'categories' must be a mapping of category names to lists of attributes")
    for number, name in enumerate(categories):
        spot.text(name, "category", "categories", number, is_key=True)
    return _Categories(categories, spot, library).read()


class _Categories:
    """Reader of the entries below `categories`."""

    def __init__(self, entries: Mapping[str, Any], spot: Spot, library: Mapping[str, Entry]) -> None:
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
        own = {name: self._own(name) for name in order}
        lines: dict[str, type] = {}
        entries: dict[str, _Own] = {}
        for name in order:
            lines[name] = self._line(name, parents[name], lines)
            # In the order of the parents, but each as the nearest category has it.
            found = {each: entry for parent in parents[name] for each, entry in entries[parent].items()}
            for line in reversed(lines[name].__mro__[:-1]):
                found |= own[vars(line)["category"]]
            entries[name] = found
        return {name: self._category(name, self._leaves(name, entries[name])) for name in self._entries}

    def _leaves(self, name: str, entries: _Own) -> tuple[Attribute, ...]:
        """Return the attributes that are asked for, including those in objects. Raises `UsageError` for duplicates."""
        found: dict[str, tuple[Attribute, Spot]] = {}
        for entry, spot in entries.values():
            for leaf in leaves_of(entry):
                if leaf.name in found:
                    raise self._spots[name].twice(leaf.name, found[leaf.name][1], spot)
                found[leaf.name] = leaf, spot
        return tuple(leaf for leaf, _ in found.values())

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
            parents = tuple(dict.fromkeys(spot.texts(entry, "extends", "extended category")))
        for parent in parents:
            if parent not in self._entries:
                raise spot.unknown_name("category", parent, self._entries, NearNames(self._entries).hint(parent))
        return parents

    def _line(self, name: str, parents: tuple[str, ...], lines: Mapping[str, type]) -> type:
        """Return a class whose bases are those of the parents: Python orders the categories that it extends, nearest
        first. Raises `UsageError` if ambiguous."""
        try:
            return type("_Line", tuple(map(lines.__getitem__, parents)), {"category": name})
        except TypeError as error:
            raise (
                self._spots[name]
                .at("extends")
                .error(
                    f"extends {' and '.join(map(repr, parents))}, which leave open whose attributes count first: one "
                    "of them is extended by another, or they extend the same categories in another order; list the "
                    "nearer one first"
                )
            ) from error

    def _category(self, name: str, attributes: tuple[Attribute, ...]) -> CategorySchema:
        entry, spot = self._entries[name], self._spots[name]
        if not attributes:
            raise spot.error("a non-empty list of attributes is needed, its own or those of a category that it extends")
        if (schema_id := entry.get("id")) is not None:
            spot.filled(schema_id, "id", "id")
        return CategorySchema(
            category=name,
            attributes=attributes,
            id=schema_id,
            aliases=spot.texts(entry.get("aliases"), "aliases", "alias", "aliases"),
        )

    def _own(self, name: str) -> _Own:
        """Return the entries that a category lists itself, by name, with their places."""
        spot = self._spots[name] if name in self._listed else self._spots[name].at("attributes")
        found: dict[str, tuple[Entry, Spot]] = {}
        for number, listed in enumerate(spot.listed(self._entries[name].get("attributes"), "attributes")):
            entry, here = read_entry(listed, spot, number, self._library), spot.at(number)
            if entry.name in found:
                raise here.error(f"attribute {entry.name!r} is listed twice")
            found[entry.name] = entry, here
        return found
