"""Reader of JSON Schema (2020-12) to the form of an answer.

Objects with known fields, lists and scalars are split: each value is a branch. What cannot be split (fields of unknown
names, several types) is one value of its own, decoded as a whole under its grammar. What remains is refused by its
path, before any work. Keywords that only limit a value (its length, a range) are checked when it is there
(json_schema/answers.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jsonschema_rs
from pydantic import BaseModel, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import DecimalSchema
from referencing.exceptions import Unresolvable

from hpd_core.errors import SchemaError
from hpd_core.json_schema.answers import draft_of, pointer
from hpd_core.json_schema.form import (
    LIST_TOKENS,
    ROWS_TOKENS,
    Constant,
    FormGroup,
    FormMember,
    Leaf,
    Node,
    Rows,
    Variants,
    as_group,
    described,
    is_list_of_scalars,
    key_kind,
    key_names,
    max_tokens_of,
    read_leaf,
    whole_leaf,
)
from hpd_core.json_schema.references import References, Unsplit
from hpd_core.text.value_kinds import Integer, JsonString, ListOf, OneOf, Pattern, Verbatim, spelled

_OF_PARTS = frozenset(("items", "properties", "additionalProperties", "unevaluatedProperties"))


@dataclass(frozen=True, slots=True)
class SchemaLimits:
    """Limits on a schema's size.

    Attributes:
        max_branches: fields; those of a list's objects count once.
        max_depth: objects and lists in each other.
        max_members: values that its enums list, all together.
        max_rows: objects of a list (`maxItems`).
        max_bytes: of the schema, as JSON.
    """

    max_branches: int = 512
    max_depth: int = 16
    max_members: int = 50_000
    max_rows: int = 1_000
    max_bytes: int = 500_000


@dataclass(frozen=True, slots=True)
class SchemaSize:
    """Size of a schema, counted as in `SchemaLimits`."""

    branches: int
    depth: int


def check_schema(schema: Mapping[str, Any] | type[BaseModel], limits: SchemaLimits = SchemaLimits()) -> SchemaSize:
    """Return the size of a schema; needs no model.

    Raises:
        SchemaError: it is malformed, outside of the subset or larger than the limits.
    """
    reader = _Reader(as_mapping(schema), limits)
    reader.read()
    return SchemaSize(reader.num_branches, reader.depth)


def read_schema(schema: Mapping[str, Any], limits: SchemaLimits = SchemaLimits()) -> Node:
    """Return the form of a schema.

    Raises:
        SchemaError: as `check_schema`.
    """
    return _Reader(schema, limits).read()


def as_mapping(schema: Mapping[str, Any] | type[BaseModel]) -> Mapping[str, Any]:
    """Return the schema of a pydantic model; a mapping unchanged."""
    if isinstance(schema, Mapping):
        return schema
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        try:
            return schema.model_json_schema(schema_generator=_PydanticSchema)
        except PydanticUserError as error:
            raise SchemaError("", f"pydantic makes no JSON Schema of {schema.__name__}: {error.message}") from error
    raise SchemaError("", f"a schema is a mapping or a pydantic model, this is {type(schema).__name__}")


class _PydanticSchema(GenerateJsonSchema):
    """Pydantic's JSON Schema, but a `Decimal` is a number and not a text."""

    def decimal_schema(self, schema: DecimalSchema) -> dict[str, Any]:
        number: dict[str, Any] = super().decimal_schema(schema)["anyOf"][0]
        return number


class _Reader:
    def __init__(self, schema: Mapping[str, Any], limits: SchemaLimits) -> None:
        self._schema, self._limits = _as_json(schema, limits.max_bytes), limits
        self._references = References(self._schema)
        self.num_branches = self.depth = self._depth = self._num_members = 0

    def read(self) -> Node:
        try:
            problem = next(iter(_form_check(draft_of(self._schema)).iter_errors(self._schema)), None)
            if problem is not None:
                where = pointer(problem.instance_path)
                raise SchemaError("", f"it is no JSON Schema: at #{where}: {problem.message[:200]}")
            node = self._node(self._schema, (), can_miss=False)
        except Unresolvable as error:
            raise SchemaError("", f"{error.ref!r} is outside of the schema: put it into '$defs'") from error
        except RecursionError as error:
            raise SchemaError("", "it is nested too deeply: flatten it") from error
        _check_names(as_group(node))
        return node

    def _node(self, schema: Any, path: tuple[str, ...], *, can_miss: bool) -> Node:
        where = pointer(path)
        counted = self.num_branches, self._num_members, self._depth
        try:
            return self._split(schema, path, can_miss=can_miss)
        except Unsplit as reason:
            self.num_branches, self._num_members, self._depth = counted
            self._count(where)
            return whole_leaf(schema, self._references, where, can_miss=can_miss, because=reason)

    def _split(self, schema: Any, path: tuple[str, ...], *, can_miss: bool) -> Node:
        where = pointer(path)
        with self._references.resolved(schema, where) as (plain, takes_null), self._deeper(where):
            if "anyOf" in plain:
                return self._variants(plain, path, takes_null, can_miss)
            if "const" in plain and not takes_null:
                return _constant(plain, where)
            kind = plain.get("type") or ("object" if "properties" in plain else "array" if "items" in plain else None)
            if kind == "null":
                return Constant(None)
            is_listed = "const" in plain or "enum" in plain
            if kind == "object" and not is_listed:
                return self._group(plain, path, takes_null, can_miss)
            if kind == "array" and not is_listed:
                return self._array(plain, path, takes_null, can_miss)
            self._count(where)
            return self._leaf(plain, kind, where, takes_null=takes_null, can_miss=can_miss)

    @contextmanager
    def _deeper(self, where: str) -> Iterator[None]:
        self._depth += 1
        self.depth = max(self.depth, self._depth - 1)
        if self._depth - 1 > self._limits.max_depth:
            raise SchemaError(where, f"more than {self._limits.max_depth} levels: flatten the schema")
        yield
        self._depth -= 1

    def _count(self, where: str) -> None:
        self.num_branches += 1
        if self.num_branches > self._limits.max_branches:
            raise SchemaError(where, f"more than {self._limits.max_branches} fields: ask in several requests")

    def _leaf(self, schema: Mapping[str, Any], kind: Any, where: str, *, takes_null: bool, can_miss: bool) -> Leaf:
        self._num_members += len(schema.get("enum", ()))
        if self._num_members > self._limits.max_members:
            raise SchemaError(where, f"more than {self._limits.max_members:,} values in enums: ask for a text instead")
        return read_leaf(schema, kind, where, takes_null=takes_null, can_miss=can_miss)

    def _group(self, schema: Mapping[str, Any], path: tuple[str, ...], takes_null: bool, can_miss: bool) -> FormGroup:
        where = pointer(path)
        required, others = schema.get("required", ()), schema.get("additionalProperties", True)
        # A field whose schema is false may not be there.
        properties = {name: each for name, each in schema.get("properties", {}).items() if each is not False}
        properties |= {name: others for name in required if name not in properties}
        if not properties and schema.get("additionalProperties", "properties" not in schema) is not False:
            raise Unsplit(where, "an object of unknown fields cannot be asked for: name them in 'properties'")
        can_miss = can_miss or takes_null
        fields = {}
        for name, each in properties.items():
            is_required = name in required
            fields[name] = FormMember(
                self._node(each, (*path, name), can_miss=can_miss or not is_required), is_required
            )
        return FormGroup(fields, note_of(schema), takes_null, can_miss)

    def _variants(self, schema: Mapping[str, Any], path: tuple[str, ...], takes_null: bool, can_miss: bool) -> Node:
        where = pointer(path)
        if "properties" in schema:
            raise Unsplit(where, "fields beside several shapes cannot be decoded: put them into each of the shapes")
        shapes = [self._node(each, path, can_miss=False) for each in schema["anyOf"]]
        groups = [each for each in shapes if isinstance(each, FormGroup)]
        name = _told_apart_by(groups, schema.get("discriminator")) if len(groups) == len(shapes) else None
        if name is None:
            raise Unsplit(
                where,
                "several shapes that nothing tells apart cannot be decoded: give each a field of the same name, with a "
                "constant that says which one it is",
            )
        by_value = {spelled(value): each for each in groups for value in _listed(each, name)}
        values = [value for each in groups for value in _listed(each, name)]
        self._count(where)
        notes = {key: schema[key] for key in ("title", "description") if key in schema}
        asked = self._leaf({"enum": values, **notes}, None, where, takes_null=takes_null, can_miss=can_miss)
        return Variants(name, asked, by_value, takes_null)

    def _array(self, schema: Mapping[str, Any], path: tuple[str, ...], takes_null: bool, can_miss: bool) -> Node:
        where = pointer(path)
        items = schema.get("items")
        if not isinstance(items, Mapping):
            raise Unsplit(where, "a list of anything cannot be asked for: say what its 'items' are")
        self._count(where)
        nullable = takes_null or can_miss
        inside = (*path, "*")
        with self._references.resolved(items, pointer(inside)) as (plain, item_takes_null):
            if is_list_of_scalars(plain):
                if item_takes_null:
                    raise Unsplit(pointer(inside), "null in a list cannot be decoded: leave it out")
                item = self._leaf(plain, plain.get("type"), pointer(inside), takes_null=False, can_miss=False)
                if isinstance(item.kind, Verbatim):
                    raise SchemaError(pointer(inside), "'x-hpd-verbatim' is for a text, not for those of a list")
                kind = ListOf(item.kind, nullable, _most_items(schema))  # type: ignore[arg-type]
                note = "; ".join(filter(None, [note_of(schema), "a list", item.note]))
                return Leaf(kind, note, takes_null, max_tokens_of(schema, LIST_TOKENS, where))
        row = self._node(items, inside, can_miss=False)
        if isinstance(row, Variants):
            raise Unsplit(pointer(inside), "a list of several shapes cannot be decoded: make a list of each")
        if not isinstance(row, FormGroup):
            raise Unsplit(pointer(inside), "lists of lists cannot be decoded: put the inner one into an object")
        if row.takes_null:
            raise Unsplit(pointer(inside), "null in a list cannot be decoded: leave it out")
        return self._rows(schema, row, where, takes_null, nullable)

    def _rows(self, schema: Mapping[str, Any], row: FormGroup, where: str, takes_null: bool, nullable: bool) -> Rows:
        key = schema.get("x-hpd-key") or next(filter(None, map(_key_of, row.fields.items())), None)
        if key is not None and (key not in [*row.fields] or key_kind(row.fields[key].node) is None):
            raise SchemaError(where, f"'x-hpd-key' must name a text among the items' fields, {key!r} is none")
        most, note = _most_items(schema), note_of(schema)
        max_tokens = max_tokens_of(schema, ROWS_TOKENS, where)
        if key is None:
            asked = Leaf(Integer(nullable), f"how many there are; {note}", takes_null, 30)
        else:
            kind = key_kind(row.fields[key].node) or JsonString()
            asked = Leaf(ListOf(replace(kind, nullable=False), nullable, most), note, takes_null, max_tokens)
        rows = Rows(row, key, asked, note, takes_null, most)
        if rows.num_asked > self._limits.max_rows:
            raise SchemaError(where, f"more than {self._limits.max_rows:,} objects: set 'maxItems' lower")
        return rows


def _as_json(schema: Mapping[str, Any], most_bytes: int) -> Any:
    """Return a schema as JSON has it: tuples are lists, keys are plain texts.

    Raises:
        SchemaError: JSON cannot hold it, or it is too long.
    """
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise SchemaError("", "a text in it holds half of a surrogate pair: correct it") from error
    except (TypeError, ValueError) as error:
        raise SchemaError("", f"it holds what JSON has not: {error}") from error
    except RecursionError as error:
        raise SchemaError("", "it is nested too deeply: flatten it") from error
    if size > most_bytes:
        raise SchemaError("", f"it has {size:,} bytes, at most {most_bytes:,} are read: leave out what is not needed")
    if isinstance(schema, Mapping) and not isinstance(schema.get("$schema", ""), str):
        raise SchemaError("/$schema", "it is no text: name a draft, such as 2020-12's")
    return json.loads(text)


@cache
def _form_check(draft: Any) -> Any:
    """Return the validator of a draft's schemas. Raise SchemaError for a draft that nobody checks any more."""
    kind = getattr(jsonschema_rs, draft.__name__, None)
    if kind is None:
        raise SchemaError("", "its draft is not known: name 2020-12 in '$schema'")
    return kind(draft.META_SCHEMA, offline=True, validate_formats=False)  # of patterns it is told where they stand


def _constant(plain: Mapping[str, Any], where: str) -> Constant:
    value = plain["const"]
    if isinstance(value, list | dict) and (beside := sorted(_OF_PARTS & plain.keys())):
        raise SchemaError(where, f"'const' says it all: leave {beside[0]!r} out beside it")
    return Constant(value)


def _most_items(schema: Mapping[str, Any]) -> int | None:
    return int(schema["maxItems"]) if "maxItems" in schema else None


def _listed(group: FormGroup, name: str) -> Sequence[Any]:
    """Return the values that a field may have, if it is a constant or an enum; else an empty list."""
    match group.fields.get(name):
        case FormMember(node=Constant(value=str() | int() | float() as value)):
            return [value]
        case FormMember(node=Leaf(kind=OneOf(values=values))):
            return values
    return []


def _told_apart_by(shapes: Sequence[FormGroup], discriminator: Any) -> str | None:
    """Return the field with different values in each of the shapes, or None; OpenAPI's `discriminator` may name it."""
    named = discriminator.get("propertyName") if isinstance(discriminator, Mapping) else None
    for name in shapes[0].fields if named is None else [named]:
        listed = [_listed(shape, name) for shape in shapes]
        values = [spelled(value) for each in listed for value in each]
        if all(listed) and len(set(values)) == len(values):
            return str(name)
    return None


def _check_names(form: FormGroup) -> None:
    """Raise SchemaError if the model would read two fields as one, as "a.b" beside the field "b" of "a"."""
    found: dict[str, str] = {}
    for name, path in key_names(form):
        where = pointer(path)
        # As the model reads the fields of a list's objects, and as it reads those of each object.
        other = found.setdefault(re.sub(r"\[\d+\]", "[]", name), where)
        if other != where:
            raise SchemaError(where, f"the model would read {name!r} for it and for {other}, too: rename one of them")


def _key_of(field: tuple[str, FormMember]) -> str | None:
    name, member = field
    kind = key_kind(member.node)
    is_key = member.is_required and isinstance(kind, JsonString | Pattern) and not kind.nullable
    return name if is_key else None


def note_of(schema: Mapping[str, Any]) -> str:
    """Return a schema's title and description."""
    return "; ".join(described(schema))
