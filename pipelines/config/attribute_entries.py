"""Entries of attributes and objects in a schema file.

Brand                                                       a name
{name: Roast, type: enum, values: [light, dark]}            a mapping
{use: colour, description: of the lid}                      one of the library, with keys of its own
{name: size, type: object, attributes: [width, depth]}      an object: attributes within it
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import ValidationError

from hpd_core import Attribute, Member, Unit
from hpd_core.plain_data import MAX_DEPTH
from hpd_core.text.near_names import NearNames
from pipelines.config.nested_entries import (
    MAX_LEAVES,
    OBJECT,
    OBJECT_KEYS,
    Entry,
    ObjectEntry,
    depth_of,
    leaves_of,
)
from pipelines.config.spots import Spot, kind_of

# What an entry may have beside the keys of an attribute.
USE = {"use": "an attribute of the library, by its handle; further keys replace its own, null takes one away"}
ATTRIBUTE_KEYS = tuple(name for name in Attribute.model_fields if name != "path")
"""Keys of an attribute, without `path`, which follows from the nesting in the file."""

Library: TypeAlias = Mapping[str, Entry | None]
"""Handle -> entry shared by categories; None: not read yet."""
_TEXTS = ("name", "id", "description", "type")
_NO_ANSWER = "an empty answer is none; leave it out, null is allowed"
_LISTS = ("array", "list")
_NO_LISTS_OF_OBJECTS = (
    "a list of objects cannot be asked for in a catalog: ask for lists of values, or fill in a form with "
    "Engine.extract_json (docs/json.md), which takes lists of objects"
)
_TOO_DEEP = f"more than {MAX_DEPTH} objects within each other: name what is in the innermost by its path, 'a.b.c'"


def read_entry(entry: Any, spot: Spot, number: int, library: Library) -> Entry:
    """Read entry `number` (from 0) of the list at `spot`: an attribute or an object. Raises `UsageError`."""
    here = spot.at(number)
    if isinstance(entry, list):
        raise here.error(f"attribute {number + 1} must be a name or a mapping, not a list")
    if not isinstance(entry, dict):
        entry = {"name": here.text(entry, f"attribute {number + 1}:")}
    handle = entry.get("use")
    name = entry.get("name", handle)
    here = spot.at(number, label=f"{spot.label}, attribute {(name if isinstance(name, str) else number + 1)!r}")
    if "use" not in entry:
        return _from_mapping(entry, here, {}, library)
    here.text(handle, "use", "use")
    if handle not in library:
        here.refuse_unknown(entry, (*USE, *ATTRIBUTE_KEYS))
        raise here.at("use").unknown_name("attribute in the library", handle, library, NearNames(library).hint(handle))
    shared = library[handle]
    if shared is None:
        raise here.at("use").error(f"{handle!r} is not above this in the library: an object uses what stands above it")
    if len(entry) == 1:
        # Shared as it is: a vocabulary of thousands of members is there once, however many categories use it.
        return shared
    here.refuse_unknown(entry, (*USE, *(ATTRIBUTE_KEYS if isinstance(shared, Attribute) else OBJECT_KEYS)))
    own = {key: value for key, value in entry.items() if key != "use"}
    return _from_mapping(own, here, _base(shared), library)


def read_library(entries: Any, spot: Spot) -> dict[str, Entry]:
    """Read the library: handle -> entry. An object in it may use entries above it. Raises `UsageError`."""
    if not isinstance(entries, dict):
        raise spot.error("'attributes' must be a mapping of handles to attributes, for categories to use")
    library: dict[str, Entry | None] = dict.fromkeys(entries)
    found: dict[str, Entry] = {}
    for number, (handle, entry) in enumerate(entries.items()):
        spot.text(handle, "library attribute", number, is_key=True)
        here = spot.at(handle, label=f"library attribute {handle!r}")
        if not isinstance(entry, dict):
            raise here.error(f"a mapping is needed, such as {{name: {handle}}}, not {kind_of(entry)}")
        library[handle] = found[handle] = _from_mapping(entry, here, {"name": handle}, library)
    return found


def _base(shared: Entry) -> dict[str, Any]:
    """Return the settings that an entry inherits from the library entry `shared` that it uses."""
    if isinstance(shared, Attribute):
        return {key: value for key, value in shared if key in ATTRIBUTE_KEYS}
    return {"name": shared.name, "type": OBJECT, "description": shared.description, "entries": shared.entries}


def _from_mapping(entry: Mapping[str, Any], spot: Spot, base: Mapping[str, Any], library: Library) -> Entry:
    """Read an entry from a mapping. `base`: settings for keys that it omits. Raises `UsageError`."""
    kind = entry.get("type", base.get("type"))
    if kind in _LISTS and ("attributes" in entry or "items" in entry):
        raise spot.at("type").error(_NO_LISTS_OF_OBJECTS)
    if OBJECT in (kind, base.get("type")) or "attributes" in entry:
        return _object(entry, spot, base, library)
    spot.refuse_unknown(entry, ATTRIBUTE_KEYS)
    read: dict[str, Any] = dict(entry)
    _check_texts(entry, spot)
    if entry.get("values") is not None:
        items = spot.listed(entry["values"], "values", "values")
        read["values"] = tuple(_member(item, spot, number) for number, item in enumerate(items))
    if entry.get("unit") is not None:
        read["unit"] = _unit(entry["unit"], spot)
    if "aliases" in entry:
        read["aliases"] = spot.texts(entry["aliases"], "aliases", "alias", "aliases")
    if "shares_text_with" in entry:
        names = spot.texts(entry["shares_text_with"], "shares_text_with", "name", "shares_text_with")
        read["shares_text_with"] = names
    try:
        return Attribute.model_validate({**base, **read})
    except ValidationError as error:
        raise spot.error("; ".join(_describe(problem) for problem in error.errors())) from error


def _check_texts(entry: Mapping[str, Any], spot: Spot) -> None:
    for key in _TEXTS:
        if key in entry and (key == "name" or entry[key] is not None):
            (spot.filled if key == "id" else spot.text)(entry[key], key, key)


def _object(entry: Mapping[str, Any], spot: Spot, base: Mapping[str, Any], library: Library) -> ObjectEntry:
    if entry.get("type", OBJECT) != OBJECT:
        raise spot.at("type").error(f"what has attributes is of the type object, not {entry['type']!r}")
    if entry.get("multiple"):
        raise spot.at("multiple").error(_NO_LISTS_OF_OBJECTS)
    spot.refuse_unknown(entry, OBJECT_KEYS)
    _check_texts(entry, spot)
    name = entry.get("name", base.get("name"))
    if name is None:
        raise spot.error("an object needs a name")
    spot.filled(name, "name", "name", way_out="give it one")
    entries = _entries(entry["attributes"], spot, library) if "attributes" in entry else base.get("entries", ())
    if not entries:
        raise spot.error("an object needs 'attributes', a non-empty list of what stands in it")
    return ObjectEntry(name, entry.get("description", base.get("description")), entries)


def _entries(listed: Any, spot: Spot, library: Library) -> tuple[Entry, ...]:
    here = spot.at("attributes")
    # What refers to itself by an anchor ends here.
    if len(here.path) > 2 * MAX_DEPTH + 4:
        raise here.error(_TOO_DEEP)
    found: dict[str, Entry] = {}
    num_leaves = 0
    for number, each in enumerate(here.listed(listed, "attributes")):
        inner = read_entry(each, here, number, library)
        if inner.name in found:
            raise here.at(number).error(f"attribute {inner.name!r} is listed twice in it")
        if depth_of(inner) >= MAX_DEPTH:
            raise here.at(number).error(_TOO_DEEP)
        found[inner.name] = inner
        num_leaves += len(leaves_of(inner))
        if num_leaves > MAX_LEAVES:
            raise here.error(f"more than {MAX_LEAVES:,} attributes in one object: a prompt has room for some dozens")
    return tuple(found.values())


def _member(item: Any, spot: Spot, number: int) -> Member:
    if not isinstance(item, dict):
        return Member(label=spot.filled(item, "value", "values", number, way_out=_NO_ANSWER))
    label = item.get("label")
    label = f"{spot.label}, value {(label if isinstance(label, str) else number + 1)!r}"
    here = spot.at("values", number, label=label)
    here.refuse_unknown(item, Member.model_fields)
    if "label" not in item:
        raise here.error("has no label; the label is what is shown to the model and answered")
    here.filled(item["label"], "label", "label", way_out=_NO_ANSWER)
    if item.get("id") is not None:
        here.filled(item["id"], "id", "id")
    if item.get("description") is not None:
        here.text(item["description"], "description", "description")
    synonyms = here.texts(item.get("synonyms"), "synonyms", "synonym", "synonyms")
    return Member(label=item["label"], id=item.get("id"), synonyms=synonyms, description=item.get("description"))


def _unit(entry: Any, spot: Spot) -> Unit:
    if not isinstance(entry, dict):
        return Unit(want=spot.text(entry, "unit", "unit"))
    here = spot.at("unit", label=f"{spot.label}, unit")
    here.refuse_unknown(entry, Unit.model_fields)
    if "want" not in entry:
        raise here.error("does not say which one is wanted: {want: cm, accept: [in, mm]}")
    accept = here.texts(entry.get("accept"), "accept", "accepted unit", "accept")
    return Unit(want=here.text(entry["want"], "want", "want"), accept=accept)


def _describe(problem: Any) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}" if where else message
