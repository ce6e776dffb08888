"""A step that sees all steps before it is what ordinary decoding behind their text is, and computes little again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpd_core import Engine, OpenBranch, Trunk, joined
from hpd_core.models.loading import load_model
from hpd_core.text.template import Piece
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.value_kinds import Boolean, FreeText, Integer, JsonString, ListOf, OneOf
from tests.core.engines import TIMEOUT, config
from tests.core.helpers import NEAR_TIE
from tests.core.oracle import decode_chain
from tests.examples import examples

PREFIX = (Piece("<|im_start|>Compare.\n", True),)
SUFFIX = (Piece("\n{\n", True),)
KINDS = st.sampled_from(
    [FreeText(), JsonString(), Integer(True), Boolean(), OneOf(("red", "blue"), True), ListOf(JsonString())]
)
STEPS = st.builds(OpenBranch, st.sampled_from(['"Price":', '"<|im_end|>":', "x"]), KINDS, st.integers(1, 9))


@pytest.fixture(scope="module")
def engine(tiny_model_dir: Path) -> Iterator[Engine]:
    with Engine.from_pretrained(str(tiny_model_dir), config()) as engine:
        yield engine


@pytest.fixture(scope="module")
def oracle(tiny_model_dir: Path) -> Any:
    return load_model(str(tiny_model_dir), config())


@pytest.fixture(scope="module")
def reads_both_ways(tiny_model_dir: Path) -> Iterator[Engine]:
    settings = config(document_attention="bidirectional", max_tokens_per_step=16)
    with Engine.from_pretrained(str(tiny_model_dir), settings) as engine:
        yield engine


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    both_ways=st.booleans(),
    text=st.sampled_from(["red shoe", "<|im_start|> 42", ""]),
    steps=st.lists(STEPS, max_size=5),
)
def test_the_step_behind_sees_every_step_as_text(
    both_ways: bool, text: str, steps: list[OpenBranch], engine: Engine, reads_both_ways: Engine, oracle: Any
) -> None:
    """In the order of the text also where the document before them is read both ways."""
    engine = reads_both_ways if both_ways else engine
    trunk = Trunk(PREFIX, text, SUFFIX)
    (found,) = engine.complete([trunk], [steps]).result(TIMEOUT)
    last = OpenBranch('"Summary":', FreeText(), 8)
    (behind,) = engine.complete([joined(trunk, steps, found)], [[last]]).result(TIMEOUT)

    segments = SegmentTokenizer(engine._segments.tokenizer)
    ids = [*segments.encode_pieces(PREFIX, begins=True), *segments.encode_text([text])[0]]
    ids += segments.encode_pieces(SUFFIX)
    document = range(len(segments.encode_pieces(PREFIX, begins=True)), len(ids)) if both_ways else range(0)
    lines = [f"{step.text}{each.raw}\n" for step, each in zip(steps, found.branches, strict=True)]
    ids += segments.encode_text(["".join(lines)])[0] + segments.encode_text([last.text])[0]
    expected = decode_chain(oracle, ids, 8, engine.endings, both_ways=document)
    if all(expected.margin(index) > NEAR_TIE for index in range(len(expected.tokens))):
        (written,) = segments.decode([expected.tokens])
        assert behind.branches[0].raw == written.split("\n", 1)[0]
        assert behind.branches[0].num_tokens == len(expected.tokens)
