"""YAML output: any text is written on one line and reads back unchanged.

PyYAML breaks texts with line breaks over several lines. Such a text is not valid YAML as a key, and some line breaks
(U+0085) read back as others.
"""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

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
