"""What a run asked for: its schemas, kept in its output folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from hpd_core import CategorySchema
from pipelines.errors import UsageError
from pipelines.store.folders import Folder

SCHEMAS_NAME = "_schemas.json"


def store_schemas(folder: Folder, schemas: Mapping[str, CategorySchema]) -> None:
    """Keeps what a run asked for, for those who take its answers over."""
    content = {category: _plain(schema) for category, schema in schemas.items()}
    folder.create(SCHEMAS_NAME, json.dumps(content, ensure_ascii=False).encode())


def read_schemas(folder: Folder) -> dict[str, CategorySchema] | None:
    """What the run in the folder asked for; None if it does not say."""
    content = folder.read_json(SCHEMAS_NAME)
    if content is None:
        return None
    try:
        return {category: _schema(category, entry) for category, entry in content.items()}
    except ValidationError as error:
        raise UsageError(f"{folder.describe(SCHEMAS_NAME)} is of another version of this project: {error}") from error


def _plain(schema: CategorySchema) -> Any:
    """The attributes; with the category's id and other names, where it has some."""
    data = schema.model_dump(mode="json", exclude_defaults=True, exclude={"category"})
    return data if len(data) > 1 else data["attributes"]


def _schema(category: str, entry: Any) -> CategorySchema:
    data = {"attributes": entry} if isinstance(entry, list) else entry
    return CategorySchema.model_validate({"category": category, **data})
