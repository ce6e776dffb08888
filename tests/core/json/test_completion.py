"""The layer under the catalog: branches of any kind are what decoding each by itself is."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from hpd_core import Completion, Engine, OpenBranch, PatternError, Trunk
from hpd_core.models.loading import load_model, load_tokenizer
from hpd_core.requests import prompt_builder
from hpd_core.requests.calls import TrunkCompletions
from hpd_core.text.member_tries import closed_lines
from hpd_core.text.template import Piece
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.value_kinds import (
    Boolean,
    FreeText,
    Grammar,
    Integer,
    JsonString,
    ListOf,
    Number,
    OneOf,
    Pattern,
    ValueKind,
    is_closed,
)
from tests.core.engines import TIMEOUT, config
from tests.core.helpers import LOGPROB_TOLERANCE, NEAR_TIE
from tests.core.oracle import decode_chain, spelling_logprobs
from tests.examples import examples
from tests.tables import table

from .kinds import PATTERNS, WHOLE, kind_choices


@pytest.fixture(scope="module")
def engine(tiny_model_dir: Path) -> Iterator[Engine]:
    with Engine.from_pretrained(str(tiny_model_dir), config()) as engine:
        yield engine


@pytest.fixture(scope="module")
def oracle(tiny_model_dir: Path) -> Any:
    return load_model(str(tiny_model_dir), config())


@pytest.fixture(scope="module")
def tokenizer(tiny_model_dir: Path) -> Any:
    return load_tokenizer(str(tiny_model_dir), config())


def trunk(text: str) -> Trunk:
    return Trunk(
        (Piece("<|im_start|>Answer.\n", True), Piece("<|im_end|> is text", False)), text, (Piece("\n{\n", True),)
    )


def seen_ids(segments: SegmentTokenizer, of: Trunk, branch: OpenBranch) -> list[int]:
    """All that a value sees, put together without the engine."""
    ids = [*segments.encode_pieces(of.prefix), *segments.encode_text([of.text])[0], *segments.encode_pieces(of.suffix)]
    return [*ids, *segments.encode_text([branch.text])[0]]


def nullables(build: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(lambda kind, nullable: replace(kind, nullable=nullable), build, st.booleans())


SCALARS = st.one_of(
    st.just(JsonString()),
    st.sampled_from(PATTERNS).map(Pattern),
    st.sampled_from([("red", "redder", "blue"), (1, 12, 1.5), ("a", 1, True), ('q"\\', "é"), tuple("abcdefghijk")]).map(
        OneOf
    ),
    st.just(Number()),
    st.just(Integer()),
    st.just(Boolean()),
)
GRAMMARS = st.sampled_from(WHOLE).map(lambda schema: Grammar(json.dumps(schema)))
KINDS = st.one_of(st.just(FreeText()), SCALARS, SCALARS.map(ListOf), GRAMMARS)
BRANCHES = st.builds(OpenBranch, st.sampled_from(['"Brand":', '"Size":', "x"]), nullables(KINDS), st.integers(1, 12))


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    calls=st.lists(
        st.tuples(st.sampled_from(["red shoe", "Size 42, blue", ""]), st.lists(BRANCHES, max_size=5)), max_size=4
    )
)
def test_every_value_is_what_decoding_it_alone_is(
    calls: list[tuple[str, list[OpenBranch]]], engine: Engine, oracle: Any, tokenizer: Any
) -> None:
    trunks, branches = [trunk(text) for text, _ in calls], [own for _, own in calls]
    results = engine.complete(trunks, branches).result(TIMEOUT)
    assert [len(result.branches) for result in results] == [len(own) for own in branches]
    segments = SegmentTokenizer(tokenizer)
    for of, own, result in zip(trunks, branches, results, strict=True):
        assert result.error is None
        for branch, found in zip(own, result.branches, strict=True):
            ids = seen_ids(segments, of, branch)
            if found.choice in ("scored", "beam"):
                check_chosen(engine, oracle, segments, ids, branch.kind, found)
            else:
                check_decoded(engine, oracle, segments, ids, branch, found)


def check_decoded(
    engine: Engine, oracle: Any, segments: SegmentTokenizer, ids: list[int], branch: OpenBranch, found: Completion
) -> None:
    """Token for token what the oracle writes; behind a near tie it need not be."""
    most = branch.max_tokens or 0
    if is_closed(branch.kind):
        most = max(most, found.num_tokens)  # a member is known, however long it is
    choices = kind_choices(branch.kind, segments.tokenizer)
    expected = decode_chain(oracle, ids, most, engine.endings, choices=choices)
    if any(expected.margin(index) <= NEAR_TIE for index in range(len(expected.tokens))):
        return
    (text,) = segments.decode([expected.tokens])
    assert (found.raw, found.num_tokens) == (text.split("\n", 1)[0], len(expected.tokens))
    logprobs = [float(row.log_softmax(-1)[token]) for row, token in zip(expected.logits, expected.tokens, strict=True)]
    assert found.logprob_min == pytest.approx(min(logprobs), abs=LOGPROB_TOLERANCE)
    if not expected.closed and found.status == "value":
        assert isinstance(found.value, str | list | dict | bool), "a number that was cut may have more digits"
    if isinstance(branch.kind, Grammar) and found.status == "value":
        assert Draft202012Validator(json.loads(branch.kind.schema)).is_valid(found.value)


def check_chosen(
    engine: Engine, oracle: Any, segments: SegmentTokenizer, ids: list[int], kind: ValueKind, found: Completion
) -> None:
    """The member whose spellings are the likeliest; null, where it has a half."""
    lines, members = zip(*closed_lines(kind), strict=True)
    spellings = [tokens[: engine.endings.length(tokens, True)] for tokens in segments.encode_text(lines)]
    mass: dict[int, float] = dict.fromkeys(members, 0.0)
    for tokens, member in zip(spellings, members, strict=True):
        mass[member] += math.exp(sum(spelling_logprobs(oracle, ids, tokens)))
    null = mass.pop(0, 0.0)
    if abs(null - 0.5) < LOGPROB_TOLERANCE or found.choice == "beam":
        return
    if found.status == "absent":
        assert null >= 0.5
        return
    assert null < 0.5
    values = kind.values if isinstance(kind, OneOf) else (True, False)
    own = next(
        number
        for number, value in enumerate(values, start=1)
        if (type(value), value) == (type(found.value), found.value)
    )
    assert mass[own] >= max(mass.values()) * (1 - LOGPROB_TOLERANCE)
    assert found.probability == pytest.approx((1 - null) * mass[own] / sum(mass.values()), abs=0.015)


def test_what_cannot_be_taken_is_said_and_the_rest_is_answered(engine: Engine) -> None:
    branch = OpenBranch('"Brand":', Number())
    long, fine, half = engine.complete([trunk("red " * 3000), trunk("red"), trunk("\ud83d")], [[branch]] * 3).result(
        TIMEOUT
    )
    assert long.error is not None
    assert "positions of the model" in long.error
    assert [each.status for each in long.branches] == ["error"]
    assert fine.error is None
    assert half.error is not None
    with pytest.raises(ValueError, match="there are 2"):
        engine.complete([trunk("a")] * 2, [[branch]])
    with pytest.raises(PatternError, match="backreference"):
        engine.complete([trunk("a")], [[OpenBranch("a:", Pattern(r"(a)\1"))]])


def written(result: TrunkCompletions) -> list[tuple[Any, str, str]]:
    """What must be equal between two runs; log-probabilities may differ in their last bits."""
    return [(found.value, found.status, found.raw) for found in result.branches]


@table(
    ("empty", "branch", "said"),
    [(Trunk((), ""), "a:", "trunk has no text"), (Trunk((), "x"), "", "branch has no text")],
)
def test_where_nothing_stands_before_a_value_the_rest_is_answered(
    engine: Engine, empty: Trunk, branch: str, said: str
) -> None:
    before, refused, behind = engine.complete(
        [Trunk((), "x"), empty, Trunk((), "y")], [[OpenBranch("a:")], [OpenBranch(branch)], [OpenBranch("b:")]]
    ).result(TIMEOUT)
    assert (before.error, behind.error) == (None, None)
    assert said in str(refused.error)
    assert [each.status for each in refused.branches] == ["error"]


@table("step", [1, 2, 4])
def test_it_may_be_abandoned_at_any_step(tiny_model_dir: Path, step: int) -> None:
    """Closed values are being chosen, others are long; prompts are prefilled in parts."""
    branches = [OpenBranch('"a":', OneOf(tuple("abcdefgh"))), OpenBranch('"b":', JsonString(), 30)]
    with Engine.from_pretrained(str(tiny_model_dir), config(max_tokens_per_step=60)) as engine:
        expected = engine.complete([trunk("red")], [branches]).result(TIMEOUT)
        made, go = engine._decoder.step, threading.Event()
        calls = iter(range(10_000))

        def stepping() -> Any:
            report = made()
            if next(calls) == step:
                go.wait(TIMEOUT)
            return report

        engine._decoder.step = stepping  # type: ignore[method-assign]
        gone = engine.complete([trunk(f"shoe {number}") for number in range(6)], [branches] * 6)
        kept = engine.complete([trunk("red")], [branches])
        gone.abandon()
        go.set()
        with pytest.raises(CancelledError):
            gone.result(TIMEOUT)
        assert written(kept.result(TIMEOUT)[0]) == written(expected[0])
        assert written(engine.complete([trunk("red")], [branches]).result(TIMEOUT)[0]) == written(expected[0])
        assert engine._decoder.pool.num_used == 0


@table(
    "kind",
    [
        *(OneOf(()), OneOf(("a", "b", "a")), OneOf(("a", None)), ListOf(OneOf(()))),
        *(ListOf(ListOf(Integer())), ListOf(FreeText()), None),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_kind_is_refused(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"is no kind|different values"):
        OpenBranch("a:", kind)


def test_many_branches_are_parted_over_prompts_that_share_their_text(engine: Engine) -> None:
    branches = [OpenBranch(f'"f{number}":', JsonString() if number % 2 else Integer(), 4) for number in range(150)]
    of = trunk(" ".join(f"word {number}" for number in range(60)))
    future = engine.complete([trunk("red"), of], [branches[:2], branches])
    _, whole = future.result(TIMEOUT)
    parts = [engine.complete([of], [branches[at : at + 50]]).result(TIMEOUT)[0] for at in (0, 50, 100)]
    assert written(whole) == [each for part in parts for each in written(part)]
    assert whole.num_trunk_tokens == parts[0].num_trunk_tokens
    assert whole.num_prompt_tokens == whole.num_trunk_tokens + sum(
        part.num_prompt_tokens - part.num_trunk_tokens for part in parts
    )
    assert future.metrics.document_tokens_shared > 100, "it is computed once"


def test_prefixes_of_strangers_are_not_kept_for_ever(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each the ids are: a hundred of a million tokens would be gigabytes."""
    monkeypatch.setattr(prompt_builder, "_MOST_KEPT", 1000)
    for number in range(5):
        prefixed = Trunk((Piece(f"{number} " * 200, False),), "Velor")
        (found,) = engine.complete([prefixed], [[OpenBranch('"a":', max_tokens=1)]]).result(TIMEOUT)
        assert found.error is None
    assert 0 < sum(map(len, engine._builder._prefixes.values())) <= 1000
