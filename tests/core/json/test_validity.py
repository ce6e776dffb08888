"""Models that write garbage: whatever they want to write, what comes is valid, or cut and said to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import regex
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from hpd_core import Engine
from tests.core.engines import TIMEOUT, config
from tests.examples import examples
from tests.tiny_model import answering_model, build_tokenizer, sentencepiece_tokenizer

from .schemas import SCHEMAS, Schema

CHECKED = {"maxLength", "minimum", "maximum", "format", "required"}
"""What of a schema is looked at when the values are there: its limits, and whether an object that may miss is whole."""
WISHES = {
    "anything": ".",
    "line breaks": r"[\n\r\t]|^<0x0[0-9A-F]>$",
    "quotes": r'["\\,\]\[]',
    "escapes": r'\\|^["ud89abcfDE0]+$|^<0x5C>$',
    "half letters": "\ufffd|^<0x[89A-F]",
    "the end": "<\\|im_end\\|>|</s>",
}
"""Which tokens a model would like best."""


def wishful_engine(tokenizer: Any, wish: str, seed: int) -> Engine:
    """A model of random weights that likes some tokens."""
    torch.manual_seed(seed)
    model = answering_model(tokenizer)
    pattern = regex.compile(wish)
    names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    texts = [(name, tokenizer.decode([token])) for token, name in enumerate(names)]
    liked = [token for token, both in enumerate(texts) if any(map(pattern.search, both))]
    with torch.no_grad():
        model.lm_head.weight.copy_(torch.randn_like(model.lm_head.weight) * 0.2)
        model.lm_head.weight[liked] *= 3.0
    return Engine(model, tokenizer, config(max_scored_tokens=0))


@pytest.fixture(scope="module", params=[*WISHES])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with wishful_engine(build_tokenizer(), WISHES[request.param], len(request.param)) as engine:
        yield engine


@pytest.fixture(scope="module", params=["quotes", "escapes", "half letters"])
def byte_engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Bytes that are no letters take those around them with them, in texts of this tokenizer."""
    with wishful_engine(sentencepiece_tokenizer(), WISHES[request.param], 1) as engine:
        yield engine


def check(engine: Engine, schema: Schema, documents: list[str]) -> None:
    for result in engine.submit_json(documents, schema).result(TIMEOUT):
        statuses = {field.status for field in result.fields.values()}
        assert statuses <= {"value", "absent", "truncated"}, result
        said = {problem.path for problem in result.problems}
        if "truncated" in statuses:
            assert said
            continue
        errors = list(Draft202012Validator(schema).iter_errors(result.data))
        inner = [each for error in errors for each in (error, *(error.context or ())) if each.validator != "type"]
        assert {each.validator for each in inner} <= CHECKED | {"anyOf"}, (errors, result)
        assert bool(errors) <= bool(said)


relaxed: Callable[..., Any] = settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
DOCUMENTS = st.lists(st.sampled_from(["red 42", "", 'C:\\user "5\\" x\ny']), min_size=1, max_size=2)


@relaxed
@given(schema=SCHEMAS, documents=DOCUMENTS)
def test_what_no_model_can_make_invalid(engine: Engine, schema: Schema, documents: list[str]) -> None:
    check(engine, schema, documents)


@relaxed
@given(schema=SCHEMAS, documents=DOCUMENTS)
def test_nor_one_that_writes_bytes(byte_engine: Engine, schema: Schema, documents: list[str]) -> None:
    check(byte_engine, schema, documents)
