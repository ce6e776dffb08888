"""The rivals that take several tokens at once: what they see, what they take, and that they learn."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM
from typer.testing import CliRunner

from bench import train_confident
from bench.rivals.confident_examples import ExampleAnswer, block_diffusion, lexical_units, unit_starts
from bench.rivals.confident_tokens import BlockDiffusion, ConfidentDecoder, LexicalUnits, Row
from bench.speed.contenders import BLOCK_DIFFUSION, LEXICAL_UNITS
from bench.speed.trained_contenders import trained_contenders
from bench.workloads.made_up import make_workload
from hpd_core import Attribute, AutoregressiveBaseline, CategorySchema, DocumentTokenizer, EngineConfig, Record
from hpd_core.layout import attention_mask
from hpd_core.models import loading, steering
from hpd_core.training.examples import IGNORED, Example, ExampleBuilder, LabelledDocument
from pipelines.errors import UsageError
from tests.tables import table
from tests.tiny_model import answering_model, answering_tokenizer

ATTRIBUTES = tuple(Attribute(name=name) for name in ("Brand", "Colour", "Size"))
SCHEMAS = {"Shoes": CategorySchema(category="Shoes", attributes=ATTRIBUTES)}
RECORDS = [Record(str(n), "Shoes", {"title": "Velor shoe " * (n + 1) + "red"}) for n in range(5)]
CONFIG = EngineConfig(max_value_tokens=12, max_prompts_per_cohort=3, dtype="float32")
MASK, SIZE = 0, 4


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return answering_tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Any:
    return answering_model(tokenizer)


@pytest.fixture(scope="module")
def example(tokenizer: Any) -> Example:
    builder = ExampleBuilder(tokenizer, CONFIG, "ar", None)
    (document,) = DocumentTokenizer(tokenizer).encode(RECORDS[:1])
    built = builder.build(SCHEMAS["Shoes"], [LabelledDocument(document, {"Brand": ["Velor"], "Colour": None})])
    assert built is not None
    return built


def answers(decoder: AutoregressiveBaseline) -> list[dict[str, Any]]:
    return [dict(result.values) for result in decoder.extract(RECORDS, SCHEMAS)]


@table("num_masks", [0, 3])
def test_lexical_units_that_nobody_is_sure_of_are_greedy_decoding(model: Any, tokenizer: Any, num_masks: int) -> None:
    with AutoregressiveBaseline(model, tokenizer, CONFIG) as baseline:
        expected = answers(baseline)
    with ConfidentDecoder(model, tokenizer, CONFIG, LexicalUnits(MASK, num_masks, 1.1)) as decoder:
        assert answers(decoder) == expected
        unsure = decoder.num_forwards
        decoder.way, decoder.num_forwards = LexicalUnits(MASK, num_masks, 0.0), 0
        answers(decoder)
    assert decoder.num_forwards == unsure if num_masks == 0 else decoder.num_forwards < unsure


@torch.inference_mode()
def slow_blocks(model: LlamaForCausalLM, prompt: Sequence[int], threshold: float, count: int) -> list[int]:
    """Block diffusion without a cache, one answer at a time, its mask written pair by pair."""
    answer: list[int] = []
    while len(answer) < count:
        block = [MASK] * SIZE
        while MASK in block:
            ids = [*prompt, *answer, *block]
            ends = [at if at < len(prompt) else at + SIZE - 1 - (at - len(prompt)) % SIZE for at in range(len(ids))]
            mask = torch.tensor([[0.0 if k <= end else -1e9 for k in range(len(ids))] for end in ends])
            logits = model(input_ids=torch.tensor([ids]), attention_mask=mask[None, None]).logits[0]
            logits[:, MASK] = -torch.inf
            shares, tokens = logits.softmax(-1)[-SIZE - 1 : -1].max(-1)
            empty = [at for at in range(SIZE) if block[at] == MASK]
            best = 0 if len(empty) == SIZE else max(empty, key=lambda at: float(shares[at]))
            for at in empty:
                if at == best or shares[at] >= threshold:
                    block[at] = int(tokens[at])
        answer += block
    return answer[:count]


@table("threshold", [1.1, 0.2])
def test_block_diffusion_with_a_cache_is_block_diffusion_without_one(
    model: Any, tokenizer: Any, threshold: float
) -> None:
    prompts = [list(range(5, 5 + length)) for length in (9, 4, 6)]
    steering.use_own_attention(model)
    with ConfidentDecoder(model, tokenizer, CONFIG, BlockDiffusion(MASK, SIZE, threshold)) as decoder:
        written = [row.answer[: row.end] for row in decoder._write(prompts, 14)]
        num_forwards = decoder.num_forwards
    for prompt, answer in zip(prompts, written, strict=True):
        assert answer == slow_blocks(model, prompt, threshold, 14)[: len(answer)]
    assert (num_forwards == 3 * 16) == (threshold > 1), "a token a forward"


def test_what_is_taken() -> None:
    row = Row([7, 8], 1, [MASK] * 3)
    LexicalUnits(MASK, 3, 0.9).take(row, [1, 2, 3, 4], [0.95, 0.9, 0.2, 0.99])
    assert row.answer == [8, 1, 2]
    blocks, row = BlockDiffusion(MASK, 4, 0.9), Row([7], 1, [MASK] * 4)
    blocks.take(row, [1, 2, 3, 4], [0.1, 0.2, 0.95, 0.3])
    assert row.block == [1, MASK, 3, MASK]
    blocks.take(row, [9, 2, 9, 4], [0.99, 0.2, 0.99, 0.3])
    assert row.block == [1, MASK, 3, 4]
    blocks.take(row, [9, 2, 9, 9], [0.99, 0.2, 0.99, 0.99])
    assert (row.answer, row.block) == ([1, 2, 3, 4], [MASK] * 4)


def seen(example: Example) -> list[set[int]]:
    """The tokens that each of the example's sees, by the rule of all layouts."""
    return [set(np.flatnonzero(row).tolist()) for row in attention_mask(example.filled)]


def test_masks_of_lexical_units_see_what_is_certain_and_their_own(example: Example) -> None:
    answer, first = ExampleAnswer(example), len(example.filled.token_ids)
    starts = unit_starts([0.5, 0.99, 0.99, 0.5, *[0.99] * (len(answer.tokens) - 4)], 0.9, 5, random.Random(3))
    assert {0, 3} <= set(starts)
    assert max(np.diff(starts)) <= 5
    masked = lexical_units(example, starts, 4, MASK)
    filled, whom = masked.filled, seen(masked)
    assert whom[:first] == [set(range(index + 1)) for index in range(first)], "as before"
    assert (filled.labels[:first] == example.filled.labels).all()
    index = first
    for start in starts:
        for place in range(start + 1, min(start + 4, len(answer.tokens) - 1) + 1):
            own = set(range(index - (place - start - 1), index + 1))
            assert whom[index] == set(range(answer.start + start + 1)) | own
            assert (filled.positions[index], filled.token_ids[index]) == (answer.position + place, MASK)
            assert filled.labels[index] == answer.labels[place]
            index += 1
    assert index == len(filled.token_ids)


def test_blocks_see_themselves_and_earlier_ones(example: Example) -> None:
    answer = ExampleAnswer(example)
    noisy = block_diffusion(example, SIZE, MASK, random.Random(1))
    filled, whom, prompt = noisy.filled, seen(noisy), set(range(answer.start + 1))
    in_prompt = np.arange(len(filled.token_ids)) <= answer.start
    tokens = answer.tokens + answer.tokens[-1:] * (-len(answer.tokens) % SIZE)
    for index in range(answer.start + 1, len(filled.token_ids)):
        place = filled.positions[index] - answer.position - 1
        block = (filled.positions - answer.position - 1) // SIZE
        is_clean = ~in_prompt & (filled.scopes == 0)
        copy = ~in_prompt & (block == place // SIZE) & (filled.scopes == filled.scopes[index])
        expected = prompt | set(np.flatnonzero(copy | (is_clean & (block < place // SIZE))).tolist())
        assert whom[index] == expected
        label, is_last = filled.labels[index], place % SIZE == SIZE - 1
        if filled.scopes[index] == 0:
            assert filled.token_ids[index] == tokens[place]
            assert (label != IGNORED) <= is_last
        elif not is_last and filled.token_ids[index + 1] == MASK:
            # An attribute that is not taught has no label, whatever stands for it.
            assert label in (tokens[place + 1], IGNORED)
        else:
            assert label == IGNORED
    shown = filled.token_ids[filled.scopes > 0]
    assert {MASK} < set(shown.tolist())


def gold_lines() -> list[str]:
    colours = ["red", "blue", "green", "black"]
    rows = [
        {"input": f"Velor shoe {colours[n % 4]} {40 + n}", "category": "Shoes"}
        | {"target_scores": {"Brand": {"Velor": 1}, "Colour": {colours[n % 4]: 1}}}
        for n in range(12)
    ]
    return [f"{json.dumps(row)}\n" for row in rows]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for part in ("train", "test"):
        (folder / f"oa-mine.{part}.jsonl").write_text("".join(gold_lines()), encoding="utf-8")
    return folder


@table("objective", ["lexical-units", "block-diffusion"])
def test_a_model_learns(data: Path, tiny_model_dir: Path, tmp_path: Path, objective: str) -> None:
    settings = ["validation.share=0", "optimizer.learning_rate=0.01"]
    course = train_confident.load_course(data, "oa-mine", str(tiny_model_dir), tmp_path, 0, settings)
    make_pack: Any = train_confident.BlockPacks(SIZE, MASK, 0)
    if objective == "lexical-units":
        make_pack = train_confident.UnitPacks(course.trained.model, SIZE, MASK, 0.5, 0)
    training = train_confident.Training(course, make_pack)
    losses = [training.take(course.first_epoch[0], 0.2) for _ in range(6)]
    assert losses[-1] < 0.8 * losses[0]


def test_what_is_trained_is_a_contender(data: Path, tiny_model_dir: Path, tmp_path: Path) -> None:
    tiny, objectives = str(tiny_model_dir), ("lexical-units", "block-diffusion")
    for objective in objectives:
        arguments = [str(data), "--objective", objective, "--from", tiny, "--out", str(tmp_path / objective)]
        invoke(train_confident.app, *arguments, "--minutes", "0.005", "--masks", str(SIZE))
    workload = make_workload("listings", loading.load_tokenizer(tiny, CONFIG), 12, 2)
    folders_of = {LEXICAL_UNITS: str(tmp_path / objectives[0]), BLOCK_DIFFUSION: None}
    ((name, contender),) = trained_contenders(folders_of, workload, CONFIG, 2).items()
    run = contender()
    assert name == LEXICAL_UNITS
    assert run.num_steps
    assert "forwards a product" in str(run.note)
    folders_of = {LEXICAL_UNITS: str(tmp_path / "block-diffusion"), BLOCK_DIFFUSION: None}
    with pytest.raises(UsageError, match="holds no model that was trained for lexical-units"):
        trained_contenders(folders_of, workload, CONFIG, 2)


def invoke(app: Any, *arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout
