"""JSON of a schema: what comes fits it or is named, and every value is what its own prompt says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from hpd_core import Engine, FieldAnswer, JsonResult, OpenBranch, Trunk
from hpd_core.json_schema.answers import pointer
from hpd_core.requests.completions import Completions
from tests.core.engines import TIMEOUT, Steps, config
from tests.examples import examples

from .schemas import SCHEMAS, Schema

INVOICE: Schema = {
    "type": "object",
    "required": ["buyer", "lines", "currency"],
    "properties": {
        "buyer": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string", "description": "Full name"}, "paid": {"type": "boolean"}},
        },
        "currency": {"enum": ["EUR", "USD"]},
        "rate": {"type": "number", "x-hpd-after": ["currency"]},
        "lines": {
            "type": "array",
            "maxItems": 3,
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "count": {"type": "integer"}},
            },
        },
        "pages": {"type": "array", "items": {"type": "object", "properties": {"number": {"type": "integer"}}}},
    },
}


@pytest.fixture(scope="module")
def engine(tiny_model_dir: Path) -> Iterator[Engine]:
    with Engine.from_pretrained(str(tiny_model_dir), config(max_scored_tokens=0)) as engine:
        yield engine


class Asked:
    """Keeps what is asked: per call the trunk and its branches, with their completions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[Trunk, Sequence[OpenBranch], Any]] = []
        submit = Completions.submit

        def keeping(completions: Completions, calls: Any, *more: Any) -> Any:
            futures = submit(completions, calls, *more)
            for (trunks, branches), future in zip(calls, futures, strict=True):
                self.calls.append((trunks[0], branches[0], future))
            return futures

        monkeypatch.setattr(Completions, "submit", keeping)

    def texts(self) -> list[list[str]]:
        return [[branch.text for branch in branches] for _, branches, _ in self.calls]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(schema=SCHEMAS, documents=st.lists(st.sampled_from(["red 42", "", "Velor shoe, 2024-05-01"]), max_size=3))
def test_what_comes_fits_the_schema_or_is_named(engine: Engine, schema: Schema, documents: list[str]) -> None:
    told: dict[tuple[int, str], FieldAnswer] = {}
    future = engine.submit_json(documents, schema, on_field=lambda n, field: told.update({(n, field.path): field}))
    results = future.result(TIMEOUT)
    assert len(results) == len(documents)
    assert {(n, path) for n, result in enumerate(results) for path in result.fields} >= told.keys()
    for number, result in enumerate(results):
        errors = list(Draft202012Validator(schema).iter_errors(result.data))
        named = {problem.path for problem in result.problems}
        for error in errors:
            # An optional object that is not whole is named by what it misses.
            assert any(each.startswith(pointer(error.absolute_path)) for each in named), error
        assert json.loads(json.dumps(result.data, allow_nan=False)) == result.data
        for path, field in result.fields.items():
            assert field.path == path
            assert told.get((number, path), field) == field
            if field.status in ("truncated", "invalid"):
                assert any(path.startswith(other) for other in named), path
        check_paths(result, schema, result.data, "")


def check_paths(result: JsonResult, schema: Schema, value: Any, path: str) -> None:
    """Every leaf of the schema has an answer; and where it has a value, this stands in the data."""
    shapes = [each for each in schema.get("anyOf", schema.get("oneOf", ())) if each != {"type": "null"}]
    inner = shapes[0] if len(shapes) == 1 else schema
    if len(shapes) > 1:
        found = result.fields[f"{path}/note"]
        if found.status == "value":
            assert value["note"] == found.value
            is_it = [Draft202012Validator(each["properties"]["note"]).is_valid(found.value) for each in shapes]
            assert is_it.count(True) == 1
            rest = {name: each for name, each in shapes[is_it.index(True)]["properties"].items() if name != "note"}
            check_paths(result, {"type": "object", "properties": rest}, value, path)
        return
    if (inner is not schema and "anyOf" in inner) or "oneOf" in inner:
        check_paths(result, inner, value, path)
        return
    kind = inner.get("type")
    if kind == "object" or kind == ["object", "null"]:
        for name, each in inner["properties"].items():
            own = path + pointer([name])
            check_paths(result, each, value.get(name) if isinstance(value, dict) else None, own)
        return
    items = inner.get("items", {})
    if "properties" in items and path not in result.fields:
        for number, each in enumerate(value or ()):
            check_paths(result, items, each, f"{path}/{number}")
        return
    assert path in result.fields
    field = result.fields[path]
    is_constant_of_nothing = value is None and field.num_tokens == 0
    if field.status == "value" and not is_constant_of_nothing:
        assert value == field.value


class Line(BaseModel):
    name: str
    count: int | None = None


class Order(BaseModel):
    """An order."""

    buyer: str = Field(description="Who pays")
    express: bool | None = None
    lines: list[Line] = []


def test_a_pydantic_model_is_a_schema(engine: Engine, asked: Asked) -> None:
    (result,) = engine.extract_json(["red"], Order, instruction="Read the order.")
    assert "buyer" in result.data or result.problems
    prefix = "".join(piece.text for piece in asked.calls[0][0].prefix)
    assert "Read the order." in prefix
    assert "- buyer: Buyer; Who pays" in prefix
    assert "- lines[].count: Count; a whole number; or null" in prefix


def test_an_abandoned_call_ends_and_others_go_on(tiny_model_dir: Path) -> None:
    with Engine.from_pretrained(str(tiny_model_dir), config()) as engine:
        expected = engine.extract_json(["red"], INVOICE)
        steps = Steps(engine, hold=True)
        gone = engine.submit_json(["red", "blue"] * 20, INVOICE)
        assert steps.entered.wait(TIMEOUT)
        kept = engine.submit_json(["red"], INVOICE)
        gone.abandon()
        steps.release.set()
        with pytest.raises(CancelledError):
            gone.result(TIMEOUT)
        assert kept.result(TIMEOUT)[0].data == expected[0].data
        kept.abandon()
        assert kept.result()[0].data == expected[0].data
        assert engine.extract_json([], INVOICE) == []
        assert engine._decoder.pool.num_used == 0


def test_an_instruction_that_no_tokenizer_takes_is_named(engine: Engine) -> None:
    (result,) = engine.extract_json(["red"], INVOICE, "Read \ud83d this.")
    assert result.data is None
    assert "surrogate" in result.problems[0].message


def test_a_listener_that_fails_takes_nobody_with_it(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: int, __: FieldAnswer) -> None:
        raise ValueError("not mine")

    assert engine.submit_json(["red"], INVOICE, on_field=fail).result(TIMEOUT)[0].data is not None
    assert "not mine" in caplog.text
