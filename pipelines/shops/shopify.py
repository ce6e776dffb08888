"""Shopify's product taxonomy, as it is published (`dist/en/taxonomy.json`).

Categories name their attributes in full, those of their parents included. Attributes are closed lists of values; those
of the type "measurement" (`measurement_type`, `supported_units`) are numbers with units.

Its product CSV: answers go into the columns of metafields, of the category's and of the shop's own. Read of metafields
in a product CSV (help.shopify.com/en/manual/products/import-export/using-csv; the largest file and how lists are joined
could not be read there), and their limits (11/2026: 64 KB a value, 128 values of a list, 256 references:
shopify.dev/docs/apps/build/metafields/metafield-limits). Lists are written as Shopify's own exports write them, with
"; " between the handles of entries; measurements as the JSON of .../build/metafields/list-of-data-types. Which types of
measurement there are grows (.../api/liquid/objects/measurement): any unit is written.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hpd_core import Attribute, Unit
from pipelines.config.importing.imported import (
    NAMELESS,
    Imported,
    SourceCategory,
    listed,
    named_member,
    one_line,
    readable,
    unique_members,
)
from pipelines.config.importing.kinds import SchemaSource
from pipelines.config.importing.sources import Document
from pipelines.errors import UsageError
from pipelines.exporting.targets import Shop, ShopWishes, TargetAsked, TargetColumn, find_place, folded_name
from pipelines.exporting.value_forms import Rule, is_sluggable, slug
from pipelines.normalising.member_names import name_and_signs
from pipelines.shops.google import GOOGLE

_GID = "gid://shopify/Taxonomy"

Entry = Mapping[str, Any]


def recognises(document: Document) -> bool:
    """Return whether the file belongs to the taxonomy."""
    data = document.data
    if not isinstance(data, Mapping):
        return False
    is_tree = any("prefix" in each and "categories" in each for each in _entries(data.get("verticals"))[:1])
    return is_tree or any(str(each.get("id")).startswith(_GID) for each in _entries(data.get("attributes"))[:1])


def read(documents: Sequence[Document]) -> Imported:
    """Read the taxonomy in the files. Raises `UsageError` if they hold no category."""
    data = [document.data for document in documents if isinstance(document.data, Mapping)]
    definitions = {handle: attribute for each in data for handle, attribute in _definitions(each)}
    verticals = [vertical for each in data for vertical in _entries(each.get("verticals"))]
    categories = [entry for vertical in verticals for entry in _entries(vertical.get("categories")) if entry.get("id")]
    if not categories:
        raise UsageError(
            f"{listed([each.name for each in documents])}: attributes without categories; give the file with the "
            "categories as well (dist/en/taxonomy.json)"
        )
    library: dict[str, Attribute] = {}
    for named in (each for entry in categories for each in _entries(entry.get("attributes"))):
        handle = _handle(named)
        if handle not in library:
            library[handle] = _as_named(definitions.get(handle) or Attribute(name=readable(handle) or NAMELESS), named)
    doubts = {"are not defined in the files, and are texts here": [each for each in library if each not in definitions]}
    versions = dict.fromkeys(str(each["version"]) for each in data if each.get("version"))
    source = " ".join(["Shopify's product taxonomy", *versions])
    return Imported(source, library, list(_tree(categories)), doubts=doubts)


def _as_named(attribute: Attribute, named: Entry) -> Attribute:
    """Rename the attribute as a category does, since an extended one has its own name."""
    update = {
        "name": one_line(named.get("name")) or attribute.name,
        "id": str(named["id"]) if named.get("id") else attribute.id,
        "description": one_line(named.get("description")) or attribute.description,
    }
    return attribute.model_copy(update=update)


def _definitions(data: Entry) -> Iterator[tuple[str, Attribute]]:
    """Yield (handle, attribute), also for extended attributes."""
    for entry in _entries(data.get("attributes")):
        attribute = _attribute(entry)
        yield _handle(entry), attribute
        for extended in _entries(entry.get("extended_attributes")):
            handle = str(extended.get("handle"))
            name = one_line(extended.get("name")) or readable(handle)
            yield handle, attribute.model_copy(update={"name": name, "aliases": (handle,)})


def _attribute(entry: Entry) -> Attribute:
    common: dict[str, Any] = {
        "name": one_line(entry.get("name")) or readable(_handle(entry)) or NAMELESS,
        "id": one_line(entry.get("id")) or None,
        "description": one_line(entry.get("description")) or None,
        # A shop's own columns are named by it.
        "aliases": (str(entry["handle"]),) if entry.get("handle") else (),
    }
    listed = entry.get("supported_units")
    if units := [unit for unit in map(one_line, listed if isinstance(listed, list) else ()) if unit]:
        # The others are what a shop takes, too. A text may have any unit that can be made the first.
        return Attribute(**common, type="number", unit=Unit(want=units[0]))
    if entry.get("type") == "measurement":
        return Attribute(**common, type="number")
    values = ((one_line(each.get("name")), one_line(each.get("id"))) for each in _entries(entry.get("values")))
    members = unique_members(named_member(name, id=number) for name, number in values)
    return Attribute(**common, type="enum", values=members) if members else Attribute(**common)


def _tree(categories: Sequence[Entry]) -> Iterator[SourceCategory]:
    """Yield the categories with their paths, built from ids because names are not unique."""
    parents = {str(entry["id"]): str(entry["parent_id"]) for entry in categories if entry.get("parent_id")}
    names = {str(entry["id"]): one_line(entry.get("name")) or str(entry["id"]) for entry in categories}
    for entry in categories:
        number = str(entry["id"])
        path, above, seen = [names[number]], parents.get(number), {number}
        while above in names and above not in seen:
            path.insert(0, names[above])
            seen.add(above)
            above = parents.get(above)
        handles = tuple(map(_handle, _entries(entry.get("attributes"))))
        yield SourceCategory(number, tuple(path), handles, schema_id=number)


def _handle(named: Entry) -> str:
    return one_line(named.get("handle") or named.get("id"))


def _entries(data: Any) -> list[Entry]:
    return [each for each in data if isinstance(each, Mapping)] if isinstance(data, list) else []


SOURCE = SchemaSource("shopify", recognises, lambda documents, _: read(documents))

_SHOPIFY_BYTES = 65_536
SHOPIFY: Mapping[str, Rule] = {
    "reference": Rule("handle", max_items=256, joint="; "),
    "text": Rule(max_bytes=_SHOPIFY_BYTES),
    "texts": Rule(max_bytes=_SHOPIFY_BYTES, max_items=128, joint="; "),
    "number": Rule("number", max_items=128, joint="; ", least=-9_999_999_999_999, most=9_999_999_999_999),
    "measure": Rule("shopify_measure", max_items=1, least=-9_999_999_999_999, most=9_999_999_999_999),
    "boolean": Rule("true_false"),
}
"""Rules by the content of the metafield."""
HANDLES = ("handle", "url handle")
_METAFIELD = re.compile(r"(?P<label>.*?)\s*\(product\.metafields\.(?P<namespace>[^.()]+)\.(?P<key>[^.()]+)\)\s*")
_GOOGLE = re.compile(r"google shopping / (?P<name>.+)", re.IGNORECASE)
_TAXONOMY = "gid://shopify/TaxonomyAttribute/"
_TAXONOMY_VALUE = "gid://shopify/TaxonomyValue/"
_NAMESPACE = "shopify"
"""Namespace of metafields that come with a category of Shopify's taxonomy."""
_CUSTOM = "custom"
"""Namespace of metafields that a shop defines."""
_OTHER_KEYS = dict.fromkeys(("color", "colour", "farbe", "couleur", "colore", "farg", "kleur"), "color-pattern")
"""Attributes of the taxonomy -> the key of their metafield, if it is another word."""
_MAX_KEY = 64


def _columns(header: Sequence[str], asked: Sequence[TargetAsked], wishes: ShopWishes) -> list[TargetColumn]:
    columns = []
    there = {key: place for place, name in reversed([*enumerate(header)]) if (key := _key_of(name))}
    # A metafield is one column, whatever label the user gives it.
    new = {key: name for name in wishes.columns.values() if (key := _key_of(name))}
    for each in asked:
        attribute, key = each.attribute, _key(each.attribute)
        name = wishes.columns.get(attribute.name)
        if name is None:
            place = _place(header, attribute)
            # Its key is that of another metafield, and not all of its name.
            is_taken = place is None and key in there
            name = "" if is_taken else new.setdefault(key, _new_name(attribute)) if place is None else header[place]
        else:
            own = _key_of(name)
            place = find_place(header, name) if own is None else there.get(own)
            name = header[place] if place is not None else new[own] if own is not None else name
        if name:
            columns.append(TargetColumn(each, name, _rule_of(name), place))
    return columns


def _place(header: Sequence[str], attribute: Attribute) -> int | None:
    """Return the index of the attribute's column, by key, by label, or one that Shopify has for Google; None if there
    is none.

    A metafield of another namespace belongs to an app or to another use, whatever it is called.
    """
    own, key = _key(attribute)
    names = {slug(attribute.name, "-"), slug(attribute.name, "_")} if _is_whole(attribute) else set()
    keys = {key, *names, *(_OTHER_KEYS.get(name, "") for name in names)} - {""} if names else set()
    wanted = folded_name(attribute.name)
    found = [(place, _METAFIELD.fullmatch(name)) for place, name in enumerate(header)]
    for namespace in dict.fromkeys((own, _CUSTOM, _NAMESPACE) if _fits_taxonomy(attribute) else (own, _CUSTOM)):
        metafields = [(place, match) for place, match in found if match and match["namespace"] == namespace]
        places = [place for place, match in metafields if match["key"] in keys]
        places += [place for place, match in metafields if folded_name(match["label"]) == wanted]
        if places:
            return places[0]
    google = ((place, _GOOGLE.fullmatch(name)) for place, name in enumerate(header))
    return next((place for place, match in google if match and folded_name(match["name"]) == wanted), None)


def _key(attribute: Attribute) -> tuple[str, str]:
    """Return the namespace and the key of the attribute's metafield."""
    if (attribute.id or "").startswith(_TAXONOMY) and _fits_taxonomy(attribute):
        handle = slug(attribute.name, "-")
        return _NAMESPACE, _OTHER_KEYS.get(handle, handle)[:_MAX_KEY]
    return _CUSTOM, slug(attribute.name, "_")[:_MAX_KEY]


def _taxonomy_labels(attribute: Attribute) -> tuple[str, ...]:
    """Return the labels of the attribute's values that Shopify's taxonomy has."""
    return tuple(each.label for each in attribute.values or () if (each.id or "").startswith(_TAXONOMY_VALUE))


def _fits_taxonomy(attribute: Attribute) -> bool:
    """Return whether a metafield of the taxonomy can hold its answers: numbers, or values that have an entry."""
    return attribute.type == "number" or bool(_taxonomy_labels(attribute))


def _is_whole(attribute: Attribute) -> bool:
    """Return whether its key keeps all of its name; otherwise names may share a key, such as `eu` for "Размер EU"."""
    return is_sluggable(attribute.name) and len(slug(attribute.name, "_")) <= _MAX_KEY


def _key_of(column: str) -> tuple[str, str] | None:
    """Return the namespace and the key of a metafield's column; None for another column."""
    found = _METAFIELD.fullmatch(column)
    return None if found is None else (found["namespace"], found["key"])


def _new_name(attribute: Attribute) -> str:
    namespace, key = _key(attribute)
    return f"{attribute.name} (product.metafields.{namespace}.{key})" if len(key) > 1 else ""


def _rule_of(name: str) -> Callable[[Attribute], Rule]:
    """Return the rule of the column of this name, as a function of the attribute."""
    match, google = _METAFIELD.fullmatch(name), _GOOGLE.fullmatch(name)
    is_reference = match is not None and match["namespace"] == _NAMESPACE
    for_google = GOOGLE.get(folded_name(google["name"]).replace(" ", "_")) if google else None

    def rule(attribute: Attribute) -> Rule:
        if for_google is not None:
            return for_google
        if is_reference and attribute.type != "number":
            labels, unclear = _taxonomy_labels(attribute), _unclear_handles(attribute)
            return replace(SHOPIFY["reference"], choices=labels, unclear=unclear)
        if attribute.unit is not None and attribute.type == "number":
            return SHOPIFY["measure"]
        return SHOPIFY.get(attribute.type, SHOPIFY["texts" if attribute.multiple else "text"])

    return rule


def _unclear_handles(attribute: Attribute) -> frozenset[str]:
    """Return handles that several members of its vocabulary share: "C" and "C++" would both be `c`."""
    names: defaultdict[str, set[Hashable]] = defaultdict(set)
    for member in attribute.values or ():
        names[slug(member.label, "-")].add(name_and_signs(member.label))
    return frozenset(handle for handle, members in names.items() if len(members) > 1)


def _note(new: Sequence[TargetColumn]) -> str:
    if not new:
        return ""
    return (
        f"New columns: {', '.join(column.name for column in new)}. Shopify imports metafields that are defined in the "
        "shop, or that belong to the product's category. Columns product.metafields.shopify.* are filled only if the "
        "schema has the taxonomy's ids (hpd schema import)."
    )


SHOP = Shop(
    name="shopify",
    columns=_columns,
    is_original=lambda format, header, delimiter, wishes: any(find_place(header, name) is not None for name in HANDLES),
    id_columns=lambda _: HANDLES,
    note=_note,
    max_bytes=15_000_000,
)
