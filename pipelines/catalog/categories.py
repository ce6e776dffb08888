"""Lookup of the schemas' category that a cell names: by name, id or alias, or as a path of a catalog's own tree.

On a path, the first stretch that is a category wins: `A > B > C`, `B > C`, `C`, `A > B`, `B`, `A`.
Case and surrounding spaces are ignored. A name shared by two categories matches neither.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hpd_core import CategorySchema
from pipelines.catalog.cells import cell_category
from pipelines.catalog.paths import value_at
from pipelines.config.catalog_input import InputConfig
from pipelines.config.mapping import PATH_SEPARATOR, Mapped

Key = tuple[str, ...]


class CategoryNames:
    """Lookup of categories by name, id, alias or path."""

    def __init__(self, schemas: Mapping[str, CategorySchema]) -> None:
        self._schemas = schemas
        self._others: dict[str, str | None] = {}
        self._paths: dict[Key, str | None] = {}
        for name, schema in schemas.items():
            for other in (*schema.aliases, *((schema.id,) if schema.id is not None else ())):
                _add(self._others, other, name)
            for path in (name, *schema.aliases):
                _add(self._paths, _folded(path.split(PATH_SEPARATOR)), name)

    def named(self, text: str) -> str | None:
        """Return the category with this name, id or alias; None if there is none."""
        return text if text in self._schemas else self._others.get(text)

    def on_path(self, parts: list[str]) -> str | None:
        """Return the category named by a stretch of a path, tried leaf first and longest first; else None."""
        key = _folded(parts)
        stretches = (key[start:end] for end in range(len(key), 0, -1) for start in range(end))
        return next((found for stretch in stretches if (found := self._paths.get(stretch))), None)

    def at_level(self, parts: list[str], level: int) -> str | None:
        """Return the category named by part `level` of a path, alone or with parts above it; else None."""
        key = _folded(parts)
        end = level if level > 0 else len(key) + level + 1
        if not 0 < end <= len(key):
            return None
        return next((found for start in range(end) if (found := self._paths.get(key[start:end]))), None)


def _add(names: dict[Any, str | None], key: Any, category: str) -> None:
    names[key] = category if names.setdefault(key, category) == category else None


def _folded(parts: list[str]) -> Key:
    return tuple(" ".join(part.split()).casefold() for part in parts if part.strip())


@dataclass(frozen=True, slots=True)
class _Same:
    """Schemas compared by identity: comparing thousands of them would take longer than reading the row."""

    schemas: Mapping[str, CategorySchema]

    def __hash__(self) -> int:
        return id(self.schemas)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.schemas is self.schemas


@functools.lru_cache(maxsize=4)
def _names(same: _Same) -> CategoryNames:
    return CategoryNames(same.schemas)


def find_category(row: Mapping[str, Any], config: InputConfig, schemas: Mapping[str, CategorySchema]) -> str:
    """Return the category of a row: one of the schemas', else the text in the row; "" if empty. Raise `CellError`."""
    mapped = config.category
    if mapped.is_path:
        names = _names(_Same(schemas))
        said = list(_paths(row, mapped))
        found = (_on_path(path, mapped, names) for path in said)
        return next((each for each in found if each is not None), said[0] if said else "")
    text = stated_category(row, config)
    return text if not text or text in schemas else _names(_Same(schemas)).named(text) or text


def stated_category(row: Mapping[str, Any], config: InputConfig) -> str:
    """Return the category as written in a row, "" if empty. Raise `CellError`."""
    mapped = config.category
    if mapped.is_path:
        return next(_paths(row, mapped), "")
    return cell_category(value_at(row, mapped.column)) if mapped.column is not None else mapped.text or ""


def _paths(row: Mapping[str, Any], mapped: Mapped) -> Iterator[str]:
    """Return the paths in a row's cell. A list is one path, unless some item holds the separator."""
    value = value_at(row, mapped.column or "")
    separator = mapped.separator or PATH_SEPARATOR
    items = [text for each in (value if isinstance(value, list) else [value]) if (text := cell_category(each).strip())]
    if isinstance(value, list) and not any(separator.strip() in item for item in items):
        items = [f" {separator.strip()} ".join(items)] if items else []
    return iter(items)


def _on_path(path: str, mapped: Mapped, names: CategoryNames) -> str | None:
    if (named := names.named(path)) is not None:
        return named
    separator = mapped.separator or PATH_SEPARATOR
    parts = path.split(separator.strip() or separator)
    return names.on_path(parts) if mapped.level is None else names.at_level(parts, mapped.level)
