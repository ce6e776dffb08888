"""The text of an answer as far as it is known, while its fields end in any order.

{"a": 1, "b": [{"c": 2}      a, and the first of b's objects, are there; whether b goes on is known when all is
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any

from hpd_core import FieldAnswer, JsonResult, SchemaLimits
from hpd_core.json_schema.answers import pointer
from hpd_core.json_schema.form import Constant, Group, Leaf, Node, Rows
from hpd_core.json_schema.schema_reader import read_schema
from pipelines.serving.field_facts import json_text

Path = tuple[str | int, ...]
_NULL, _MISSING, _THERE = "null", "missing", "there"


class _NotKnownYet(Exception):  # noqa: N818 - says where the text ends for now
    """What comes next depends on a field that has not ended."""


class OrderedJson:
    """Of one answer: each `add` gives what it adds to the text, `rest` gives what is left."""

    def __init__(self, schema: Mapping[str, Any], limits: SchemaLimits) -> None:
        """Raises SchemaError."""
        self._form = read_schema(schema, limits)
        self._answers: dict[str, FieldAnswer] = {}
        self._begun: set[str] = set()  # paths of objects and lists of which a field has ended
        self._written = ""

    def add(self, fields: Iterable[FieldAnswer]) -> str:
        """The text that is known by these fields, behind what was given before."""
        for field in fields:
            self._answers[field.path] = field
            above = field.path
            while above := above.rpartition("/")[0]:
                self._begun.add(above)
        return self._new("".join(self._known()))

    def rest(self, result: JsonResult) -> str:
        """The text behind what was given before."""
        return self._new(json_text(result))

    def _new(self, text: str) -> str:
        assert text.startswith(self._written), "an answer is not what its fields were"
        new, self._written = text[len(self._written) :], text
        return new

    def _known(self) -> Iterator[str]:
        try:
            yield from self._object(self._form, ())
        except _NotKnownYet:
            return

    def _object(self, group: Group, path: Path) -> Iterator[str]:
        yield "{"
        separator = ""
        for name, member in group.fields.items():
            state = self._state(member.node, (*path, name))
            if state == _MISSING:
                continue
            yield f"{separator}{_text(name)}: "
            separator = ", "
            if state == _NULL:
                yield "null"
            else:
                yield from self._value(member.node, (*path, name))
        yield "}"

    def _value(self, node: Node, path: Path) -> Iterator[str]:
        match node:
            case Constant():
                yield _text(node.value)
            case Leaf():
                yield _text(self._answer(path).value)
            case Group():
                yield from self._object(node, path)
            case Rows():
                yield from self._list(node, path)

    def _list(self, rows: Rows, path: Path) -> Iterator[str]:
        if pointer(path) in self._answers:
            yield "[]"
            return
        for number in count():
            if not self._has_begun((*path, number)):
                # There may be no more of them.
                raise _NotKnownYet
            yield ", " if number else "["
            yield from self._object(rows.row, (*path, number))

    def _state(self, node: Node, path: Path) -> str:
        """Whether a value stands there, null does, or nothing."""
        match node:
            case Constant():
                return _THERE
            case Leaf():
                return _state_of(node, self._answer(path))
            case Group():
                if not node.can_miss or self._has_value(node, path):
                    return _THERE
                return _NULL if node.takes_null else _MISSING
            case Rows():
                if self._has_begun((*path, 0)):
                    return _THERE
                return _state_of(node, self._answer(path))

    def _has_value(self, group: Group, path: Path) -> bool:
        """Whether the model wrote any value of an object that may miss."""
        unknown = False
        for name, member in group.fields.items():
            try:
                if self._is_written(member.node, (*path, name)):
                    return True
            except _NotKnownYet:
                unknown = True
        if unknown:
            raise _NotKnownYet
        return False

    def _is_written(self, node: Node, path: Path) -> bool:
        match node:
            case Constant():
                return False
            case Leaf():
                return self._answer(path).status != "absent"
            case Group():
                return self._has_value(node, path)
            case Rows():
                return self._has_begun((*path, 0)) or self._answer(path).status not in ("absent", "value")

    def _has_begun(self, path: Path) -> bool:
        """Whether any field of a list's object has ended, so that there is one."""
        return pointer(path) in self._begun

    def _answer(self, path: Path) -> FieldAnswer:
        answer = self._answers.get(pointer(path))
        if answer is None:
            raise _NotKnownYet
        return answer


def _state_of(node: Leaf | Rows, answer: FieldAnswer) -> str:
    if answer.status == "value":
        return _THERE
    return _NULL if node.takes_null and answer.status == "absent" else _MISSING


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
