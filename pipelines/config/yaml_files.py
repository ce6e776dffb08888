"""Strict reading of YAML and JSON: a key written twice is an error, and every error names file and line.

YAML output: any text is written on one line and reads back unchanged.

PyYAML breaks texts with line breaks over several lines. Such a text is not valid YAML as a key, and some line breaks
(U+0085) read back as others.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import yaml

from hpd_core.types import is_encodable
from pipelines.errors import UsageError
from pipelines.store.folders import open_filesystem

_PLAIN = "tag:yaml.org,2002:"
# A number of more digits is none of a configuration's; no float can hold it, and Python does not read all.
_MAX_DIGITS = 300
# Octal digits and sixties: people write ids, codes and times so, and hardly ever numbers.
_IN_ANOTHER_BASE = re.compile(r"[-+]?(0[0-7_]+|\d[\d_]*(:[\d.]+)+)")
# What a byte order mark says a file is in; a mark of UTF-8 is read over.
_PACKED = (
    *((b"\x1f\x8b", "gunzip"), (b"BZh", "bunzip2"), (b"\xfd7zXZ", "unxz"), (b"\x28\xb5\x2f\xfd", "unzstd")),
    *((b"\x04\x22\x4d\x18", "unlz4"), (b"PK\x03\x04", "unzip")),
)
_ENCODINGS = ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"))


class _StrictLoader(yaml.SafeLoader):
    """Loader that refuses duplicate keys, of which SafeLoader silently keeps the last.

    A scalar that cannot be converted ("2024-13-45" has no such month) also raises an error with its position.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: dict[Any, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == f"{_PLAIN}merge":
                continue
            key = self.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if not isinstance(key, (str, int, float, bool, type(None))):
                problem = "a key must be a plain word; put it in quotes"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is written twice (first in line {seen[key]})", key_node.start_mark
                )
            seen[key] = line
        return super().construct_mapping(node, deep=deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep=deep)
        except (ValueError, LookupError, AttributeError) as error:
            kind = node.tag.removeprefix(_PLAIN)
            problem = f"{str(node.value)[:40]!r} looks like a value of the type {kind!r} and is none; put it in quotes"
            if kind == "int" and len(node.value) > _MAX_DIGITS:
                problem = _too_large(node.value)
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error
        if isinstance(value, int) and value.bit_length() > _MAX_DIGITS * math.log2(10):
            raise yaml.constructor.ConstructorError(None, None, _too_large(node.value), node.start_mark)
        return value


class _ConfigLoader(_StrictLoader):
    """Loader that refuses numbers in another base; the schema reader reports them with their attribute."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        value = super().construct_object(node, deep=deep)
        if isinstance(value, int | float) and _IN_ANOTHER_BASE.fullmatch(node.value):
            problem = (
                f"YAML reads {node.value!r} as the number {value}; write a number without zeros in front and without "
                "colons, and a text in quotes"
            )
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return value


def _too_large(written: str) -> str:
    return (
        f"the number {written[:20]}... of {len(written):,} characters is too large; if it is a text, put it in quotes"
    )


def _as_text(loader: _StrictLoader, node: yaml.ScalarNode) -> Any:
    return loader.construct_scalar(node)


# A bare "=" or "<<" in a list is a text like any other.
for _tag in ("value", "merge"):
    _StrictLoader.add_constructor(f"{_PLAIN}{_tag}", _as_text)


def parse_yaml(text: str, name: str, *, is_config: bool = False) -> Any:
    """Parse the document in `text`. Raise `UsageError` naming `name` and the line on any syntax error.

    Args:
        is_config: whether numbers in another base are errors, too.
    """
    try:
        # Both are SafeLoaders: they build plain data only.
        return yaml.load(text, Loader=_ConfigLoader if is_config else _StrictLoader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        context = error.context
        if context and error.context_mark is not None and context.startswith("while"):
            context += f" from line {error.context_mark.line + 1} on"
        problem = ", ".join(part for part in (context, error.problem) if part)
        if "'\\t'" in problem:
            problem += "; YAML is indented with spaces, not with tabs"
        raise UsageError(f"{name}{line}: {problem}") from error
    except yaml.reader.ReaderError as error:
        number = text.count("\n", 0, error.position) + 1
        raise UsageError(f"{name}, line {number}: holds the control character U+{error.character:04X}") from error
    except RecursionError as error:
        raise UsageError(f"{name}: is nested too deeply") from error


def load_yaml(path: str) -> Any:
    """Load the configuration in the file at `path` (a local path or any fsspec URI). Raise `UsageError`."""
    return parse_document(read_text(path), path, is_config=True)


def is_json(path: str) -> bool:
    """Return whether the file at `path` is read as JSON, by its ending."""
    return path.lower().endswith(".json")


def parse_document(text: str, path: str, *, is_config: bool = False) -> Any:
    """Parse the text of the file at `path`: YAML, or JSON by the file's ending. Raise as `parse_yaml`."""
    if not is_json(path):
        return parse_yaml(text, path, is_config=is_config)

    def read_int(written: str) -> int:
        if len(written) > _MAX_DIGITS:
            line = text.count("\n", 0, text.index(written)) + 1
            raise UsageError(f"{path}, line {line}: {_too_large(written)}")
        return int(written)

    try:
        return json.loads(text, object_pairs_hook=_unique_keys, parse_int=read_int)
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}, line {error.lineno}: not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON: {error}") from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {key!r} is written twice")
        found[key] = value
    return found


def read_text(path: str) -> str:
    """Return the text of the file at `path` (a local path or any fsspec URI). Raise `UsageError`."""
    try:
        filesystem, inner = open_filesystem(path)
        data = filesystem.cat_file(inner)
        return str(data.decode("utf-8-sig"))
    except FileNotFoundError as error:
        raise UsageError(f"no such file: {path}") from error
    except IsADirectoryError as error:
        raise UsageError(f"{path} is a folder, a YAML file is needed") from error
    except UnicodeDecodeError as error:
        if command := next((command for mark, command in _PACKED if data.startswith(mark)), None):
            raise UsageError(f"{path} is packed: unpack it first ({command})") from error
        found = next((name for mark, name in _ENCODINGS if data.startswith(mark)), None)
        reason = f"it is {found}" if found else f"{error.reason} at byte {error.start}, line {_line(data, error.start)}"
        raise UsageError(f"{path} is not UTF-8 text: {reason}. Save it as UTF-8") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error}") from error


def _line(data: bytes, position: int) -> int:
    return data.count(b"\n", 0, position) + 1


class YamlPlaces:
    """Positions in a YAML text, for messages. The text is parsed only when a position is requested.

    A path goes from the outside in: the index of an item or of a mapping's entry, or an entry's key as text.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def line(self, *path: str | int) -> str:
        """Return the position as ", line 7", to follow the file's name; "" if it is unknown."""
        key, value = self.find(path)
        node = key or value
        return f", line {node.start_mark.line + 1}" if node is not None else ""

    def find(self, path: Sequence[str | int]) -> tuple[yaml.Node | None, yaml.Node | None]:
        """Return key and value there; the key of a list item is None."""
        key: yaml.Node | None = None
        node = self._root
        for step in path:
            if isinstance(node, yaml.MappingNode):
                entries = node.value if isinstance(step, str) else node.value[step : step + 1]
                key, node = next(
                    (pair for pair in entries if isinstance(step, int) or pair[0].value == step), (None, None)
                )
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
                key, node = None, node.value[step]
            else:
                return None, None
        return key, node

    @cached_property
    def _root(self) -> yaml.Node | None:
        try:
            return yaml.compose(self._text, Loader=yaml.SafeLoader)
        except yaml.YAMLError:
            # JSON that is indented with tabs is no YAML.
            return None


_BREAK = re.compile("[\n\r\x85\u2028\u2029]")
_NOT_IN_YAML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_MAX_PLAIN_KEY = 1000  # PyYAML reads none of more than 1,024 characters, as it is written


class _OneLineDumper(yaml.SafeDumper):
    """Dumper that writes texts with line breaks in double quotes, where they are escaped."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if _BREAK.search(text) else None)


_OneLineDumper.add_representer(str, _text)


def dump_yaml(data: Any, *, is_flow: bool | None = None) -> str:
    """Return the data as YAML, in its own order.

    Args:
        is_flow: True: all on one line; False: over lines; None: collections without lists and mappings on one line.
    """
    text: str = yaml.dump(
        data, Dumper=_OneLineDumper, sort_keys=False, allow_unicode=True, default_flow_style=is_flow, width=math.inf
    )
    return text.removesuffix("\n...\n").rstrip("\n")


def dump_flow(data: Any) -> str:
    """Return the data on one line, in a form that is also valid within a list."""
    return dump_yaml([data], is_flow=True)[1:-1]


def dump_key(text: str) -> str:
    """Return a key of any length with its colon; its value follows on the next lines."""
    written = dump_flow(text)
    return f"{written}:" if len(written) <= _MAX_PLAIN_KEY else f"? {written}\n:"


def comment_text(text: str) -> str:
    """Return a text for a comment: on one line, without characters that YAML forbids."""
    return " ".join(_NOT_IN_YAML.sub("\ufffd", text).split())


_MAX_SHOWN = 60


def is_key(text: str) -> bool:
    """Return whether YAML accepts it as a key, which may have at most 1,024 characters when written."""
    return bool(text) and is_encodable(text) and len(dump_flow(text)) <= _MAX_PLAIN_KEY


def shown(text: str) -> str:
    """Shorten a text of a catalog for a comment or a table: one line, cut if it is long."""
    line = comment_text(text)
    return line if len(line) <= _MAX_SHOWN else f"{line[: _MAX_SHOWN - 1]}…"


def listed(texts: Iterable[str], most: int) -> str:
    """Join the first `most` texts, and state the number of further ones."""
    texts = list(texts)
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return ", ".join(shown(text) for text in texts[:most]) + more
