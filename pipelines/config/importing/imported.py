"""Result of reading a source: a tree of categories, their shared attributes, and notes for the user.

Every reader returns it, whatever its source; it is written as YAML here.
"""

from __future__ import annotations

import itertools
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hpd_core import Attribute, Member
from hpd_core.plain_data import dotted
from hpd_core.text.near_names import NearNames, fold_name
from pipelines.config.nested_entries import as_written, bare
from pipelines.config.yaml_files import comment_text, dump_flow, dump_key, dump_yaml
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


def called_alike(category: str, attributes: Iterable[Attribute], of: str) -> Iterator[str]:
    """Yield a text for attributes of one category whose names differ only in capitals, spaces and signs."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for attribute in attributes:
        groups[fold_name(attribute.name)].append(attribute.name)
    yield from (f"{' and '.join(map(repr, names))} {of} {category!r}" for names in groups.values() if len(names) > 1)


def listed(names: Sequence[str]) -> str:
    """Join the first names, and state the number of further ones."""
    more = f" and {len(names) - _MAX_LISTED:,} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more


_MAX_COMMENT = 300
_MAX_KEY = 400


def schema_text(imported: Imported, place: str) -> str:
    """Return the text of the schema file. `place`: path that it will be written to."""
    names = category_names(imported.categories)
    paths = Counter(category.full_name for category in imported.categories)
    uses = Counter(handle for category in imported.categories for handle in category.handles)
    shared = [
        handle
        for handle, each in imported.attributes.items()
        if uses[handle] > 1 and len(_plain(each)) > 1 and not each.path
    ]
    lines = [
        *_comment(
            f"From {imported.source}: {len(names):,} categories, {len(uses):,} attributes. Strike out, describe,"
        ),
        *_comment(f"add; then check it with:  hpd schema lint {place}"),
        *(line for note in imported.notes for line in _comment(f"- {note}")),
    ]
    if shared:
        lines.append("attributes:")
        for handle in shared:
            lines += _indented(_comment_of(handle, imported), 2)
            lines += _indented([dump_yaml({handle: _plain(imported.attributes[handle])})], 2)
    lines.append("categories:")
    for category in imported.categories:
        lines += _indented(_category_lines(category, imported, names, paths, frozenset(shared)), 2)
    return "\n".join(lines) + "\n"


def category_names(categories: Sequence[SourceCategory]) -> dict[str, str]:
    """Return id -> name of each category: its own name, or its whole path if another has the same name."""
    counts = Counter(fold_name(category.name) for category in categories)
    named = [each.name if counts[fold_name(each.name)] == 1 else each.full_name for each in categories]
    # Where a source calls two by one path, or a path is too long for a key, the id tells them apart.
    identities = [each.id[:_MAX_KEY] for each in categories]
    names = told_apart(list(zip((name[:_MAX_KEY] for name in named), identities, strict=True)), fold_name)
    return {each.id: name for each, name in zip(categories, names, strict=True)}


def _category_lines(
    category: SourceCategory,
    imported: Imported,
    names: Mapping[str, str],
    paths: Mapping[str, int],
    shared: frozenset[str],
) -> Iterator[str]:
    name = names[category.id]
    head: dict[str, Any] = {}
    if category.extends is not None:
        head["extends"] = names[category.extends]
    if category.schema_id is not None:
        head["id"] = category.schema_id
    # A path that several categories share is not an alias of any.
    own_path = [category.full_name] if paths[category.full_name] == 1 else []
    if aliases := [each for each in dict.fromkeys([*own_path, *category.aliases]) if each != name]:
        head["aliases"] = aliases
    yield dump_key(name)
    for key, value in head.items():
        yield f"  {key}: {dump_flow(value) if isinstance(value, list) else dump_yaml(value)}"
    if not category.handles:
        return
    if head:
        yield "  attributes:"
    entries: defaultdict[tuple[str, ...], list[tuple[str, str]]] = defaultdict(list)
    for named in _own_names(category, imported):
        entries[_entry_of(named, imported)].append(named)
    for inside in entries.values():
        yield from _indented(_attribute_lines(inside, category, imported, shared), 4 if head else 2)


def _entry_of(named: tuple[str, str], imported: Imported) -> tuple[str, ...]:
    """Return the key of the file's entry for this attribute; attributes of one object share it."""
    handle, _ = named
    return imported.attributes[handle].path[:1] or named


def _attribute_lines(
    inside: Sequence[tuple[str, str]], category: SourceCategory, imported: Imported, shared: frozenset[str]
) -> Iterator[str]:
    """Yield the lines of one entry of the file, after its comments."""
    attributes = []
    for handle, own_name in inside:
        attribute = imported.attributes[handle]
        if handle in category.comments:
            yield from _comment(category.comments[handle])
        if handle in shared:
            yield f"- {dump_flow({'use': handle, **_renamed(attribute, own_name)})}"
            return
        yield from _comment_of(handle, imported)
        attributes.append(attribute.model_copy(update=_renamed(attribute, own_name)))
    yield dump_yaml(as_written(attributes, lambda each: _plain(bare(each))))


def _own_names(category: SourceCategory, imported: Imported) -> Iterator[tuple[str, str]]:
    """Yield handle and name of each own attribute, with names made unique within the category."""
    handles = list(dict.fromkeys(_all_handles(category, imported)))
    names = told_apart([(imported.attributes[handle].name, one_line(handle)) for handle in handles], fold_name)
    own = frozenset(category.handles)
    yield from ((handle, name) for handle, name in zip(handles, names, strict=True) if handle in own)


def _renamed(attribute: Attribute, own_name: str) -> dict[str, Any]:
    """Return the changes for an attribute renamed in a category; its name in the source is kept as the id."""
    if own_name == attribute.name:
        return {}
    known = {} if attribute.id is not None else {"id": attribute.name}
    *outer, _ = attribute.path or (attribute.name,)
    # The distinguishing suffix comes after its name.
    path = {"path": (*outer, own_name.removeprefix(dotted([*outer, ""])))} if outer else {}
    return {"name": own_name, **path, **known}


def _all_handles(category: SourceCategory, imported: Imported) -> list[str]:
    if category.extends is None:
        return list(category.handles)
    above = next(each for each in imported.categories if each.id == category.extends)
    return [*_all_handles(above, imported), *category.handles]


def _plain(attribute: Attribute) -> dict[str, Any]:
    """Return the attribute as YAML data, without defaults."""
    data = attribute.model_dump(mode="json", exclude_defaults=True)
    return dict(sorted(data.items(), key=lambda each: each[0] == "values"))  # a long list is last


def _comment_of(handle: str, imported: Imported) -> list[str]:
    return _comment(imported.comments[handle]) if handle in imported.comments else []


def _comment(text: str) -> list[str]:
    line = comment_text(text)
    return [f"# {line if len(line) <= _MAX_COMMENT else f'{line[: _MAX_COMMENT - 1]}…'}"]


def _indented(texts: Sequence[str] | Iterator[str], spaces: int) -> list[str]:
    return [textwrap.indent(text, " " * spaces) for text in texts]
