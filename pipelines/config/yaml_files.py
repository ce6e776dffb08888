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
_FLOAT = re.compile(r"[-+]?(?:\d*\.\d+|\d+\.\d*|\d+(?=[eE]))(?:[eE][-+]?\d+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
# What a byte order mark says a file is in; a mark of UTF-8 is read over.
_PACKED = (
    *((b"\x1f\x8b", "gunzip"), (b"BZh", "bunzip2"), (b"\xfd7zXZ", "unxz"), (b"\x28\xb5\x2f\xfd", "unzstd")),
    *((b"\x04\x22\x4d\x18", "unlz4"), (b"PK\x03\x04", "unzip")),
)
_ENCODINGS = ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"))


class _StrictLoader(yaml.SafeLoader):
    """Loader of YAML 1.2's plain scalars, to which no, on, 012, 1:30 and 2024-01-01 are texts.

    It refuses duplicate keys, of which SafeLoader silently keeps the last, and names the position of a scalar that
    cannot be converted.
    """

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - types-PyYAML declares it so

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
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error
        return value


for _tag, _pattern, _first in (
    ("null", re.compile("~|null|Null|NULL|"), ["~", "n", "N", ""]),
    ("bool", re.compile("true|True|TRUE|false|False|FALSE"), list("tTfF")),
    ("int", re.compile(r"[-+]?(?:0|[1-9]\d{0,299})"), list("-+0123456789")),
    ("float", _FLOAT, list("-+.0123456789")),
    ("merge", re.compile("<<"), ["<"]),
):
    _StrictLoader.add_implicit_resolver(f"{_PLAIN}{_tag}", re.compile(rf"(?:{_pattern.pattern})\Z"), _first)
# A bare "<<" in a list is a text like any other.
_StrictLoader.add_constructor(f"{_PLAIN}merge", lambda loader, node: str(node.value))


def parse_yaml(text: str, name: str) -> Any:
    """Parse the document in `text`. Raise `UsageError` naming `name` and the line on any syntax error."""
    try:
        return yaml.load(text, Loader=_StrictLoader)  # a SafeLoader: it builds plain data only
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
    return parse_document(read_text(path), path)


def is_json(path: str) -> bool:
    """Return whether the file at `path` is read as JSON, by its ending."""
    return path.lower().endswith(".json")


def parse_document(text: str, path: str) -> Any:
    """Parse the text of the file at `path`: YAML, or JSON by the file's ending. Raise as `parse_yaml`."""
    if not is_json(path):
        return parse_yaml(text, path)
    try:
        return json.loads(text, object_pairs_hook=_unique_keys)
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
        key, value = self._find(path)
        node = key or value
        return f", line {node.start_mark.line + 1}" if node is not None else ""

    def _find(self, path: Sequence[str | int]) -> tuple[yaml.Node | None, yaml.Node | None]:
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
_OneLineDumper.add_implicit_resolver(f"{_PLAIN}float", re.compile(rf"(?:{_FLOAT.pattern})\Z"), list("-+.0123456789"))


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


_MAX_KEY = 1000
_MAX_SHOWN = 60


def is_key(text: str) -> bool:
    """Return whether YAML accepts it as a key, which may have at most 1,024 characters when written."""
    return bool(text) and is_encodable(text) and len(dump_flow(text)) <= _MAX_KEY


def shown(text: str) -> str:
    """Shorten a text of a catalog for a comment or a table: one line, cut if it is long."""
    line = comment_text(text)
    return line if len(line) <= _MAX_SHOWN else f"{line[: _MAX_SHOWN - 1]}…"


def listed(texts: Iterable[str], most: int) -> str:
    """Join the first `most` texts, and state the number of further ones."""
    texts = list(texts)
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return ", ".join(shown(text) for text in texts[:most]) + more
