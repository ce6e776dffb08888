"""Reader of one value's schema: its kind, and its description for the model.

Prompt of a form: an instruction, a line for each field, the document, and a key before each value.

    Fields:
    - buyer.name: Full name; or null
    - lines: The lines of the invoice; a list, by name
    - lines[].price: a number; at least 0
    - paid.by: one of "card", "cash"
    - paid.number: a whole number; only if paid.by is "card"

All values of a document branch off from this one text. A value that depends on others has them before its key, as lines
of the answer:

    {
    "lines[2].name": "Blue shoe",
    "lines[2].price":
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from jsonschema import Draft202012Validator

from hpd_core.errors import SchemaError
from hpd_core.json_schema.answers import FORMATS
from hpd_core.json_schema.references import References, Unsplit
from hpd_core.text.grammars import PatternError, compiled, grammar_problem
from hpd_core.text.template import Frame, Piece, PromptTemplate, chat_wrapping, single_header
from hpd_core.text.value_kinds import (
    Boolean,
    FreeText,
    Grammar,
    Integer,
    JsonString,
    Number,
    OneOf,
    Pattern,
    ValueKind,
    Verbatim,
    spelled,
)

TEXT_TOKENS, LIST_TOKENS, ROWS_TOKENS, WHOLE_TOKENS = 96, 128, 256, 512
"""Default lengths in tokens of texts, lists, the keys of a list's rows, and values that are decoded as a whole."""
_TYPED_TOKENS = 48
_MOST_TOKENS = 1_000_000
_MOST_LISTED = 50
_MOST_SHOWN = 1_000  # characters of a schema that the model is shown
ROOT = "answer"
"""Key of an outermost value that is no object."""

_LIMITS = {
    "minimum": "at least",
    "maximum": "at most",
    "exclusiveMinimum": "more than",
    "exclusiveMaximum": "less than",
    "multipleOf": "a multiple of",
}


def read_leaf(schema: Mapping[str, Any], type_: Any, where: str, *, takes_null: bool, can_miss: bool) -> Leaf:
    """Return the value that a plain schema (`References.resolved`) describes.

    Raises:
        SchemaError: it is not a value, or cannot be decoded.
    """
    kind = _kind(schema, type_, where, takes_null or can_miss)
    default = TEXT_TOKENS if isinstance(kind, JsonString | Pattern | Verbatim) else _TYPED_TOKENS
    return Leaf(kind, _note(schema, kind), takes_null, max_tokens_of(schema, default, where))


def whole_leaf(schema: Any, references: References, where: str, *, can_miss: bool, because: SchemaError) -> Leaf:
    """Return a value of any schema, decoded as a whole under its grammar. `because`: why it is not split.

    Raises:
        SchemaError: there is no grammar of it.
    """
    problem = None
    for loosely in (False, True):
        written = spelled(references.alone(schema, where, loosely=loosely))  # refuses what would recurse below
        takes_null = references.takes_null(schema)
        kind = Grammar(written, takes_null or can_miss)
        if (problem := grammar_problem(kind)) is None:
            break
    else:
        raise SchemaError(where, f"{because.message}. As a whole it cannot be decoded either: {problem}")
    notes = [*described(schema), f"JSON that fits {written[:_MOST_SHOWN]}{'...' if len(written) > _MOST_SHOWN else ''}"]
    most = max_tokens_of(schema if isinstance(schema, Mapping) else {}, WHOLE_TOKENS, where)
    return Leaf(kind, "; ".join([*notes, *(["or null"] if kind.nullable else [])]), takes_null, most)


def described(schema: Any) -> list[str]:
    """Return a schema's title and description, each on one line, if it has them."""
    texts = [schema.get("title"), schema.get("description")] if isinstance(schema, Mapping) else []
    return [" ".join(text.split()) for text in texts if isinstance(text, str) and text.strip()]


def max_tokens_of(schema: Mapping[str, Any], default: int, where: str) -> int:
    """Return the length of a value in tokens, by its schema.

    Raises:
        SchemaError: it is not a number of tokens.
    """
    found = schema.get("x-hpd-max-tokens", default)
    if type(found) is not int or not 1 <= found <= _MOST_TOKENS:
        raise SchemaError(where, f"'x-hpd-max-tokens' is a number of tokens, from 1 to {_MOST_TOKENS:,}")
    return found


def is_list_of_scalars(schema: Mapping[str, Any]) -> bool:
    """Return whether items of this schema are scalars."""
    return "enum" in schema or "const" in schema or schema.get("type") in ("string", "number", "integer", "boolean")


def key_kind(node: Node) -> JsonString | Pattern | OneOf | None:
    """Return the kind of a field that can tell objects apart, which is a text; None if it cannot."""
    return node.kind if isinstance(node, Leaf) and isinstance(node.kind, JsonString | Pattern | OneOf) else None


def _kind(schema: Mapping[str, Any], type_: Any, where: str, nullable: bool) -> Any:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if values is not None:
        return _one_of(values, type_, where, nullable)
    match type_:
        case "number":
            return Number(nullable)
        case "integer":
            return Integer(nullable)
        case "boolean":
            return Boolean(nullable)
        case "string":
            return _text(schema, where, nullable)
    raise Unsplit(where, "a field that may be anything cannot be asked for: say its 'type'")


def _one_of(values: Any, type_: Any, where: str, nullable: bool) -> OneOf:
    if type_ is not None:
        values = [value for value in values if Draft202012Validator.TYPE_CHECKER.is_type(value, type_)]
    if not values:
        raise SchemaError(where, "an enum without a value of its type cannot be decoded: add one")
    for value in values:
        if isinstance(value, list | dict):
            raise Unsplit(where, "an enum of lists or objects cannot be decoded: give each a name, and list those")
    return OneOf(tuple({spelled(value): value for value in values}.values()), nullable)


def _text(schema: Mapping[str, Any], where: str, nullable: bool) -> JsonString | Pattern | Verbatim:
    copied = schema.get("x-hpd-verbatim", False)
    if not isinstance(copied, bool) or (copied and ("pattern" in schema or "format" in schema)):
        raise SchemaError(where, "'x-hpd-verbatim' is true for a text that is copied, without a pattern or a format")
    if copied:
        return Verbatim(nullable)
    pattern, format_ = schema.get("pattern"), FORMATS.get(schema.get("format", ""))
    if pattern is None:
        return JsonString(nullable) if format_ is None else Pattern(format_[0], nullable)
    try:
        compiled(pattern)
    except PatternError as error:
        raise SchemaError(where, f"its pattern cannot be checked: {error}") from error
    # Some patterns can only be checked, when the answer is there.
    kind = Pattern(pattern, nullable)
    return kind if grammar_problem(kind) is None else JsonString(nullable)


def _note(schema: Mapping[str, Any], kind: ValueKind) -> str:
    notes = described(schema)
    match kind:
        case OneOf():
            notes.append(f"one of {listed(kind.spellings, ', ')}")
        case Integer():
            notes.append("a whole number")
        case Number():
            notes.append("a number")
        case Boolean():
            notes.append("true or false")
        case JsonString() | Pattern() | Verbatim() | FreeText():
            notes += _text_notes(schema)
    notes += [f"{words} {schema[name]}" for name, words in _LIMITS.items() if type(schema.get(name)) in (int, float)]
    return "; ".join([*notes, *(["or null"] if kind.nullable else [])])


def listed(values: Sequence[str], separator: str) -> str:
    """Join values for the model; a long list is cut."""
    rest = len(values) - _MOST_LISTED
    return separator.join(values[:_MOST_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def _text_notes(schema: Mapping[str, Any]) -> list[str]:
    name = schema.get("format")
    if name is not None:
        return [FORMATS[name][1] if name in FORMATS else f"in the format {name}"]
    return [f"matches {schema['pattern']}"] if "pattern" in schema else []


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
    """Field of an object."""

    node: Node
    is_required: bool


_INSTRUCTION = "Fill in a form from a document."
_RULES = """\
Answer with JSON: one object with a key for each field, every field on a line of its own. Copy what the document says \
in as few words as possible. Where a field may be null, write null if the document does not say it."""


def render_frame(form: Node, template: PromptTemplate, tokenizer: Any, instruction: str | None) -> Frame:
    """Return the pieces around a document. Control tokens in the schema and the instruction are encoded as plain text.

    Raises:
        PromptError: the chat template drops or doubles the user's message.
    """
    head, tail = chat_wrapping(template, tokenizer)
    lines = _lines(form, "") if isinstance(form, FormGroup) else _line(ROOT, FormMember(form, True))
    about = f"\n{form.note}" if isinstance(form, FormGroup) and form.note else ""
    fields = "\n".join(lines)
    prefix = (
        Piece(head, True),
        Piece((instruction or _INSTRUCTION) + about, False),
        Piece("\n\nFields:\n", True),
        Piece(fields, False),
        Piece(f"\n\n{_RULES}\n\nDocument:\n", True),
    )
    return prefix, (Piece(tail + single_header(), True),)


def render_branch(name: str, seen: Mapping[str, Any]) -> str:
    """Return a key, and before it the lines of the values that its value depends on, by their keys."""
    lines = [f"{spelled(other)}: {spelled(value)},\n" for other, value in seen.items()]
    return "".join(lines) + f"{spelled(name)}:"


def joined_name(name: str, field: str) -> str:
    """Return the name of an object's field."""
    return f"{name}.{field}" if name else field


def count_name(name: str) -> str:
    """Return the name of the number of a list's items."""
    return f"{name}.length"


def as_group(form: Node) -> FormGroup:
    """Return the form itself, or an object around an outermost value that is none."""
    return form if isinstance(form, FormGroup) else FormGroup({ROOT: FormMember(form, True)}, "", False, False)


def key_names(group: FormGroup, name: str = "", path: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the keys of all values, as in `_lines`, and the path of each, where "*" means any object of a list."""
    for field, member in group.fields.items():
        node, own, place = member.node, joined_name(name, field), (*path, field)
        if isinstance(node, FormGroup):
            yield from key_names(node, own, place)
            continue
        if isinstance(node, Variants):
            for shape, _ in node.values_of_each():
                yield from key_names(shape, own, place)
            continue
        yield own, place
        if isinstance(node, Rows):
            if node.key is None:
                yield count_name(own), place
            yield from key_names(node.row, f"{own}[]", (*place, "*"))


def _lines(group: FormGroup, name: str, told: str | None = None) -> Iterator[str]:
    """Yield the lines of a group; `told`: a field that is described already."""
    if group.note and name:
        yield f"- {name}: {group.note}"
    for field, member in group.fields.items():
        if field != told:
            yield from _line(joined_name(name, field), member)


def _line(name: str, member: FormMember) -> Iterator[str]:
    node = member.node
    if isinstance(node, Leaf):
        yield f"- {name}: {node.note}" if node.note else f"- {name}"
    elif isinstance(node, FormGroup):
        yield from _lines(node, name)
    elif isinstance(node, Variants):
        own = joined_name(name, node.name)
        yield f"- {own}: {node.asked.note}"
        for shape, values in node.values_of_each():
            condition = f"only if {own} is {listed(values, ' or ')}"
            yield from (f"{line}; {condition}" for line in _lines(shape, name, node.name))
    elif isinstance(node, Rows):
        how = f"a list, by {node.key}" if node.key is not None else f"a list; {count_name(name)} is how many there are"
        yield f"- {name}: " + "; ".join(filter(None, [node.note, how]))
        yield from _lines(node.row, f"{name}[]")
