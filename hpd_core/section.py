"""A section of a configuration: unknown keys are refused, nothing changes it, and true is no number."""

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
    """What all sections have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_truth_for_number(cls, data: Any) -> Any:
        """Pydantic takes true for 1: who writes it means something else, and would never hear of it."""
        # Of the whole section: pydantic lets nothing look at the field by which it tells sections apart.
        if isinstance(data, Mapping) and (problems := [_problem(name, data.get(name)) for name in _truths(cls, data)]):
            raise ValidationError.from_exception_data(cls.__name__, problems)
        return data


def _truths(section: type[BaseModel], data: Mapping[Any, Any]) -> list[str]:
    """The fields that want numbers and hold a truth value, alone or in a list."""
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
    """The types that a value, or an item of it, may have; those within a mapping are its own."""
    origin = get_origin(annotation)
    if origin is Literal or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return set()
    return {annotation}.union(*map(_kinds, get_args(annotation)))
