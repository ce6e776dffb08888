"""What is asked of a call, checked before anything is decoded: refusals of records, and names of attributes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hpd_core.text.near_names import NearNames
from hpd_core.text.values import error_value
from hpd_core.types import CategorySchema, ErrorCode, Record, RecordResult


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why a record gets no prompt."""

    code: ErrorCode
    message: str


def schema_of(record: Record, schemas: Mapping[str, CategorySchema]) -> CategorySchema | None:
    """Return the schema of the record's category; None if there is none."""
    return schemas.get(record.category) if isinstance(record.category, str) else None


def not_text(record: Record) -> Refusal | None:
    """Return a refusal if the category or a field is not text, such as the NaN of an empty table cell; else None."""
    category, fields = record.category, record.fields
    if not isinstance(category, str):
        return Refusal(ErrorCode.NOT_TEXT, f"the category is {type(category).__name__}, not text")
    if not isinstance(fields, Mapping):
        return Refusal(ErrorCode.NOT_TEXT, f"the fields are {type(fields).__name__}, and not texts by their names")
    for name, text in fields.items():
        if not isinstance(name, str):
            return Refusal(ErrorCode.NOT_TEXT, f"the name of field {name!r} is {type(name).__name__}, not text")
        if not isinstance(text, str):
            return Refusal(ErrorCode.NOT_TEXT, f"field {name!r} is {type(text).__name__}, not text")
        try:
            name.encode()
            text.encode()
        except UnicodeEncodeError as error:
            return Refusal(
                ErrorCode.NOT_TEXT, f"field {name!r} holds half of a surrogate pair at character {error.start}"
            )
    return None


def refuse_verbatim(schemas: Mapping[str, CategorySchema], problem: str) -> None:
    """Raise ValueError, with the problem, if an attribute is verbatim."""
    for schema in schemas.values():
        for attribute in schema.attributes:
            if attribute.verbatim:
                raise ValueError(
                    f"attribute {attribute.name!r} of category {schema.category!r} is verbatim, which {problem}"
                )


def asked_attributes(schema: CategorySchema, names: Collection[str] | None) -> list[int]:
    """Return the numbers of the named attributes, in the schema's order. Raise ValueError if one is unknown."""
    found = [index for index, attribute in enumerate(schema.attributes) if names is None or attribute.name in names]
    if names is not None and (not found or len(found) != len(set(names))):
        known = [attribute.name for attribute in schema.attributes]
        near = NearNames(known)
        hints = [f"; {name!r}: {hint}" for name in sorted(set(names) - set(known)) if (hint := near.hint(name))]
        raise ValueError(
            f"category {schema.category!r} has the attributes {', '.join(known)}; wanted are {sorted(names)}"
            + "".join(hints)
        )
    return found


def refused_result(record: Record, refusal: Refusal, schema: CategorySchema | None) -> RecordResult:
    """Return the result of a record that was not decoded: every attribute has the status "error"."""
    values = {attribute.name: error_value() for attribute in schema.attributes} if schema else {}
    return RecordResult(record.id, record.category, values, refusal.message, refusal.code)
