"""Values of schemas that cannot be split: each is what decoding it alone under its grammar is, and fits its schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from hpd_core import Engine
from hpd_core.json_schema.form import FormGroup, Leaf, Node, Rows
from hpd_core.json_schema.schema_reader import read_schema
from hpd_core.text.value_kinds import Grammar
from hpd_core.text.values import read_value
from tests.core.engines import TIMEOUT
from tests.core.json.kinds import WHOLE
from tests.core.json.test_schema_reader import SHAPES, TEXT, an_object
from tests.examples import examples
from tests.tables import table

TREE = {"$defs": {"t": an_object("n", n=TEXT, c={"type": "array", "items": {"$ref": "#/$defs/t"}})}}


@table("line", [" 1e999,\n", ' ["\\ud800"],\n', " NaN,\n", f" {'9' * 5_000},\n", " [[1,\n"])
def test_what_is_no_json_is_no_value(line: str) -> None:
    assert read_value(Grammar("true", False), line, closed=True, fields={}) == (None, "invalid")


def whole(node: Node, path: str = "") -> Iterator[str]:
    """The paths of values that are decoded as a whole."""
    match node:
        case Leaf(kind=Grammar()):
            yield path
        case FormGroup():
            for name, member in node.fields.items():
                yield from whole(member.node, f"{path}/{name}")
        case Rows():
            yield from whole(node.row, f"{path}/*")


@table(
    ("schema", "paths"),
    [
        *((an_object(a=each, b=TEXT), ["/a"]) for each in WHOLE),
        ({"type": "array", "items": TEXT}, []),
        ({"type": "array", "items": an_object(b=TEXT, c={})}, ["/*/c"]),
        (TEXT, []),
        ({"type": ["object", "null"], "properties": {}}, []),
        ({"anyOf": [{"type": "number"}, TEXT]}, [""]),
        (an_object(a=True, b=False), ["/a"]),
        (an_object("b", a=TEXT), ["/b"]),
        (an_object(a={"type": "object"}, b={"type": "array"}), ["/a", "/b"]),
        (an_object(a={"type": "array", "items": {"anyOf": SHAPES}}), ["/a"]),
        (an_object(a={"type": "array", "items": {"type": ["string", "null"]}}), ["/a"]),
        (an_object(a={**TEXT, "not": {"const": "x"}}, b=TEXT), ["/a"]),
        (an_object(a={"allOf": [{**TEXT, "pattern": "a"}, {**TEXT, "pattern": "b"}]}), ["/a"]),
        ({"$ref": "#/$defs/t", **TREE}, ["/c"]),
        (an_object(a={"$ref": "#/$defs/t"}) | TREE, ["/a/c"]),
        # Fields that are called as keywords are.
        ({"anyOf": [TEXT, an_object(**{"default": {"$ref": "#/$defs/t"}, "$id": TEXT})]} | TREE, [""]),
        (an_object(a={**TEXT, "pattern": r"^(?!x)[a-z]+$"}), []),
    ],
)
def test_what_cannot_be_split_is_one_value(schema: dict[str, Any], paths: list[str]) -> None:
    assert list(whole(read_schema(schema))) == paths


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from([*WHOLE, TEXT, {"type": "null"}, {}]), min_size=1, max_size=3), st.booleans())
def test_an_answer_fits_or_says_where_it_does_not(engine: Engine, fields: list[dict[str, Any]], bare: bool) -> None:
    schema = fields[0] if bare else an_object("f0", **{f"f{number}": each for number, each in enumerate(fields)})
    (result,) = engine.submit_json(["red 42"], schema).result(TIMEOUT)
    assert bool(list(Draft202012Validator(schema).iter_errors(result.data))) <= bool(result.problems)
    statuses = {field.status for field in result.fields.values()}
    assert statuses <= {"value", "absent", "truncated"}
    assert bool(result.problems) == ("truncated" in statuses)
