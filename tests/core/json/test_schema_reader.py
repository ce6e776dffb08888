"""Which schemas are taken, what they become, and how others are refused: by path, with a way out."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from hpd_core import SchemaError, SchemaLimits, check_schema
from hpd_core.json_schema.answers import checker
from hpd_core.json_schema.form import FormGroup, Leaf, Node
from hpd_core.json_schema.schema_reader import as_mapping, read_schema
from hpd_core.text.value_kinds import Boolean, Integer, JsonString, ListOf, Number, OneOf, Pattern
from tests.tables import table

TEXT = {"type": "string"}
DEFINED = {"$defs": {"a/b": {"type": "integer"}}}
CIRCULAR: dict[str, Any] = {"type": "object", "properties": {}}
CIRCULAR["properties"]["a"] = CIRCULAR


def an_object(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def field(schema: Any, root: Any = None, *, is_required: bool = True) -> Node:
    """What one field of an object becomes."""
    whole = {**an_object(*(["x"] if is_required else []), x=schema), **(root or {})}
    return read_schema(whole).fields["x"].node


@table(
    ("schema", "kind"),
    [
        (TEXT, JsonString()),
        ({"anyOf": [TEXT, {"type": "null"}]}, JsonString(nullable=True)),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}], "description": "d"}, Integer(nullable=True)),
        ({"type": "number", "minimum": 0}, Number()),
        ({"anyOf": [{"type": "number"}, {**TEXT, "pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"}]}, Number()),
        ({"type": "boolean"}, Boolean()),
        ({"enum": ["a", 1, None]}, OneOf(("a", 1), nullable=True)),
        ({"enum": [1, 1.0, True]}, OneOf((1, 1.0, True))),
        ({"anyOf": [{"const": "a"}, {"enum": ["b", "c"]}, {"type": "null"}]}, OneOf(("a", "b", "c"), nullable=True)),
        ({"type": "string", "pattern": "^a$", "format": "date"}, Pattern("^a$")),
        ({"type": "array", "items": {"type": "integer"}}, ListOf(Integer())),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 2.0}, ListOf(Integer(), most=2)),
        ({"type": ["array", "null"], "items": {"enum": ["a"]}}, ListOf(OneOf(("a",)), nullable=True)),
        ({"$ref": "#/$defs/a~1b", "description": "d"}, Integer()),
        ({"anyOf": [{"const": "a"}, {"type": "null"}]}, OneOf(("a",), nullable=True)),
        # Null is one where all of the schema has it.
        ({"type": ["string", "null"], "enum": ["a", "b"]}, OneOf(("a", "b"))),
        ({"type": "string", "enum": ["a", 1, None]}, OneOf(("a",))),
        ({"allOf": [{"type": ["string", "null"]}, TEXT]}, JsonString()),
        ({"allOf": [{"type": ["string", "null"]}, {"enum": ["a", None]}]}, OneOf(("a",), nullable=True)),
    ],
)
def test_the_kind_of_a_field(schema: Any, kind: Any) -> None:
    node = field(schema, DEFINED)
    assert isinstance(node, Leaf)
    assert (repr(node.kind), node.takes_null) == (repr(kind), kind.nullable)
    optional = field(schema, DEFINED, is_required=False)
    assert isinstance(optional, Leaf)
    assert optional.kind.nullable, "what may miss may be null in the answer"
    assert optional.takes_null == kind.nullable


SHAPES = [an_object("k", k={"const": "p"}, s=TEXT), an_object("k", k={"enum": ["q", "r"]}, s={"type": "integer"})]


@table(
    ("schema", "path", "message"),
    [
        ({"type": "objekt"}, "", "it is no JSON Schema: at #/type"),
        (an_object(**{"a.b": TEXT, "a": an_object(b=TEXT)}), "/a/b", "read 'a.b' for it and for /a.b, too"),
        (an_object(**{"a[2].b": TEXT, "a": {"type": "array", "items": an_object(b=TEXT)}}), "/a/*/b", "rename one"),
        (an_object(a={"enum": ["\ud83d"]}), "", "surrogate"),
        (an_object(a={"const": {1, 2}}), "", "what JSON has not"),
        (an_object(a={"type": "number", "minimum": float("inf")}), "", "what JSON has not"),
        (CIRCULAR, "", "what JSON has not"),
        (an_object(a={"enum": []}), "/a", "an enum without a value"),
        (an_object(a={"$id": "https://example.com/", "$ref": "#/$defs/b"}), "/a", "'$id' in the middle"),
        (
            an_object(a={"type": ["string", "null"], "not": {"$ref": "http://127.0.0.1:9/"}}),
            "/a",
            "outside of the schema",
        ),
        (an_object(a={"const": [1], "items": TEXT}), "/a", "leave 'items' out"),
        (an_object(a={"type": "integer", "nullable": True}), "/a", "'nullable' is OpenAPI's"),
        (an_object(a={**TEXT, "x-hpd-max-tokens": 1_000_001}), "/a", "from 1 to 1,000,000"),
        (an_object(a={**TEXT, "pattern": "^[[:alpha:]]$"}), "/a", "read in two ways"),
        (an_object(a={**TEXT, "pattern": "^id{s}$"}), "/a", "read in two ways"),
        (an_object(a={**TEXT, "pattern": "(a{1000}){1000}"}), "/a", "more than 50,000"),
        (an_object(a={"type": "array", "items": an_object(b=TEXT), "x-hpd-key": ["b"]}), "/a", "must name a text"),
        (an_object(a={"type": "string", "pattern": "("}), "/a", "missing )"),
        (an_object(a={"$ref": "#/$defs/b"}), "/a", "leads nowhere"),
        (an_object(a={"$ref": "https://example.com/b"}), "/a", "outside of the schema"),
        (an_object(a={**TEXT, "x-hpd-max-tokens": 0}), "/a", "a number of tokens"),
    ],
)
def test_others_are_refused_by_path(schema: Any, path: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        read_schema(schema)
    assert (caught.value.path, message in caught.value.message) == (path, True), caught.value
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.path, copy.message, str(copy)) == (caught.value.path, caught.value.message, str(caught.value))


def test_what_stands_beside_a_reference_is_joined_to_it() -> None:
    own = {"$ref": "#/$defs/o", "properties": {"d": TEXT}, "required": ["d"]}
    form = read_schema(an_object(o=own) | {"$defs": {"o": an_object("c", c=TEXT)}})
    inner = form.fields["o"].node
    assert isinstance(inner, FormGroup)
    assert {name: member.is_required for name, member in inner.fields.items()} == {"c": True, "d": True}


def test_size_and_limits() -> None:
    schema = an_object(a=TEXT, b=an_object(c=TEXT, d={"type": "array", "items": an_object(e=TEXT)}))
    size = check_schema(schema)
    assert (size.branches, size.depth) == (4, 4)
    with pytest.raises(SchemaError, match="more than 3 fields"):
        check_schema(schema, SchemaLimits(max_branches=3))
    with pytest.raises(SchemaError, match=r"/b/d/\*: more than 2 levels"):
        check_schema(schema, SchemaLimits(max_depth=2))
    rows = an_object(a={"type": "array", "maxItems": 10**18, "items": schema})
    with pytest.raises(SchemaError, match=r"/a: more than 1,000 objects"):
        check_schema(rows)
    enums = an_object(a={"enum": [1, 2, 3]}, b={"type": "array", "items": {"enum": [4, 5]}})
    assert check_schema(enums, SchemaLimits(max_members=5)).branches == 2
    with pytest.raises(SchemaError, match=r"/b/\*: more than 4 values in enums"):
        check_schema(enums, SchemaLimits(max_members=4))
    with pytest.raises(SchemaError, match=r"it has 500,0.. bytes, at most 500,000 are read"):
        check_schema(an_object(a=TEXT) | {"$comment": "x" * 500_000})


@table("case", ["doubling", "joining", "denied", "constant", "deep", "wide enum", "slow pattern", "large pattern"])
def test_hostile_schemas_end_soon(case: str) -> None:
    started = time.perf_counter()
    doubling = {f"d{n}": an_object(a={"$ref": f"#/$defs/d{n + 1}"}, b={"$ref": f"#/$defs/d{n + 1}"}) for n in range(60)}
    deep: Any = TEXT
    for _ in range(300):
        deep = an_object(a=deep)
    joined = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    schemas: dict[str, Any] = {
        "joining": an_object(a={"$ref": "#/$defs/d0"}) | {"$defs": {**joined, "d60": TEXT}},
        "denied": an_object(a={"type": ["string", "null"], "not": {"$ref": "#/$defs/d0"}})
        | {"$defs": {**joined, "d60": TEXT}},
        "constant": an_object(a={"const": [None], "items": {"$ref": "#/$defs/d0"}})
        | {"$defs": {**joined, "d60": {"type": "null"}}},
        "doubling": an_object(a={"$ref": "#/$defs/d0"}) | {"$defs": {**doubling, "d60": TEXT}},
        "deep": deep,
        "wide enum": an_object(a={"enum": [str(n) for n in range(50_000)]}),
        "slow pattern": an_object(a={"type": "string", "pattern": "^[ab]*a[ab]{40}$"}),
        "large pattern": an_object(a={"type": "string", "pattern": "((a{1,100}){1,100}){1,100}"}),
    }
    if case in ("doubling", "joining", "denied", "constant", "deep"):
        with pytest.raises(SchemaError):
            check_schema(schemas[case])
    else:
        assert check_schema(schemas[case]).branches == 1
    assert time.perf_counter() - started < 20


@table(
    ("schema", "data", "message"),
    [
        ({"type": "number", "multipleOf": 0.01}, 19.99, None),
        ({"type": "number", "multipleOf": 0.01}, 19.995, "19.995 is not a multiple of 0.01"),
        ({"type": "number", "multipleOf": 0.5}, 10**400, None),
        ({"enum": ["a", "b"], "pattern": "((a{1000}){1000}){1000}"}, "a", "cannot be checked: it has more than"),
        ({"type": "string", "format": "time"}, "09:30:00Z", None),
        ({"type": "string", "format": "time"}, "9 o'clock", "is not a 'time'"),
        ({"type": "string", "format": "hostname"}, "shop.example.com", None),
        ({"type": "string", "format": "hostname"}, "https://example.com:8080/", "is not a 'hostname'"),
        ({"type": "string", "format": "uri"}, "example.com", "is not a 'uri'"),
        ({"allOf": [{"properties": {"b": TEXT}, "unevaluatedProperties": False}]}, {"a": 1}, "'a' was unexpected"),
        # Python's own `re`, which the checker of this format asks, fails in ways of its own.
        ({"type": "string", "format": "regex"}, "a{99999999999999999999}", "cannot be checked: OverflowError"),
    ],
)
def test_an_answer_is_checked_by_what_is_written(schema: Any, data: Any, message: str | None) -> None:
    problems = checker(an_object(a=schema))({"a": data})
    assert [message in each.message for each in problems if message] == [True] * (message is not None), problems


def test_the_patterns_of_one_answer_have_one_second() -> None:
    slow = {"type": "array", "items": {"type": "string", "pattern": r"^(.*)(.*)(.*)(.*)(.*)[^a]$"}}
    started = time.perf_counter()
    problems = checker(an_object(a=slow))({"a": ["a" * 400] * 20})
    assert len(problems) == 20
    assert time.perf_counter() - started < 5


def test_names_are_held_against_patterns_in_bounded_time() -> None:
    """jsonschema alone takes hours for the first of them."""
    named = {"type": "object", "patternProperties": {"^(a+)+$": {}, "z$": {"type": "integer"}, "^y": {"minimum": 5}}}
    problems = checker({**named, "additionalProperties": False})
    assert problems({"a" * 60: 1, "yz": 7}) == []
    assert [each.path for each in problems({"yz": 3.5})] == ["/yz", "/yz"]
    (problem,) = problems({"a" * 40 + "!": 1})
    assert "does not match any of the regexes: '^(a+)+$', 'z$', '^y'" in problem.message


def test_parts_that_multiply_with_the_depth_of_an_answer_are_given_up() -> None:
    """Each level of the list is held against twenty schemas that each refer to the next."""
    levels = {str(n): {"items": {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 20}} for n in range(8)}
    problems = checker({"$defs": {**levels, "8": {}}, "$ref": "#/$defs/0"})
    assert problems([[[1]]]) == []
    (problem,) = problems([[[[[[[[1]]]]]]]])
    assert "was not found in 2 s" in problem.message


def test_what_pydantic_cannot_describe_is_refused() -> None:
    class Called(BaseModel):
        call: Callable[[], int]

    with pytest.raises(SchemaError, match="pydantic makes no JSON Schema of Called"):
        check_schema(Called)


class Inner(BaseModel):
    name: str


class Card(BaseModel):
    by: Literal["card"] = "card"
    number: int


class Cash(BaseModel):
    by: Literal["cash"] = "cash"


class Model(BaseModel):
    inner: Inner | None = None
    ages: list[int] = []
    price: Decimal = Field(gt=0, max_digits=5)
    prices: list[Decimal] = []
    paid: Annotated[Card | Cash, Field(discriminator="by")] | None = None


def test_a_pydantic_model() -> None:
    assert check_schema(Model).branches == 6
    fields = read_schema(as_mapping(Model)).fields
    for name, kind in {"price": Number(), "prices": ListOf(Number(), nullable=True)}.items():
        node = fields[name].node
        assert isinstance(node, Leaf)
        assert node.kind == kind
    assert checker(as_mapping(Model))({"price": -1})[0].path == "/price"
    with pytest.raises(SchemaError, match="a schema is a mapping or a pydantic model, this is int"):
        check_schema(5)  # type: ignore[arg-type]
