"""Schema file from an import, to be edited and linted: a library of shared attributes, then categories."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpd_core import Attribute
from hpd_core.data.vocabulary import dotted
from hpd_core.text.near_names import fold_name
from pipelines.config.yaml_dumping import comment_text, dump_flow, dump_key, dump_yaml
from pipelines.schemas.importing.imported import Imported, SourceCategory, one_line, told_apart
from pipelines.schemas.nested_entries import as_written, bare

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
    order = (
        "name",
        "id",
        "description",
        "type",
        "unit",
        "plausible",
        "multiple",
        "verbatim",
        "shares_text_with",
        "max_value_tokens",
        "aliases",
        "values",
    )
    return {key: data[key] for key in order if key in data}


def _comment_of(handle: str, imported: Imported) -> list[str]:
    return _comment(imported.comments[handle]) if handle in imported.comments else []


def _comment(text: str) -> list[str]:
    line = comment_text(text)
    return [f"# {line if len(line) <= _MAX_COMMENT else f'{line[: _MAX_COMMENT - 1]}…'}"]


def _indented(texts: Sequence[str] | Iterator[str], spaces: int) -> list[str]:
    return [textwrap.indent(text, " " * spaces) for text in texts]
