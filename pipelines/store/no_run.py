"""Message for a place that holds no run: the same for every command that reads runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from hpd_core import CategorySchema
from pipelines.errors import UsageError
from pipelines.store.folders import Folder
from pipelines.store.ledger import PLAN_NAME, named_damage

_CONFIG_ENDINGS = (".yaml", ".yml", ".json")
_MAX_CONFIG_BYTES = 1 << 20
_MAX_LOOKED_INTO = 100  # folders
_MAX_NAMED = 3  # runs


def no_run(folder: Folder, key: str = "") -> UsageError:
    """Return why `folder` holds no run, and what to name instead. `key`: setting or option that named it."""
    return UsageError(f"{key}: {_told(folder)}" if key else _told(folder))


def _told(folder: Folder) -> str:
    said = f"there is no run in {folder.uri}"
    try:
        if folder.is_file():
            return f"{said}: it is a file, a folder is needed; {_instead_of_file(folder)}"
        if not folder.list(""):
            state = "the folder is empty" if folder.exists("") else "there is no such folder"
            return f"{said}: {state}; {_OUTPUT_FOLDER}"
        return f"{said} (it has no {PLAN_NAME}); {_instead_of_folder(folder)}"
    except NotADirectoryError:  # a part of the path is a file
        return f"{said}: there is no such folder; {_OUTPUT_FOLDER}"
    except OSError as error:
        return f"cannot read {folder.uri}: {error}"


_OUTPUT_FOLDER = "name the output folder of a run (`output` of its configuration)"


def _instead_of_file(folder: Folder) -> str:
    """Return what to name instead of a file: the run of a configuration, or the run that the file is part of."""
    if folder.uri.endswith(_CONFIG_ENDINGS):
        output = _output_of(folder)
        if output is not None:
            return f"the configuration's run is in {output}"
    return _nearest_above(folder) or _OUTPUT_FOLDER


def _output_of(folder: Folder) -> str | None:
    name = folder.uri.rsplit("/", 1)[-1]
    parent = _parent(folder)
    if parent is None:
        return None
    try:
        config: Any = yaml.safe_load(parent.read(name)[:_MAX_CONFIG_BYTES])
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return None
    output = config.get("output") if isinstance(config, dict) else None
    return output if isinstance(output, str) and output else None


def _instead_of_folder(folder: Folder) -> str:
    names = folder.list("")[:_MAX_LOOKED_INTO]
    runs = [name for name in names if folder.exists(f"{name}/{PLAN_NAME}")]
    if not runs:
        return _nearest_above(folder) or _OUTPUT_FOLDER
    more = f" and {len(runs) - _MAX_NAMED} more" if len(runs) > _MAX_NAMED else ""
    return f"there is one in {', '.join(map(folder.describe, runs[:_MAX_NAMED]))}{more}"


def _nearest_above(folder: Folder) -> str | None:
    """Return the run that `folder`, or the file that was named, is part of."""
    parent = _parent(folder)
    return f"the run is in {parent.uri}" if parent is not None and parent.exists(PLAN_NAME) else None


def _parent(folder: Folder) -> Folder | None:
    above, _, name = folder.uri.rpartition("/")
    if not name or name in (".", "..") or above.endswith((":", "/")):
        return None
    return Folder(above or ("/" if folder.uri.startswith("/") else "."))


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
