"""Plain data that knows nothing of the rest: members of enums, nested values, sections of a configuration.

A text means a member of an enum by its label or a synonym:

member      label "Black", synonyms "noir", "schwarz"
spelling    a label, or a synonym that is not a label and belongs to one member alone: "noir" is Black
folded      "NOIR" and " black" are Black, too, unless the folded text could mean two members

Values in nested objects, and their places: the keys that lead to them.

    {"brand": 1, "size": {"width": 2}}    is    ("brand",): 1, ("size", "width"): 2

The name of a place is its keys joined by dots, "size.width", as for fields of a JSON Schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_serializer, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError


class Frozen(BaseModel):
    """Base of the public data model: immutable, without silent conversions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy as pydantic does, without cached values that were computed from the original's fields."""
        copy = super().model_copy(update=update, deep=deep)
        for name in copy.__dict__.keys() - type(self).model_fields.keys():
            del copy.__dict__[name]
        return copy


def refuse_empty(text: str | None) -> str | None:
    """Raise ValueError for an empty label or id, which could not be told from a missing one; else return it."""
    if text is not None and not text.strip():
        raise ValueError("is empty; leave it out where there is none")
    return text


class Member(Frozen):
    """Value of an enum. A text alone is its label."""

    label: str = Field(description="what is shown to the model and answered")
    id: str | None = Field(default=None, description="its id in the system that the vocabulary is from")
    synonyms: tuple[str, ...] = Field(default=(), description="other ways that texts spell it")
    description: str | None = Field(default=None, description="what it means, for the model to read")

    _refuse_empty = field_validator("label", "id")(refuse_empty)

    @model_validator(mode="before")
    @classmethod
    def _accept_text(cls, data: Any) -> Any:
        return {"label": data} if isinstance(data, str) else with_tuples(data, "synonyms")

    @model_serializer
    def _plain(self) -> str | dict[str, Any]:
        # A schema that has labels alone is written, and hashed, as it was before there was more.
        data = {name: value for name, value in self if value not in (None, ())}
        return self.label if len(data) <= 1 else {"label": self.label, **data}

    def __hash__(self) -> int:
        # Schemas are keys: thousands of members are hashed each time.
        return hash(self.label)


class Vocabulary:
    """Members of an enum by their spellings; empty for an attribute that is not an enum.

    Attributes:
        labels: labels of all members, in order.
        spellings: each exact spelling, and the label that it means; labels take precedence over synonyms.
    """

    def __init__(self, members: Iterable[Member]) -> None:
        members = tuple(members)
        self.labels = tuple(member.label for member in members)
        self.spellings: Mapping[str, str] = _without_doubt(members, str)
        self._folded = _without_doubt(members, lambda text: text.strip().casefold())

    def label(self, text: str) -> str | None:
        """Return the label of the member that `text` means; None if there is none, or several.

        Fall back to `text` without white space at its ends, and then to ignoring case.
        """
        bare = text.strip()
        return self.spellings.get(text) or self.spellings.get(bare) or self._folded.get(bare.casefold())


def _without_doubt(members: Iterable[Member], fold: Callable[[str], str]) -> dict[str, str]:
    """Return labels by folded label, and by folded synonyms that are not labels; without texts of several members."""
    members = tuple(members)
    labels = _sole((fold(member.label), member.label) for member in members)
    synonyms = _sole((fold(text), member.label) for member in members for text in member.synonyms if text.strip())
    return {text: label for text, label in {**synonyms, **labels}.items() if label is not None}


def _sole(pairs: Iterable[tuple[str, str]]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for text, label in pairs:
        found[text] = label if found.get(text, label) == label else None
    return found


def with_tuples(data: Any, *names: str) -> Any:
    """Return `data` with tuples for lists. YAML and JSON have only lists, which strict mode refuses for a tuple."""
    if not isinstance(data, dict):
        return data
    return {**data, **{name: tuple(data[name]) for name in names if isinstance(data.get(name), list)}}


Place = tuple[str, ...]
MAX_DEPTH = 16
"""Maximum depth of nested objects in a catalog's schemas and labels."""


def dotted(place: Iterable[str]) -> str:
    """Return the name of a place: its keys joined by dots."""
    return ".".join(place)


def nested(values: Iterable[tuple[Sequence[str], Any]]) -> dict[str, Any]:
    """Return the values in nested objects, which are created in the order of first use.

    Raise `ValueError` if a place occurs twice, or is both a value and an object.
    """
    found: dict[str, Any] = {}
    objects: dict[Place, dict[str, Any]] = {(): found}
    for keys, value in values:
        place = tuple(keys)
        for outer in (place[:depth] for depth in range(1, len(place))):
            if outer not in objects:
                objects[outer] = {}
                _put(objects, outer, objects[outer])
        _put(objects, place, value)
    return found


def _put(objects: Mapping[Place, dict[str, Any]], place: Place, value: Any) -> None:
    holder = objects[place[:-1]]
    if place[-1] in holder:
        raise ValueError(f"{dotted(place)!r} stands twice")
    holder[place[-1]] = value


def flattened(tree: Mapping[str, Any], outer: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield the values of a tree with their places; every mapping in it is an object."""
    for key, value in tree.items():
        place = (*outer, key)
        if isinstance(value, Mapping):
            yield from flattened(value, place)
        else:
            yield place, value


def held_twice(places: Iterable[Place]) -> Iterator[tuple[Place, Place]]:
    """Yield each place that is both a value and an object, with a place within it."""
    known = dict.fromkeys(places)
    for place in known:
        for depth in range(1, len(place)):
            if place[:depth] in known:
                yield place[:depth], place


_SAID = {
    True: "true is no number (in YAML, yes and on are true, too): write a number",
    False: "false is no number (in YAML, no and off are false, too): write a number",
}


class Section(BaseModel):
    """Base of all sections."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_truth_for_number(cls, data: Any) -> Any:
        """Refuse true and false for numbers: pydantic would silently take true for 1."""
        # Check the whole section: pydantic allows no validator on the field by which it tells sections apart.
        if isinstance(data, Mapping) and (problems := list(_truths(cls, data))):
            raise ValidationError.from_exception_data(cls.__name__, problems)
        return data


def _truths(section: type[BaseModel], data: Mapping[Any, Any]) -> Iterator[InitErrorDetails]:
    """Yield an error for each number field that holds a bool, alone or in a list."""
    for name in _number_fields(section):
        value = data.get(name)
        found = [item for item in (value if isinstance(value, list | tuple) else [value]) if isinstance(item, bool)]
        if found:
            error = PydanticCustomError("no_number", _SAID[found[0]])
            yield InitErrorDetails(type=error, loc=(name,), input=value)


@cache
def _number_fields(section: type[BaseModel]) -> tuple[str, ...]:
    kinds = {name: _kinds(field.annotation) for name, field in section.model_fields.items()}
    return tuple(name for name, each in kinds.items() if bool not in each and each & {int, float})


def _kinds(annotation: Any) -> set[Any]:
    """Return the types of a value and of its items; types within a mapping are not included."""
    origin = get_origin(annotation)
    if origin is Literal or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return set()
    return {annotation}.union(*map(_kinds, get_args(annotation)))
