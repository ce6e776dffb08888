"""Schemas that a run asked for, and schemas that normalise its values: kept in its output folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hpd_core import CategorySchema
from pipelines.store.damaged import named_damage
from pipelines.store.folders import Folder

SCHEMAS_NAME = "_schemas.json"
NORMALISED_NAME = "_normalised_schemas.json"
"""Name of the file that exists only if a run was normalised by other schemas than it asked for."""


def store_schemas(folder: Folder, schemas: Mapping[str, CategorySchema]) -> None:
    """Store the schemas that a run asked for, for runs that carry its answers over."""
    folder.create(SCHEMAS_NAME, _content(schemas))


def store_normalised_schemas(folder: Folder, schemas: Mapping[str, CategorySchema]) -> None:
    """Store the schemas that normalise the run's values from now on; those it asked for are kept."""
    folder.write(NORMALISED_NAME, _content(schemas))


def read_asked_schemas(folder: Folder) -> dict[str, CategorySchema] | None:
    """Return the schemas that the run in the folder asked for; None if they are not stored."""
    return _read(folder, SCHEMAS_NAME)


def read_schemas(folder: Folder) -> dict[str, CategorySchema] | None:
    """Return the schemas that normalise the run's values now; None if they are not stored.

    They are those it asked for, unless it was normalised by edited ones.
    """
    edited = _read(folder, NORMALISED_NAME)
    return read_asked_schemas(folder) if edited is None else edited


def schemas_place(folder: Folder) -> str:
    """Return the file that `read_schemas` reads."""
    return folder.describe(NORMALISED_NAME if folder.exists(NORMALISED_NAME) else SCHEMAS_NAME)


def _read(folder: Folder, name: str) -> dict[str, CategorySchema] | None:
    with named_damage(folder, name):
        content = folder.read_json(name)
        if content is None:
            return None
        return {category: _schema(category, entry) for category, entry in content.items()}


def _content(schemas: Mapping[str, CategorySchema]) -> bytes:
    plain = {category: _plain(schema) for category, schema in schemas.items()}
    return json.dumps(plain, ensure_ascii=False).encode()


def _plain(schema: CategorySchema) -> Any:
    """Return the attributes; with the category's id and aliases, if it has any."""
    data = schema.model_dump(mode="json", exclude_defaults=True, exclude={"category"})
    return data if len(data) > 1 else data["attributes"]


def _schema(category: str, entry: Any) -> CategorySchema:
    data = {"attributes": entry} if isinstance(entry, list) else entry
    return CategorySchema.model_validate({"category": category, **data})
