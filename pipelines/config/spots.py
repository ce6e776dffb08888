"""Places in a schema file, for messages with file, line, category and attribute, and for checks of the values."""

from __future__ import annotations

import datetime
import difflib
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from hpd_core.types import is_encodable
from pipelines.config.yaml_files import YamlPlaces, is_json
from pipelines.errors import UsageError

_MAX_KNOWN = 10


@dataclass(frozen=True, slots=True)
class Spot:
    """Place of an entry in a file. Its line is looked up only for a message.

    Attributes:
        file: name of the file in messages.
        places: line lookup of the file.
        path: keys and indices that lead to the place, as `YamlPlaces` takes them.
        label: name of the entry in messages: "category 'Bags', attribute 'Colour'"; empty for the whole file.
    """

    file: str
    places: YamlPlaces
    path: tuple[str | int, ...] = ()
    label: str = ""

    def at(self, *steps: str | int, label: str | None = None) -> Spot:
        """Return a place further in; without a `label` it keeps this one's."""
        return Spot(self.file, self.places, (*self.path, *steps), self.label if label is None else label)

    def error(self, problem: str) -> UsageError:
        """Return an error to raise: `problem`, with the place."""
        line = self.places.line(*self.path) if self.path else ""
        return UsageError(": ".join(part for part in (f"{self.file}{line}", self.label, problem) if part))

    def twice(self, name: str, first: Spot, second: Spot) -> UsageError:
        """Return an error to raise: an attribute of this name comes from two places."""
        lines = [place.places.line(*place.path).removeprefix(", ") for place in (first, second)]
        where = f", of {' and of '.join(lines)}" if all(lines) else ""
        return self.error(f"it has the attribute {name!r} twice{where}; take one away, or call it otherwise")

    def text(self, value: Any, what: str, *steps: str | int, is_key: bool = False) -> str:
        """Return `value` if it is a text; raise `UsageError` otherwise.

        YAML parses a bare yes, no, on, 3, 0.5, 1:30, 012 or 2024-01-01 as another type; JSON does not.

        Args:
            value: a value of the file, or a key (`is_key`).
            what: its name in messages.
            steps: keys and indices from here to the value.
        """
        if not isinstance(value, str):
            here = self.at(*steps)
            raise here.error(f"{what} {here._not_text(value, is_key)}; put it in quotes")
        if not is_encodable(value):
            raise self.at(*steps).error(f"{what} {value!r} holds half a surrogate pair, which is no text")
        return value

    def filled(
        self, value: Any, what: str, *steps: str | int, way_out: str = "leave it out where there is none"
    ) -> str:
        """Return `value` if it is a text that is not blank; raise `UsageError` otherwise."""
        text = self.text(value, what, *steps)
        if not text.strip():
            raise self.at(*steps).error(f"{what} {text!r} is empty; {way_out}")
        return text

    def texts(self, value: Any, what: str, each: str, *steps: str | int) -> tuple[str, ...]:
        """Return `value` as a tuple if it is a list of texts; () for null. `what`, `each`: their names in messages."""
        items = self.listed(value, what, *steps)
        return tuple(self.text(item, each, *steps, number) for number, item in enumerate(items))

    def listed(self, value: Any, what: str, *steps: str | int) -> list[Any]:
        """Return `value` if it is a list; [] for null. Raises `UsageError`."""
        if value is not None and not isinstance(value, list):
            raise self.at(*steps).error(f"{what} must be a list, not {kind_of(value)}")
        return value or []

    def refuse_unknown(self, mapping: Mapping[Any, Any], known: Iterable[str]) -> None:
        """Raise `UsageError` if `mapping` has a key that is not `known`."""
        known = list(known)
        for key in mapping:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
                raise self.error(f"unknown key {key!r}; {hint}")

    def unknown_name(self, what: str, name: str, known: Iterable[str], near: str) -> UsageError:
        """Return an error to raise: unknown name. `near`: hint at a similar one; if empty, known names are listed."""
        names = list(known)
        shown = ", ".join(names[:_MAX_KNOWN]) + (", ..." if len(names) > _MAX_KNOWN else "")
        return self.error(f"there is no {what} {name!r}; {near or f'known are: {shown}' if names else 'there is none'}")

    def _not_text(self, value: Any, is_key: bool) -> str:
        node = self.places.find(self.path)[0 if is_key else 1]
        shown = node.value or "an empty place" if isinstance(node, yaml.ScalarNode) else reprlib.repr(value)
        if is_json(self.file):
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return f"{shown} is {'a number' if is_number else kind_of(value)}, not a text"
        return f"{shown} is read by YAML as {kind_of(value)}, not as text"


def kind_of(value: Any) -> str:
    """Describe the type that YAML parsed a value as."""
    if isinstance(value, bool):
        return "a truth value"
    if isinstance(value, int | float):
        return f"the number {reprlib.repr(value)}"
    if isinstance(value, datetime.date | datetime.datetime):
        return "a date"
    names = {str: "a text", list: "a list", dict: "a mapping", type(None): "null", bytes: "bytes", set: "a set"}
    return names.get(type(value), type(value).__name__)


@dataclass(frozen=True, slots=True)
class Remark:
    """Remark on a category or, if `attribute` is set, on one attribute of it."""

    category: str
    attribute: str | None
    message: str

    def __str__(self) -> str:
        place = self.category if self.attribute is None else f"{self.category} > {self.attribute}"
        return f"{place}: {self.message}"
