"""Shopify's product CSV: answers go into the columns of metafields, of the category's and of the shop's own."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from hpd_core import Attribute
from pipelines.exporting.rules import GOOGLE, SHOPIFY
from pipelines.exporting.targets import ShopWishes, Target, TargetAsked, TargetColumn, find_place, folded_name
from pipelines.exporting.value_forms import Rule, is_sluggable, slug
from pipelines.normalising.member_names import name_and_signs

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
        "shop, or that belong to the product's category."
    )


SHOPIFY_TARGET = Target("shopify", _columns, _note)
