"""Result of reading a source: a tree of categories, their shared attributes, and notes for the user.

Every reader returns it, whatever its source; `schema_text.py` writes it.
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
"""Name for an entry whose name is empty in the source."""

_MAX_LISTED = 8
_MAX_TEXT = 500  # characters; YAML has no keys of more than 1,024


@dataclass(frozen=True, slots=True)
class SourceCategory:
    """Category as in its source.

    Attributes:
        id: unique key in the source.
        path: names from the root down to its own.
        handles: handles of its own attributes, in the order of the source.
        extends: id of a category whose attributes it inherits, if the source is written so.
        aliases: other names, besides its path.
        schema_id: id for the schema; None if the source has none.
        comments: handle -> comment above the attribute in this category.
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
        """Own name, which other categories may share."""
        return self.path[-1]

    @property
    def full_name(self) -> str:
        """Whole path as text."""
        return PATH_SIGN.join(self.path)


@dataclass(frozen=True, slots=True)
class Imported:
    """Contents read from a source.

    Attributes:
        source: description for people: "Shopify's product taxonomy 2026-02".
        attributes: handle -> attribute.
        notes: notes for the reader of the result, one sentence each.
        doubts: remark on some of the attributes -> their handles.
        comments: handle -> comment above the attribute in the file.
    """

    source: str
    attributes: Mapping[str, Attribute]
    categories: Sequence[SourceCategory]
    notes: Sequence[str] = ()
    doubts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    comments: Mapping[str, str] = field(default_factory=dict)

    def finished(self) -> Imported:
        """Drop categories without attributes and attributes without a category; turn all doubts into notes.

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
    """Drop categories that several files of the source repeat identically.

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
    """Return the wanted categories with all below them; everything if none is named.

    Args:
        imported: contents of the source.
        wanted: names, paths ("Luggage & Bags > Backpacks") or ids.

    Raises:
        UsageError: a name matches no category, or several.
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
    """Return a member with its label; if that is empty, its id. Empty synonyms and descriptions are dropped."""
    identity = id if id is not None and id.strip() else None
    return Member(
        label=label.strip() or one_line(identity) or NAMELESS,
        id=identity,
        synonyms=tuple(each for each in synonyms if each.strip()),
        description=description or None,
    )


def unique_members(members: Iterable[Member]) -> tuple[Member, ...]:
    """Make labels unique by appending the id to shared ones. Nameless members are dropped."""
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
    """Make names unique: append the identity to a shared name, and a number if necessary.

    If the identity says no more than the name, the first keeps it: "Color", "color (2)".

    Args:
        named: (name, identity) of each; "" if it has no identity.
        fold: function that maps names considered the same to one text.
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
    """Turn a handle into a readable name: "tag_fastening" is "Tag fastening"."""
    words = " ".join(handle.replace("_", " ").replace("-", " ").split())
    return words[:1].upper() + words[1:] or handle


def one_line(text: object) -> str:
    """Clean a text of a source: no line breaks, no unencodable characters, at most `_MAX_TEXT` characters."""
    return " ".join(str(text).encode("utf-8", "replace").decode().split())[:_MAX_TEXT] if text is not None else ""


def listed(names: Sequence[str]) -> str:
    """Join the first names, and state the number of further ones."""
    more = f" and {len(names) - _MAX_LISTED:,} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more
