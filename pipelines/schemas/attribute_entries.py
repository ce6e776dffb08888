"""An attribute as it stands in a schema file.

Brand                                                       a name
{name: Roast, type: enum, values: [light, dark]}            a mapping
{use: colour, description: of the lid}                      one of the library, with keys of its own
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from hpd_core import Attribute, Member, Unit
from hpd_core.text.near_names import NearNames
from pipelines.schemas.spots import Spot, kind_of

# What an entry may have beside the keys of an attribute.
USE = {"use": "an attribute of the library, by its handle; further keys replace its own, null takes one away"}

_TEXTS = ("name", "id", "description", "type")
_NO_ANSWER = "an empty answer is none; leave it out, null is allowed"


def read_attribute(entry: Any, spot: Spot, number: int, library: Mapping[str, Attribute]) -> Attribute:
    """The attribute `number` (from 0) of a category, whose place is `spot`. Raises `UsageError`."""
    here = spot.at(number)
    if isinstance(entry, list):
        raise here.error(f"attribute {number + 1} must be a name or a mapping, not a list")
    if not isinstance(entry, dict):
        entry = {"name": here.text(entry, f"attribute {number + 1}:")}
    handle = entry.get("use")
    name = entry.get("name", handle)
    here = spot.at(number, label=f"{spot.label}, attribute {(name if isinstance(name, str) else number + 1)!r}")
    if "use" not in entry:
        return _from_mapping(entry, here, {})
    here.refuse_unknown(entry, (*USE, *Attribute.model_fields))
    here.text(handle, "use", "use")
    if handle not in library:
        raise here.at("use").unknown_name("attribute in the library", handle, library, NearNames(library).hint(handle))
    if len(entry) == 1:
        # Shared as it is: a vocabulary of thousands of members is there once, however many categories use it.
        return library[handle]
    own = {key: value for key, value in entry.items() if key != "use"}
    return _from_mapping(own, here, {key: value for key, value in library[handle] if key in Attribute.model_fields})


def read_library(entries: Any, spot: Spot) -> dict[str, Attribute]:
    """The attributes that categories share, by handle. Raises `UsageError`."""
    if not isinstance(entries, dict):
        raise spot.error("'attributes' must be a mapping of handles to attributes, for categories to use")
    library = {}
    for number, (handle, entry) in enumerate(entries.items()):
        spot.text(handle, "library attribute", number, is_key=True)
        here = spot.at(handle, label=f"library attribute {handle!r}")
        if not isinstance(entry, dict):
            raise here.error(f"a mapping is needed, such as {{name: {handle}}}, not {kind_of(entry)}")
        library[handle] = _from_mapping(entry, here, {"name": handle})
    return library


def _from_mapping(entry: Mapping[str, Any], spot: Spot, base: Mapping[str, Any]) -> Attribute:
    """`base` holds what the entry need not say."""
    spot.refuse_unknown(entry, Attribute.model_fields)
    read: dict[str, Any] = dict(entry)
    for key in _TEXTS:
        if key in entry and (key == "name" or entry[key] is not None):
            (spot.filled if key == "id" else spot.text)(entry[key], key, key)
    if entry.get("values") is not None:
        items = spot.listed(entry["values"], "values", "values")
        read["values"] = tuple(_member(item, spot, number) for number, item in enumerate(items))
    if entry.get("unit") is not None:
        read["unit"] = _unit(entry["unit"], spot)
    if "aliases" in entry:
        read["aliases"] = spot.texts(entry["aliases"], "aliases", "alias", "aliases")
    try:
        return Attribute.model_validate({**base, **read})
    except ValidationError as error:
        raise spot.error("; ".join(_describe(problem) for problem in error.errors())) from error


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
