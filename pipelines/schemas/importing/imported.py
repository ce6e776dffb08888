"""What was read of a source: a tree of categories, the attributes that they share, and what is to be said of it.

Every reader ends here, whatever its source looks like; `schema_text.py` writes it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hpd_core import Attribute, Member
from hpd_core.text.near_names import NearNames, fold_name
from pipelines.errors import UsageError

PATH_SIGN = " > "
NAMELESS = "(without a name)"
"""Stands for a name that a source leaves empty."""

_MAX_LISTED = 8
_MAX_TEXT = 500  # characters; YAML has no keys of more than 1,024


@dataclass(frozen=True, slots=True)
class SourceCategory:
    """A category as its source has it.

    Attributes:
        id: what the source calls it by; no two are alike.
        path: the names from the root down to its own.
        handles: of its own attributes, in the order of the source.
        extends: the id of a category whose attributes it has, too, if the source is written so.
        aliases: other names of it, beside its path.
        schema_id: the id that goes into the schema; None: the source has none.
        comments: handle -> what stands above the attribute in this category.
    """

    id: str
    path: tuple[str, ...]
    handles: tuple[str, ...]
    extends: str | None = None
    aliases: tuple[str, ...] = ()
    schema_id: str | None = None
    comments: Mapping[str, str] = field(default_factory=dict, hash=False, compare=False)

    @property
    def name(self) -> str:
        """Its own name, which others may have as well."""
        return self.path[-1]

    @property
    def full_name(self) -> str:
        """Its whole path as text."""
        return PATH_SIGN.join(self.path)


@dataclass(frozen=True, slots=True)
class Imported:
    """A source, read.

    Attributes:
        source: what it is, for people: "Shopify's product taxonomy 2026-02".
        attributes: handle -> attribute.
        notes: what a reader of the result should know, a sentence each.
        doubts: what is to be said of some of the attributes -> their handles.
        comments: handle -> what stands above the attribute in the file.
    """

    source: str
    attributes: Mapping[str, Attribute]
    categories: Sequence[SourceCategory]
    notes: Sequence[str] = ()
    doubts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    comments: Mapping[str, str] = field(default_factory=dict)

    def finished(self) -> Imported:
        """What a schema can be made of: no category without attributes, no attribute without a category; all doubts
        are notes.

        Raises:
            UsageError: nothing is left.
        """
        by_id = {category.id: category for category in self.categories}
        kept = [category for category in self.categories if _has_attributes(category, by_id)]
        if not kept:
            raise UsageError(f"{self.source}: no category of it has an attribute")
        gone = [category.full_name for category in self.categories if not _has_attributes(category, by_id)]
        told = [f"{len(gone):,} categories without attributes are left out: {listed(gone)}"] if gone else []
        used = {handle for category in kept for handle in category.handles}
        attributes = {handle: attribute for handle, attribute in self.attributes.items() if handle in used}
        for doubt, handles in self.doubts.items():
            if found := [handle for handle in handles if handle in used]:
                told.append(f"{len(found):,} of {len(used):,} attributes {doubt}: {listed(found)}")
        return replace(self, attributes=attributes, categories=kept, notes=[*self.notes, *told], doubts={})


def each_once(imported: Imported) -> Imported:
    """The source without what several of its files say alike.

    Raises:
        UsageError: two different categories have one id.
    """
    found: dict[str, SourceCategory] = {}
    for category in imported.categories:
        if (earlier := found.setdefault(category.id, category)) != category:
            raise UsageError(
                f"{imported.source}: two categories have the id {category.id!r}, {earlier.full_name!r} with "
                f"{len(earlier.handles):,} attributes and {category.full_name!r} with {len(category.handles):,}; "
                "give each of them once"
            )
    return replace(imported, categories=list(found.values()))


def _has_attributes(category: SourceCategory, by_id: Mapping[str, SourceCategory]) -> bool:
    above = by_id.get(category.extends) if category.extends is not None else None
    return bool(category.handles) or (above is not None and _has_attributes(above, by_id))


def choose(imported: Imported, wanted: Sequence[str]) -> Imported:
    """The wanted categories with all below them; everything where none is named.

    Args:
        imported: the source.
        wanted: names, paths ("Luggage & Bags > Backpacks") or ids.

    Raises:
        UsageError: a name is of no category, or of several.
    """
    if not wanted:
        return imported
    roots = [_find(imported, name) for name in wanted]
    chosen = [each for each in imported.categories if any(_is_within(each, root) for root in roots)]
    kept = {category.id for category in chosen}
    by_id = {category.id: category for category in imported.categories}
    # What stays takes over what it had from a category that does not.
    chosen = [each if each.extends is None or each.extends in kept else _on_its_own(each, by_id) for each in chosen]
    return replace(imported, categories=chosen)


def _is_within(category: SourceCategory, root: SourceCategory) -> bool:
    # Of two that have one path, only one is meant.
    depth = len(root.path)
    return category.id == root.id or (len(category.path) > depth and category.path[:depth] == root.path)


def _on_its_own(category: SourceCategory, by_id: Mapping[str, SourceCategory]) -> SourceCategory:
    handles, above = category.handles, category.extends
    while above is not None:
        inherited = by_id[above]
        handles = (*(each for each in inherited.handles if each not in handles), *handles)
        above = inherited.extends
    return replace(category, handles=handles, extends=None)


def _find(imported: Imported, wanted: str) -> SourceCategory:
    categories = imported.categories
    folded = fold_name(wanted)
    ways: tuple[Callable[[SourceCategory], bool], ...] = (
        lambda each: wanted in (each.id, each.schema_id),
        lambda each: fold_name(each.full_name) == folded,
        lambda each: fold_name(each.name) == folded,
    )
    for is_meant in ways:
        found = [each for each in categories if is_meant(each)]
        if len(found) == 1:
            return found[0]
        if found:
            paths = list(dict.fromkeys(each.full_name for each in found))
            way, names = ("path", paths) if len(paths) == len(found) else ("id", [each.id for each in found])
            quoted = "', '".join(names[:_MAX_LISTED])
            raise UsageError(
                f"--category {wanted!r}: {len(found)} categories are called so, name one by its {way}: '{quoted}'"
            )
    hint = NearNames({each.name for each in categories} | {each.full_name for each in categories}).hint(wanted)
    raise UsageError(f"--category {wanted!r}: {imported.source} has no such category{'; ' if hint else ''}{hint}")


def named_member(
    label: str, id: str | None = None, *, synonyms: Iterable[str] = (), description: str | None = None
) -> Member:
    """A member under its label; without one under its id. What is empty is left out."""
    identity = id if id is not None and id.strip() else None
    return Member(
        label=label.strip() or one_line(identity) or NAMELESS,
        id=identity,
        synonyms=tuple(each for each in synonyms if each.strip()),
        description=description or None,
    )


def unique_members(members: Iterable[Member]) -> tuple[Member, ...]:
    """`members` with labels of their own: where two have one, the id stands behind it. Without a label: left out."""
    found: dict[tuple[str, str | None], Member] = {}
    for member in members:
        if member.label != NAMELESS:
            found.setdefault((member.label, member.id), member)
    labels = told_apart([(label, one_line(identity)) for label, identity in found], str.strip)
    return tuple(
        member if member.label == label else member.model_copy(update={"label": label})
        for member, label in zip(found.values(), labels, strict=True)
    )


def told_apart(named: Sequence[tuple[str, str]], fold: Callable[[str], str] = str) -> list[str]:
    """Names of which no two are alike: what several are called gets the identity behind it, and if need be a number.
    Where the identity says no more than the name, the first keeps it: "Color", "color (2)".

    Args:
        named: name and identity of each; "": it has none.
        fold: makes the same of names that are taken for alike.
    """
    counts = Counter(fold(name) for name, _ in named)
    taken = {folded for folded, count in counts.items() if count == 1}
    without = {fold(name) for name, identity in named if not identity}
    found = []
    for name, identity in named:
        if counts[fold(name)] > 1:
            # What has no identity has its name alone to be known by.
            more = identity if fold(identity) != fold(name) or fold(name) in without else ""
            name = next(way for way in _ways(name.strip(), more) if fold(way) not in taken)
            taken.add(fold(name))
        found.append(name)
    return found


def _ways(name: str, identity: str) -> Iterator[str]:
    yield f"{name} ({identity})" if identity else name
    yield from (f"{name} ({' '.join(filter(None, (identity, str(number))))})" for number in itertools.count(2))


def readable(handle: str) -> str:
    """A name for people from one for programs: "tag_fastening" is "Tag fastening"."""
    words = " ".join(handle.replace("_", " ").replace("-", " ").split())
    return words[:1].upper() + words[1:] or handle


def one_line(text: object) -> str:
    """A text of a source as a name or a description: without line breaks and what no file can hold, and not endless."""
    return " ".join(str(text).encode("utf-8", "replace").decode().split())[:_MAX_TEXT] if text is not None else ""


def listed(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - _MAX_LISTED:,} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more
