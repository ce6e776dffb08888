"""Public data model: input and output of the engine.

Records and schemas are plain data, independent of torch. Everything here is immutable and picklable, so
that it travels between processes unchanged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from hpd_core.plain_data import (
    Frozen,
    Member,
    Place,
    Vocabulary,
    dotted,
    held_twice,
    nested,
    refuse_empty,
    with_tuples,
)

AttributeType = Literal["string", "number", "boolean", "enum", "date"]
MatchKind = Literal["exact", "folded", "fuzzy", "equal number", "ambiguous"]
ValueStatus = Literal["value", "absent", "truncated", "invalid", "error"]
Choice = Literal["scored", "beam", "greedy"]


_MOST_IMPLIED = 64
_CANONICAL = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"))


class ErrorCode(StrEnum):
    """Reason why a record came back without values (`RecordResult.error_code`)."""

    NO_SCHEMA = "no_schema"
    TOO_LONG = "too_long"
    CONTROL_TOKENS = "control_tokens"
    NOT_TEXT = "not_text"
    ENGINE = "engine"


class Unit(Frozen):
    """Unit of a number. A text alone is the wanted unit."""

    want: str = Field(description="the unit a number is wanted in; shown to the model")
    accept: tuple[str, ...] = Field(default=(), description="units that texts may have instead; they are converted")

    @model_validator(mode="before")
    @classmethod
    def _accept_text(cls, data: Any) -> Any:
        return {"want": data} if isinstance(data, str) else with_tuples(data, "accept")

    @property
    def names(self) -> tuple[str, ...]:
        """All units that a number may be written in, the wanted one first."""
        return (self.want, *self.accept)

    @model_serializer
    def _plain(self) -> str | dict[str, Any]:
        # Written, and hashed, as before there was more.
        return {"want": self.want, "accept": self.accept} if self.accept else self.want


class Attribute(Frozen):
    """Attribute to extract."""

    name: str = Field(min_length=1, description="what it is called: in the prompt, and in the tables")
    id: str | None = Field(default=None, description="its id in the system that it is from; not shown to the model")
    description: str | None = Field(default=None, description="what it means, for the model to read")
    type: AttributeType = Field(default="string", description="what its value has to be")
    values: tuple[Member, ...] | None = Field(
        default=None, description="what an enum may hold: labels, or mappings with label, id, synonyms, description"
    )
    unit: Unit | None = Field(
        default=None, description="the unit a number is wanted in, shown to the model; or a mapping with want, accept"
    )
    plausible: tuple[float, float] | None = Field(
        default=None,
        description="of a number, the least and the most that it can be, in its unit: others are left open",
    )
    multiple: bool = Field(default=False, description="several values, as a JSON array")
    verbatim: bool | Literal["exclusive"] = Field(
        default=False,
        description="of a string: its value stands in the product's text, letter for letter; of all that it can "
        "be, the likeliest is chosen. 'exclusive': and in a place that no other exclusive value has",
    )
    shares_text_with: tuple[str, ...] = Field(
        default=(), description="of one that is exclusive: names of others that may have the same place, all the same"
    )
    implied: bool = Field(
        default=False,
        description="of an enum: its value may be concluded where the text does not state it; one is always chosen",
    )
    max_value_tokens: int | None = Field(
        default=None,
        ge=1,
        description="instead of engine.max_value_tokens, for this attribute; of an array, all of it is counted",
    )
    aliases: tuple[str, ...] = Field(default=(), description="other names of it; not shown to the model")
    path: Place = Field(
        default=(),
        description="of one that stands in an object, the keys that lead to it: its name is these with dots between",
    )

    _refuse_empty = field_validator("id")(refuse_empty)

    @model_validator(mode="before")
    @classmethod
    def _accept_lists(cls, data: Any) -> Any:
        return with_tuples(data, "values", "aliases", "path", "shares_text_with", "plausible")

    @model_validator(mode="after")
    def _check_plausible(self) -> Self:
        if self.plausible is not None:
            if self.type != "number" and (self.type != "string" or self.unit is None):
                raise ValueError(f"attribute {self.name!r} has 'plausible', which is for numbers and what has a unit")
            if not self.plausible[0] < self.plausible[1]:
                raise ValueError(f"attribute {self.name!r}: 'plausible' is [least, most], not {[*self.plausible]}")
        return self

    @model_validator(mode="after")
    def _check_path(self) -> Self:
        if self.path and (len(self.path) == 1 or not all(self.path) or dotted(self.path) != self.name):
            raise ValueError(f"attribute {self.name!r} has the path {self.path!r}, which is not how it is called")
        return self

    @model_validator(mode="after")
    def _check_verbatim(self) -> Self:
        if self.verbatim and (self.type != "string" or self.multiple):
            what = "a list" if self.multiple else f"of the type {self.type!r}"
            raise ValueError(f"attribute {self.name!r} is {what}: 'verbatim' is for one string, copied from the text")
        if self.shares_text_with and not self.is_exclusive:
            raise ValueError(f"attribute {self.name!r} has 'shares_text_with', which is for 'verbatim: exclusive'")
        return self

    @model_validator(mode="after")
    def _check_enum(self) -> Self:
        if self.type == "enum" and not self.values:
            raise ValueError(f"attribute {self.name!r} is an enum and needs a non-empty list 'values'")
        if self.type != "enum" and self.values is not None:
            raise ValueError(f"attribute {self.name!r} lists 'values' but its type is {self.type!r}, not 'enum'")
        if self.implied and (self.type != "enum" or self.multiple or len(self.values or ()) > _MOST_IMPLIED):
            raise ValueError(
                f"attribute {self.name!r} is 'implied', which is for an enum of one value among at most {_MOST_IMPLIED}"
            )
        seen: dict[str, str] = {}
        for label in (member.label for member in self.values or ()):
            if (earlier := seen.get(label.strip())) is not None:
                twin = "" if earlier == label else f" and {earlier!r}, which differ in white space at their ends alone"
                raise ValueError(f"attribute {self.name!r} lists a value twice: {label!r}{twin}")
            seen[label.strip()] = label
        return self

    @model_serializer(mode="wrap")
    def _leave_out_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_unset(
            handler(self), "id", "plausible", "verbatim", "shares_text_with", "implied", "aliases", "path"
        )

    @property
    def is_exclusive(self) -> bool:
        """Whether its value must be in a place of the text that no other exclusive value has."""
        return self.verbatim == "exclusive"

    @property
    def place(self) -> Place:
        """Keys that lead to it in nested output: its path, or its name alone."""
        return self.path or (self.name,)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Members of an enum by their spellings; empty for another type."""
        return Vocabulary(self.values or ())

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels that an enum may be answered with; empty for another type."""
        return self.vocabulary.labels

    @cached_property
    def definition(self) -> str:
        """Hash of everything that the model reads of it, and of how it is chosen: what is known of the answers to one
        attribute does not hold for another of the same name."""
        data = self.model_dump(mode="json", include={"name", "description", "type", "unit", "multiple"})
        chosen = {key: True for key in ("verbatim", "implied") if getattr(self, key)}
        return content_hash({**data, **chosen, "labels": self.labels})

    @property
    def is_closed(self) -> bool:
        """Whether its value is one of a few members, or null."""
        return self.type in ("enum", "boolean") and not self.multiple

    @property
    def is_text(self) -> bool:
        """Whether its value may be any text, so that nothing is constrained."""
        return self.type in ("string", "date")


class CategorySchema(Frozen):
    """Attributes of one category, in the order in which they are asked for."""

    category: str = Field(description="its name, as catalogs have it")
    attributes: tuple[Attribute, ...] = Field(min_length=1, description="which are asked for, in this order")
    id: str | None = Field(default=None, description="its id in the system that it is from; not shown to the model")
    aliases: tuple[str, ...] = Field(
        default=(), description="other names by which catalogs call it; not shown to the model"
    )

    _refuse_empty = field_validator("id")(refuse_empty)

    @model_validator(mode="before")
    @classmethod
    def _accept_lists(cls, data: Any) -> Any:
        return with_tuples(data, "attributes", "aliases")

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        seen: set[str] = set()
        for attribute in self.attributes:
            if attribute.name in seen:
                raise ValueError(f"category {self.category!r} has the attribute {attribute.name!r} twice")
            seen.add(attribute.name)
        for outer, place in held_twice(attribute.place for attribute in self.attributes):
            raise ValueError(
                f"category {self.category!r} has the attribute {dotted(outer)!r} as a value, and as an object with "
                f"{dotted(place)!r}"
            )
        return self

    @model_serializer(mode="wrap")
    def _leave_out_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_unset(handler(self), "id", "aliases")

    def __hash__(self) -> int:
        return hash(self.hash)

    @property
    def has_implied(self) -> bool:
        """Whether an attribute may be concluded."""
        return any(attribute.implied for attribute in self.attributes)

    @cached_property
    def rivals(self) -> Mapping[str, frozenset[str]]:
        """Rivals of each exclusive attribute: those whose values must not share a place with its own.

        Attributes without rivals are left out.
        """
        exclusive = [attribute for attribute in self.attributes if attribute.is_exclusive]
        sharing = {(one.name, name) for one in exclusive for name in (one.name, *one.shares_text_with)}
        found = {
            one.name: frozenset(
                other.name
                for other in exclusive
                if sharing.isdisjoint({(one.name, other.name), (other.name, one.name)})
            )
            for one in exclusive
        }
        return {name: others for name, others in found.items() if others}

    def nested(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values of attributes, given by name, in nested objects as in the schema file.

        `{"size.width": 2}` is `{"size": {"width": 2}}` where the schema has an object `size`.
        """
        places = {attribute.name: attribute.place for attribute in self.attributes}
        return nested((places[name], value) for name, value in values.items())

    @cached_property
    def hash(self) -> str:
        """Short content hash: equal schemas have equal hashes, in every process."""
        return content_hash(self.model_dump(mode="json"))


def _without_unset(data: dict[str, Any], *names: str) -> dict[str, Any]:
    # A schema without them is written, and hashed, as before there were any.
    return {key: value for key, value in data.items() if value or key not in names}


@dataclass(frozen=True, slots=True)
class Record:
    """Product (or any document).

    Attributes:
        fields: its texts; their order is their order in the prompt.
        numbers: for attributes of the type number (no list), the numbers that the answer is chosen among, as JSON
            spells them; without any it is null. The number of an attribute that is not here is free.
    """

    id: str
    category: str
    fields: Mapping[str, str]
    numbers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        # Records and answers travel in thousands; what frozen dataclasses do by themselves takes three times as long.
        return Record, (self.id, self.category, self.fields, self.numbers)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Place of a value in the record: code-point offsets into the original field.

    `match` says how it was matched, for numbers "exact", "equal number" or "ambiguous". A text that may end inside a
    number is "ambiguous", too (text/grounding.py).
    """

    field: str
    start: int
    end: int
    text: str
    match: MatchKind

    def __reduce__(self) -> tuple[Any, ...]:
        return Evidence, (self.field, self.start, self.end, self.text, self.match)


@dataclass(frozen=True, slots=True)
class Value:
    """Answer for one attribute.

    Attributes:
        text: the value as text if `status` is "value", else None. Several items are joined by "; ".
        items: the single values; several only for `multiple` attributes, empty unless `status` is "value". A number is
            a plain decimal ("1500" for "1,500 g", "0.5" for "1/2"). It is left as the model wrote it if its one
            separator before three digits may be a decimal sign or not, and the record's texts do not tell.
        status: "value"; "absent" (null, or a word for nothing: an answer); "truncated" (cut at
            K_max); "invalid" (no complete JSON value, wrong type or outside the enum); "error" (the record was not
            decoded).
        raw: the text that the model wrote for this value, up to the first newline or to where it was all
            (text/endings.py).
        num_tokens: number of generated tokens, including the one that ends the value.
        num_dropped: number of characters dropped after the first complete JSON value (a comma not counted).
        logprob_mean, logprob_min: over the generated tokens, natural logarithm; None if there are none.
        evidence: per item, its places in the record; empty until `ground` has run.
        choice: how one of few possible answers was chosen (enum, boolean, verbatim): "scored", the likeliest of all;
            "beam", the likeliest of those there was room for; "greedy", token by token. None for any other value.
        probability: the model's own. For a scored answer its share among all possible ones, including null, wrong by
            0.01 at most (for a "beam" too low, by more); for any other that of its tokens. None if there are no
            log-probabilities (the baseline 'ar'), and for null in place of a value below the answer threshold.
        margin: for a scored answer, log probability minus that of the next one, or somewhat less.
    """

    text: str | None
    items: tuple[str, ...]
    status: ValueStatus
    raw: str = ""
    num_tokens: int = 0
    num_dropped: int = 0
    logprob_mean: float | None = None
    logprob_min: float | None = None
    evidence: tuple[tuple[Evidence, ...], ...] = ()
    choice: Choice | None = None
    probability: float | None = None
    margin: float | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        answer, numbers = (self.text, self.items, self.status, self.raw), (self.num_tokens, self.num_dropped)
        certainty = (self.choice, self.probability, self.margin)
        return Value, (*answer, *numbers, self.logprob_mean, self.logprob_min, self.evidence, *certainty)


@dataclass(frozen=True, slots=True)
class RecordResult:
    """Answers for one record. If `error` is set, every value has the status "error".

    `engine_seconds` is the engine's time for this record alone: each step's, split by tokens forwarded. The category's
    prefix is not included.
    """

    id: str
    category: str
    values: Mapping[str, Value] = field(default_factory=dict)
    error: str | None = None
    error_code: ErrorCode | None = None
    engine_seconds: float = 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordResult, (
            *(self.id, self.category, self.values),
            *(self.error, self.error_code, self.engine_seconds),
        )


def content_hash(data: Any) -> str:
    """Return 16 hex digits of the SHA-256 of `data` as canonical JSON."""
    return hashlib.sha256(_CANONICAL.encode(data).encode()).hexdigest()[:16]


def is_encodable(text: str) -> bool:
    """Return False for half a surrogate pair, which an escape like \\ud83d makes and no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
