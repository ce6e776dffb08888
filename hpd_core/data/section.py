"""Section of a configuration: unknown keys are refused, it is immutable, and true is not a number."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

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
        if isinstance(data, Mapping) and (problems := [_problem(name, data.get(name)) for name in _truths(cls, data)]):
            raise ValidationError.from_exception_data(cls.__name__, problems)
        return data


def _truths(section: type[BaseModel], data: Mapping[Any, Any]) -> list[str]:
    """Return the number fields that hold a bool, alone or in a list."""
    return [name for name in _number_fields(section) if any(isinstance(item, bool) for item in _items(data.get(name)))]


def _problem(name: str, value: Any) -> InitErrorDetails:
    found = next(item for item in _items(value) if isinstance(item, bool))
    return InitErrorDetails(type=PydanticCustomError("no_number", _SAID[found]), loc=(name,), input=value)


def _items(value: Any) -> list[Any] | tuple[Any, ...]:
    return value if isinstance(value, (list, tuple)) else (value,)


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
