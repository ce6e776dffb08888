"""Reading YAML strictly: a key written twice is an error, and every error names file and line."""

from __future__ import annotations

from typing import Any

import yaml

from pipelines.errors import UsageError
from pipelines.store.folders import open_filesystem


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader keeps the last of two equal keys without a word; this one refuses."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: dict[Any, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if not isinstance(key, (str, int, float, bool, type(None))):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a plain word", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is written twice (first in line {seen[key]})", key_node.start_mark
                )
            seen[key] = line
        return super().construct_mapping(node, deep=deep)


def parse_yaml(text: str, name: str) -> Any:
    """The document in `text`. Raises `UsageError` naming `name` and the line on any syntax error."""
    try:
        # _StrictLoader is a SafeLoader: it builds plain data only.
        return yaml.load(text, Loader=_StrictLoader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UsageError(f"{name}{line}: {error.problem}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{name}: {error}") from error


def load_yaml(path: str) -> Any:
    """The document in the file at `path` (a local path or any fsspec URI)."""
    try:
        filesystem, inner = open_filesystem(path)
        text = filesystem.cat_file(inner).decode("utf-8")
    except FileNotFoundError as error:
        raise UsageError(f"no such file: {path}") from error
    except IsADirectoryError as error:
        raise UsageError(f"{path} is a folder, a YAML file is needed") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    return parse_yaml(text, path)
