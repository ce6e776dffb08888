"""Incremental text of an answer whose fields end in any order.

{"a": 1, "b": [{"c": 2}      a and the first object of b are known; whether b continues is known at the end
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from functools import partial
from itertools import count
from typing import Any

from hpd_core import FieldAnswer, JsonResult, SchemaLimits
from hpd_core.json_schema.answers import pointer
from hpd_core.json_schema.form import Constant, FormGroup, FormMember, Leaf, Node, Rows, Variants
from hpd_core.json_schema.questions import MISSING, is_there, nothing
from hpd_core.json_schema.schema_reader import read_schema
from hpd_core.text.value_kinds import spelled
from pipelines.serving.reply import json_text

Path = tuple[str | int, ...]
_THERE = object()


class _NotKnownYet(Exception):  # noqa: N818 - never a message
    """Raised if the text depends on a field that has not ended."""


class OrderedJson:
    """Incremental text of one answer: `add` returns the text that new fields add, `rest` the remainder."""

    def __init__(self, schema: Mapping[str, Any], limits: SchemaLimits) -> None:
        """Read the schema. Raises SchemaError."""
        self._answers: dict[str, FieldAnswer] = {}
        self._begun: set[str] = set()  # paths of objects and lists of which a field has ended
        self._written: list[str] = []
        self._pieces = self._whole(read_schema(schema, limits))

    def add(self, fields: Iterable[FieldAnswer]) -> str:
        """Add fields and return the newly known text, after what was returned before."""
        for field in fields:
            self._answers[field.path] = field
            above = field.path
            while above := above.rpartition("/")[0]:
                self._begun.add(above)
        new = "".join(iter(partial(next, self._pieces, None), None))
        self._written.append(new)
        return new

    def rest(self, result: JsonResult) -> str:
        """Return the text after what was returned before."""
        text, written = json_text(result), "".join(self._written)
        assert text.startswith(written), "an answer is not what its fields were"
        return text[len(written) :]

    # The text's pieces; None where the next one is not known yet. They go on from there.

    def _whole(self, form: Node) -> Iterator[str | None]:
        state = yield from self._known_state(FormMember(form, True), ())
        if state is _THERE:
            yield from self._value(form, ())
        else:
            yield spelled(None if state is MISSING else state)

    def _object(self, group: FormGroup, path: Path) -> Iterator[str | None]:
        yield "{"
        separator = ""
        for name, member in group.fields.items():
            state = yield from self._known_state(member, (*path, name))
            if state is MISSING:
                continue
            yield f"{separator}{spelled(name)}: "
            separator = ", "
            if state is _THERE:
                yield from self._value(member.node, (*path, name))
            else:
                yield spelled(state)
        yield "}"

    def _value(self, node: Node, path: Path) -> Iterator[str | None]:
        match node:
            case Constant():
                yield spelled(node.value)
            case Leaf():
                yield spelled(self._answer(path).value)
            case FormGroup():
                yield from self._object(node, path)
            case Rows():
                yield from self._list(node, path)
            case Variants():
                shape = spelled(self._answer((*path, node.name)).value)
                yield from self._object(node.shapes[shape], path)

    def _list(self, rows: Rows, path: Path) -> Iterator[str | None]:
        if pointer(path) in self._answers:
            yield "[]"
            return
        for number in count():
            while not self._has_begun((*path, number)):
                yield None  # for ever, if there are no more of them
            yield ", " if number else "["
            yield from self._object(rows.row, (*path, number))

    def _known_state(self, member: FormMember, path: Path) -> Generator[None, None, Any]:
        while True:
            try:
                return self._state(member, path)
            except _NotKnownYet:
                yield None

    # What is known now; `_NotKnownYet` where nothing is.

    def _state(self, member: FormMember, path: Path) -> Any:
        """Return `_THERE` for a present value or object, MISSING for a left-out one, else null or an empty list."""
        node = member.node
        match node:
            case Constant():
                return _THERE
            case FormGroup():
                if is_there(node, member.is_required) or self._has_value(node, path):
                    return _THERE
                return None if node.takes_null else MISSING
            case Rows() if self._has_begun((*path, 0)):
                return _THERE
            case Leaf() | Rows():
                answer = self._answer(path)
                return _THERE if answer.status == "value" else nothing(node, answer, member.is_required)
            case Variants():
                answer = self._answer((*path, node.name))
                return _THERE if answer.status == "value" else nothing(node, answer, member.is_required)

    def _has_value(self, group: FormGroup, path: Path) -> bool:
        """Return whether the model wrote any value of an object that may be missing."""
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
            case FormGroup():
                return self._has_value(node, path)
            case Rows():
                return self._has_begun((*path, 0)) or self._answer(path).status not in ("absent", "value")
            case Variants():
                return self._answer((*path, node.name)).status != "absent"

    def _has_begun(self, path: Path) -> bool:
        """Return whether any field of a list's object has ended, so that the object exists."""
        return pointer(path) in self._begun

    def _answer(self, path: Path) -> FieldAnswer:
        answer = self._answers.get(pointer(path))
        if answer is None:
            raise _NotKnownYet
        return answer
