"""What a run asked for: its schemas, kept in its output folder."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import ValidationError

from hpd_core import Attribute, CategorySchema
from pipelines.errors import UsageError
from pipelines.store.folders import Folder

SCHEMAS_NAME = "_schemas.json"


def store_schemas(folder: Folder, schemas: Mapping[str, CategorySchema]) -> None:
    """Keeps what a run asked for, for those who take its answers over."""
    content = {
        category: [attribute.model_dump(mode="json", exclude_defaults=True) for attribute in schema.attributes]
        for category, schema in schemas.items()
    }
    folder.create(SCHEMAS_NAME, json.dumps(content, ensure_ascii=False).encode())


def read_schemas(folder: Folder) -> dict[str, CategorySchema] | None:
    """What the run in the folder asked for; None if it does not say."""
    content = folder.read_json(SCHEMAS_NAME)
    if content is None:
        return None
    try:
        return {
            category: CategorySchema(
                category=category, attributes=tuple(Attribute.model_validate(each) for each in attributes)
            )
            for category, attributes in content.items()
        }
    except ValidationError as error:
        raise UsageError(f"{folder.describe(SCHEMAS_NAME)} is of another version of this project: {error}") from error
