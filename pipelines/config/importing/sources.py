"""Files of a source, parsed by format: JSON, JSON Lines, YAML, CSV or lines of text.

The file's ending does not matter if its content shows the format.
"""

from __future__ import annotations

import csv
import io
import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import yaml

from pipelines.config.yaml_files import read_text
from pipelines.errors import UsageError
from pipelines.store.folders import open_filesystem

_ENDINGS = (".json", ".jsonl", ".ndjson", ".yml", ".yaml", ".csv", ".tsv", ".txt")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_DELIMITERS = ";,\t|"
_MAX_FIELD = 2**30  # characters of a CSV cell: the options of an attribute may be many


@dataclass(frozen=True)
class Document:
    """File of a source. `name` is for messages."""

    name: str
    text: str

    @property
    def stem(self) -> str:
        """File name without its ending."""
        return posixpath.basename(self.name.replace("\\", "/")).split(".")[0]

    @cached_property
    def data(self) -> Any:
        """Parsed data: JSON, JSON Lines (a list), or YAML with every scalar as text; None for anything else.

        Halves of surrogate pairs, which no file can hold, are replaced. Raises `UsageError` for text that begins like
        JSON or is named as YAML, but does not parse.
        """
        start = self.text.lstrip()[:1]
        if start in ("{", "["):
            return _encodable(self._json()) if _SURROGATE.search(self.text) else self._json()
        if self.name.lower().endswith((".yml", ".yaml")) or self.text.startswith("---"):
            return self._yaml()
        return None

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """Rows of a CSV file, as mappings from the names in its first line; [] without a second column.

        Raises `UsageError` for a row with more cells than names, and for text that is not CSV.
        """
        head = self.text.split("\n", 1)[0]
        delimiter = max(_DELIMITERS, key=head.count)
        if not head.count(delimiter):
            return []
        # A quote that is not closed would make one cell of many rows.
        reader = csv.DictReader(io.StringIO(self.text, newline=""), delimiter=delimiter, strict=True)
        limit, rows = csv.field_size_limit(_MAX_FIELD), []
        try:
            for row in reader:
                if None in row:
                    raise UsageError(f"{self.name}, line {reader.line_num}: more cells than the first line has names")
                rows.append({key.strip(): (value or "").strip() for key, value in row.items()})
        except csv.Error as error:
            place = f"{self.name}, behind line {reader.line_num}"
            raise UsageError(f"{place}: not CSV: {error}; is a quote not closed?") from error
        finally:
            csv.field_size_limit(limit)
        return rows

    @cached_property
    def header(self) -> frozenset[str]:
        """Names in the first line of a CSV file; meaningless for any other text."""
        head = self.text.split("\n", 1)[0].strip()
        delimiter = max(_DELIMITERS, key=head.count)
        return frozenset(cell.strip().strip('"') for cell in head.split(delimiter))

    def _json(self) -> Any:
        try:
            return json.loads(self.text)
        except json.JSONDecodeError as whole:
            lines = [line for line in self.text.split("\n") if line.strip()]
            try:
                return [json.loads(line) for line in lines]
            except (ValueError, RecursionError):
                raise UsageError(f"{self.name}, line {whole.lineno}: not JSON: {whole.msg}") from whole
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{self.name}: not JSON: {error}") from error

    def _yaml(self) -> Any:
        # Every scalar stays what is written: 'no' and 012 are names here. In C where it is there: files have megabytes.
        loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
        try:
            return yaml.load(self.text, Loader=loader)
        except yaml.MarkedYAMLError as error:
            line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
            raise UsageError(f"{self.name}{line}: not YAML: {error.problem}") from error
        except (yaml.YAMLError, RecursionError) as error:
            raise UsageError(f"{self.name}: not YAML: {error}") from error


def read_sources(paths: Sequence[str]) -> list[Document]:
    """Read each file at `paths` once; in a folder, those with a data file's ending. Raises `UsageError`."""
    names = dict.fromkeys(name for path in paths for name in _files(path))
    return [Document(name, read_text(name)) for name in names]


def items_of(data: Any, *keys: str) -> list[Mapping[str, Any]]:
    """Return the objects of a list or of a REST page ("items", "_embedded": {"items": ...}), or the single object."""
    for key in ("_embedded", "items", *keys):
        if isinstance(data, Mapping) and isinstance(data.get(key), Mapping | list):
            data = data[key]
    found: list[Any] = data if isinstance(data, list) else [data]
    # Pages that were appended to one file, a line each.
    pages = [items_of(item, *keys) if _is_page(item) else [item] for item in found]
    return [item for page in pages for item in page if isinstance(item, Mapping)]


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(each) for key, each in value.items()}
    return [_encodable(each) for each in value] if isinstance(value, list) else value


def _is_page(item: Any) -> bool:
    return isinstance(item, Mapping) and ("_embedded" in item or isinstance(item.get("items"), list))


def _files(path: str) -> Iterator[str]:
    filesystem, inner = open_filesystem(path)
    try:
        if not filesystem.isdir(inner):
            yield path
            return
        found = sorted(each["name"] for each in filesystem.ls(inner, detail=True) if each["type"] == "file")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    names = [f"{path.rstrip('/')}/{posixpath.basename(each)}" for each in found if each.lower().endswith(_ENDINGS)]
    if not names:
        raise UsageError(f"{path}: no file in it ends with {', '.join(_ENDINGS)}")
    yield from names
