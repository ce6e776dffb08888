"""Form of a schema: a tree whose leaves are values, for each of which a branch is decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from hpd_core.text.value_kinds import ValueKind

_DEFAULT_ROWS = 64


@dataclass(frozen=True, slots=True)
class Leaf:
    """Value to ask for: a scalar, or a list of scalars.

    Attributes:
        kind: null is allowed in it if the schema allows null, or if the field may be missing.
        note: description of it for the model.
        takes_null: whether null is a value by the schema.
        max_tokens: of its value.
    """

    kind: ValueKind
    note: str
    takes_null: bool
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Constant:
    """Value that the schema knows."""

    value: Any


@dataclass(frozen=True, slots=True)
class FormGroup:
    """Object. `can_miss`: it is left out, or null, if none of its fields has a value."""

    fields: Mapping[str, FormMember]
    note: str
    takes_null: bool
    can_miss: bool


@dataclass(frozen=True, slots=True)
class Rows:
    """List of objects.

    Attributes:
        row: form of each object.
        key: the field that tells them apart: the list of its values is asked for first, or, without one, their number.
        asked: that first question.
        most: number of rows that the schema allows; None if it does not say.
    """

    row: FormGroup
    key: str | None
    asked: Leaf
    note: str
    takes_null: bool
    most: int | None

    @property
    def num_asked(self) -> int:
        """Largest number of rows that are asked for."""
        return _DEFAULT_ROWS if self.most is None else self.most


@dataclass(frozen=True, slots=True)
class Variants:
    """Object of one of several shapes.

    Attributes:
        name: the field whose value says which one it is.
        asked: its question, which is asked first.
        shapes: by that value, as JSON writes it; values of one shape have the same `FormGroup`.
    """

    name: str
    asked: Leaf
    shapes: Mapping[str, FormGroup]
    takes_null: bool

    def values_of_each(self) -> list[tuple[FormGroup, list[str]]]:
        """Return each shape once, with the values that select it."""
        found: dict[int, tuple[FormGroup, list[str]]] = {}
        for value, shape in self.shapes.items():
            found.setdefault(id(shape), (shape, []))[1].append(value)
        return list(found.values())


Node: TypeAlias = Leaf | Constant | FormGroup | Rows | Variants


@dataclass(frozen=True, slots=True)
class FormMember:
    """Field of an object. `after`: its siblings whose values it sees, and waits for."""

    node: Node
    is_required: bool
    after: tuple[str, ...] = ()
