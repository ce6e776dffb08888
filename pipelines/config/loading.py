"""Loading of a YAML file and `--set key=value` into a checked configuration, with messages that say what to do."""

from __future__ import annotations

import datetime
import difflib
import types
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, Field, SerializerFunctionWrapHandler, ValidationError, model_serializer, model_validator

from hpd_core.plain_data import Section
from pipelines.config.yaml_files import load_yaml, parse_yaml
from pipelines.errors import UsageError

Config = TypeVar("Config", bound=BaseModel)

_WANTED = {
    "string_type": "a text is needed",
    "tuple_type": "a list is needed",
    "dict_type": "a mapping of keys is needed",
    "model_type": "a mapping of keys is needed",
    "model_attributes_type": "a mapping of keys is needed",
    "too_short": "at least one is needed",
}
"""Wording for pydantic's messages that use Python's terms (tuple, dictionary, instance of), in YAML's terms."""


def load_config(model: type[Config], path: str, overrides: Sequence[str] = ()) -> Config:
    """Load the `model` from the YAML file at `path`, changed by `overrides` (`key=value`, dotted keys, YAML values).

    Raise `UsageError` on anything that is not exactly such a configuration.
    """
    document = load_yaml(path)
    if document is None:
        raise UsageError(f"{path} is empty")
    if not isinstance(document, dict):
        raise UsageError(f"{path}: a mapping of keys is needed, not a {type(document).__name__}")
    for override in overrides:
        apply_override(document, override)
    return parse_config(model, document, path)


def parse_config(model: type[Config], document: dict[str, Any], name: str) -> Config:
    """Validate plain data; `name` stands for the file in messages. Raise `UsageError`."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        reasons: dict[tuple[str, str], list[str]] = {}
        for problem in error.errors():
            place, reason, value = _describe(problem, model)
            reasons.setdefault((place, value), []).append(reason)
        # Where a key may hold several kinds of value, each says why it is not that one.
        lines = "\n".join(
            f"  {place}{', or '.join([first, *(each.removeprefix('Input should be ') for each in others)])}{value}"
            for (place, value), (first, *others) in reasons.items()
        )
        raise UsageError(f"{name} is not a valid configuration:\n{lines}") from error


def apply_override(document: dict[str, Any], override: str, option: str = "--set") -> None:
    """Change a document as `key=value` says, with dotted keys and YAML values; `option` is used in messages.

    Raise `UsageError`.
    """
    key, separator, text = override.partition("=")
    if not separator or not key.strip():
        raise UsageError(f"{option} {override!r}: write it as key=value, such as model=name")
    *parents, leaf = key.strip().split(".")
    target = document
    for index, parent in enumerate(parents):
        child = target.setdefault(parent, {})
        if child is None:
            child = target[parent] = {}
        if not isinstance(child, dict):
            place = ".".join(parents[: index + 1])
            raise UsageError(f"{option} {override!r}: {place!r} is not a mapping in the configuration file")
        target = child
    target[leaf] = parse_yaml(text, f"{option} {override!r}", is_config=True)


def _describe(problem: Any, model: type[BaseModel]) -> tuple[str, str, str]:
    """Return the key with its separator, what is wrong with it, and its value, for a message."""
    location, section = _locate(problem["loc"], model)
    key = ".".join(location) or "configuration"
    if problem["type"] == "extra_forbidden":
        return f"unknown key {key!r}; ", _hint(location, section, model), ""
    if problem["type"] == "missing":
        return f"{key!r} ", "is missing", ""
    message = _WANTED.get(problem["type"]) or str(problem["msg"]).removeprefix("Value error, ")
    value = problem["input"]
    if problem["type"] == "string_type" and isinstance(value, (int, float, datetime.date)):
        message += ": put it in quotes"  # YAML makes numbers, truth values and dates of words that look so
    shown = f" (got {value!r})" if isinstance(value, (str, int, float, bool, type(None))) else ""
    return f"{key!r}: ", message, shown


def _locate(parts: Sequence[int | str], model: type[BaseModel]) -> tuple[list[str], type[BaseModel] | None]:
    """Return the keys as the file has them, and the section that holds the last one.

    Leave out what pydantic adds: the `kind` it tried for alternative sections, the type for alternative plain values.
    """
    location: list[str] = []
    sections, holder = [model], None
    is_alternative = False
    for part in parts:
        if is_alternative:
            is_alternative = False
            continue
        if len(sections) > 1:
            sections = [section for section in sections if part in get_args(section.model_fields["kind"].annotation)]
            continue
        location.append(str(part))
        holder = sections[0] if sections else None
        field = holder.model_fields.get(str(part)) if holder is not None else None
        sections = _sections(field.annotation) if field is not None else []
        is_alternative = field is not None and not sections and _has_alternatives(field.annotation)
    return location, holder


def _has_alternatives(annotation: Any) -> bool:
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    return get_origin(annotation) in (Union, types.UnionType) and len(kinds) > 1


def _hint(location: list[str], section: type[BaseModel] | None, model: type[BaseModel]) -> str:
    *parents, leaf = location
    siblings = list(section.model_fields) if section is not None else []
    if near := difflib.get_close_matches(leaf, siblings, n=1):
        return f"did you mean {'.'.join([*parents, near[0]])!r}?"
    elsewhere = [key for key in known_keys(model) if key.rsplit(".", 1)[-1] == leaf]
    if ".".join(location) in elsewhere:
        return f"it belongs to another {'.'.join([*parents, 'kind'])!r}"
    if elsewhere:
        return f"did you mean {elsewhere[0]!r}?"
    return f"known keys here: {', '.join(siblings)}"


def known_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield every dotted key of the configuration."""
    for name, field in model.model_fields.items():
        yield prefix + name
        for section in _sections(field.annotation):
            yield from known_keys(section, f"{prefix}{name}.")


def _sections(annotation: Any) -> list[type[BaseModel]]:
    candidates = (annotation, *get_args(annotation))
    return [item for item in candidates if isinstance(item, type) and issubclass(item, BaseModel)]


PATH_SEPARATOR = ">"


class Mapped(Section):
    """A mapped value: a column's name alone, or one of `column`, `join` and `text`."""

    column: str | None = Field(
        None,
        description="a column, or a path into one that is nested: details.Brand, images[0].alt, variants.title (of "
        "each item), name[lang=en*].text (of those items); a column that has the whole name wins",
    )
    join: tuple[str, ...] | None = Field(None, min_length=1, description="several columns, those that are not empty")
    text: str | None = Field(None, min_length=1, description="the same text for every row")
    separator: str | None = Field(
        None,
        min_length=1,
        description="joins the columns of `join`, by default a space; of a category, what stands between the parts of "
        f"a path in `column` ({PATH_SEPARATOR!r} where only a level is given)",
    )
    level: int | None = Field(
        None, description="of a category's path, the part that counts: 1 is the first, -1 the last; by default all do"
    )

    @model_validator(mode="before")
    @classmethod
    def _accept_column(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"column": value}
        if isinstance(value, dict) and isinstance(value.get("join"), str):
            return {**value, "join": (value["join"],)}
        if not isinstance(value, (dict, Mapped)):
            raise ValueError("the name of a column is needed (a number in quotes), or one of column, join and text")
        return value

    @model_validator(mode="after")
    def _check(self) -> Mapped:
        given = [name for name in ("column", "join", "text") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("one of column, join and text is needed")
        if self.separator is not None and self.text is not None:
            raise ValueError("separator has no meaning beside text")
        if self.level is not None and (self.column is None or self.level == 0):
            raise ValueError("level is for the path in a column: 1, 2, ... from the front, -1, -2, ... from the end")
        return self

    @model_serializer(mode="wrap")
    def _plain(self, handler: SerializerFunctionWrapHandler) -> Any:
        # A column alone is written as ever, and hashed so.
        data = {name: value for name, value in handler(self).items() if value is not None}
        return data["column"] if data.keys() == {"column"} else data

    def __str__(self) -> str:
        """Return the form used in messages."""
        return self.column or " + ".join(self.join or ()) or repr(self.text)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it is made of."""
        return (self.column,) if self.column is not None else self.join or ()

    @property
    def is_path(self) -> bool:
        """Whether its cell is the path of a category."""
        return self.column is not None and (self.separator is not None or self.level is not None)
