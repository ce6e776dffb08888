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
from hpd_core.json_schema.questions import MISSING, THERE, Assembly, NotKnownYet, Path
from hpd_core.json_schema.schema_reader import read_schema
from hpd_core.text.value_kinds import spelled


class OrderedJson(Assembly):
    """Incremental text of one answer: `add` returns the text that new fields add, `rest` the remainder."""

    def __init__(self, schema: Mapping[str, Any], limits: SchemaLimits) -> None:
        """Read the schema. Raises SchemaError."""
        self._ended: dict[str, FieldAnswer] = {}
        self._begun: set[str] = set()  # paths of objects and lists of which a field has ended
        self._written: list[str] = []
        self._pieces = self._whole(read_schema(schema, limits))

    def add(self, fields: Iterable[FieldAnswer]) -> str:
        """Add fields and return the newly known text, after what was returned before."""
        for field in fields:
            self._ended[field.path] = field
            above = field.path
            while above := above.rpartition("/")[0]:
                self._begun.add(above)
        new = "".join(iter(partial(next, self._pieces, None), None))
        self._written.append(new)
        return new

    def rest(self, result: JsonResult) -> str:
        """Return the text after what was returned before."""
        text, written = spelled(result.data), "".join(self._written)
        assert text.startswith(written), "an answer is not what its fields were"
        return text[len(written) :]

    # The text's pieces; None where the next one is not known yet. They go on from there.

    def _whole(self, form: Node) -> Iterator[str | None]:
        state = yield from self._known_state(FormMember(form, True), ())
        if state is THERE:
            yield from self._pieces_of(form, ())
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
            if state is THERE:
                yield from self._pieces_of(member.node, (*path, name))
            else:
                yield spelled(state)
        yield "}"

    def _pieces_of(self, node: Node, path: Path) -> Iterator[str | None]:
        match node:
            case Constant():
                yield spelled(node.value)
            case Leaf():
                yield spelled(self.answer(path).value)
            case FormGroup():
                yield from self._object(node, path)
            case Rows():
                yield from self._list(node, path)
            case Variants():
                shape = spelled(self.answer((*path, node.name)).value)
                yield from self._object(node.shapes[shape], path)

    def _list(self, rows: Rows, path: Path) -> Iterator[str | None]:
        if pointer(path) in self._ended:
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
                return self.state(member.node, path, member.is_required)
            except NotKnownYet:
                yield None

    def has_rows(self, path: Path) -> bool:
        """Return whether any field of a list's first object has ended."""
        return self._has_begun((*path, 0))

    def _has_begun(self, path: Path) -> bool:
        """Return whether any field of a list's object has ended, so that the object exists."""
        return pointer(path) in self._begun

    def answer(self, path: Path) -> FieldAnswer:
        """Return the answer to a question. Raise NotKnownYet."""
        if (answer := self._ended.get(pointer(path))) is None:
            raise NotKnownYet
        return answer
