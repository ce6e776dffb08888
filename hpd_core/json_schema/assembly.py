"""From the answers of one document to its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpd_core.json_schema.answers import FieldAnswer
from hpd_core.json_schema.form import Constant, Group, Leaf, Node, Rows
from hpd_core.json_schema.questions import Path
from hpd_core.text.value_kinds import ListOf

MISSING = object()
"""In place of a value that is left out."""


class Assembly:
    """Puts the answers together."""

    def __init__(self, answers: Mapping[Path, FieldAnswer], lengths: Mapping[Path, int | None]) -> None:
        """`lengths`: of the lists of objects; None: there is none."""
        self._answers, self._lengths = answers, lengths

    def of(self, form: Group) -> Any:
        """All of it."""
        return self._fields(form, ())

    def _fields(self, group: Group, path: Path) -> dict[str, Any]:
        found = {}
        for name, member in group.fields.items():
            value = self._value(member.node, (*path, name))
            if value is MISSING and member.is_required:
                value = self._empty(member.node, (*path, name))
            if value is not MISSING:
                found[name] = value
        return found

    def _empty(self, node: Node, path: Path) -> Any:
        """What stands for nothing where something is required, in an object that is there."""
        if isinstance(node, Group):
            return self._fields(node, path)
        is_list = isinstance(node, Rows) or (isinstance(node, Leaf) and isinstance(node.kind, ListOf))
        return [] if is_list and self._answers[path].status == "absent" else MISSING

    def _value(self, node: Node, path: Path) -> Any:
        match node:
            case Constant():
                return node.value
            case Leaf():
                answer = self._answers[path]
                return answer.value if answer.status == "value" else _nothing(node, answer)
            case Group():
                return self._group(node, path)
            case Rows():
                return self._rows(node, path)

    def _group(self, group: Group, path: Path) -> Any:
        if group.can_miss and not self._has_value(group, path):
            return None if group.takes_null else MISSING
        return self._fields(group, path)

    def _rows(self, rows: Rows, path: Path) -> Any:
        length = self._lengths.get(path)
        if length is None:
            return _nothing(rows, self._answers[path])
        return [self._fields(rows.row, (*path, number)) for number in range(length)]

    def _has_value(self, node: Node, path: Path) -> bool:
        """Whether the model wrote any value of it."""
        match node:
            case Constant():
                return False
            case Leaf():
                return self._answers[path].status != "absent"
            case Group():
                return any(self._has_value(member.node, (*path, name)) for name, member in node.fields.items())
            case Rows():
                return bool(self._lengths.get(path)) or self._answers[path].status not in ("absent", "value")


def _nothing(node: Leaf | Rows, answer: FieldAnswer) -> Any:
    """Null where the schema has it, and the model said so; else it is left out."""
    return None if node.takes_null and answer.status == "absent" else MISSING
