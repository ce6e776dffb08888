"""Assembly of the answers of one document to its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpd_core.json_schema.answers import FieldAnswer
from hpd_core.json_schema.form import Constant, FormGroup, Leaf, Node, Rows, Variants
from hpd_core.json_schema.questions import Path
from hpd_core.text.value_kinds import ListOf, spelled

MISSING = object()
"""Marker of a value that is left out."""


class Assembly:
    """Assembly of one document's answers."""

    def __init__(self, answers: Mapping[Path, FieldAnswer], lengths: Mapping[Path, int | None]) -> None:
        """Take the answers, and the `lengths` of the lists of objects; None if there is no list."""
        self._answers, self._lengths = answers, lengths

    def of(self, form: FormGroup) -> Any:
        """Return the whole object."""
        return self._fields(form, ())

    def _fields(self, group: FormGroup, path: Path) -> dict[str, Any]:
        found = {}
        for name, member in group.fields.items():
            value = self._value(member.node, (*path, name), member.is_required)
            if value is not MISSING:
                found[name] = value
        return found

    def _value(self, node: Node, path: Path, is_required: bool) -> Any:
        match node:
            case Constant():
                return node.value
            case Leaf():
                answer = self._answers[path]
                return answer.value if answer.status == "value" else nothing(node, answer, is_required)
            case FormGroup():
                if is_there(node, is_required) or self._has_value(node, path):
                    return self._fields(node, path)
                return None if node.takes_null else MISSING
            case Rows():
                return self._rows(node, path, is_required)
            case Variants():
                answer = self._answers[(*path, node.name)]
                shape = node.shapes.get(spelled(answer.value))
                return nothing(node, answer, is_required) if shape is None else self._fields(shape, path)

    def _rows(self, rows: Rows, path: Path, is_required: bool) -> Any:
        length = self._lengths.get(path)
        if length is None:
            return nothing(rows, self._answers[path], is_required)
        return [self._fields(rows.row, (*path, number)) for number in range(length)]

    def _has_value(self, node: Node, path: Path) -> bool:
        """Return whether the model wrote any value of it."""
        match node:
            case Constant():
                return False
            case Leaf():
                return self._answers[path].status != "absent"
            case FormGroup():
                return any(self._has_value(member.node, (*path, name)) for name, member in node.fields.items())
            case Rows():
                return bool(self._lengths.get(path)) or self._answers[path].status not in ("absent", "value")
            case Variants():
                return self._answers[(*path, node.name)].status != "absent"


def is_there(group: FormGroup, is_required: bool) -> bool:
    """Return whether an object is written even if the model wrote no value of it."""
    return not group.can_miss or (is_required and not group.takes_null)


def nothing(node: Leaf | Rows | Variants, answer: FieldAnswer, is_required: bool) -> Any:
    """Return the JSON for a missing value. If the model wrote null, it is null if the schema allows it, else an empty
    list if one is required. Otherwise it is MISSING.
    """
    if answer.status != "absent":
        return MISSING
    if node.takes_null:
        return None
    is_list = isinstance(node, Rows) or (isinstance(node, Leaf) and isinstance(node.kind, ListOf))
    return [] if is_list and is_required else MISSING
