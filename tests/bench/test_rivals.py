"""The benchmark's rivals on a tiny model: each writes what plain greedy decoding writes, as much as it is timed for."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from bench.rivals.generate import run_by_attribute, run_continuous, run_generate, run_prompt_lookup
from bench.rivals.parallel_decoding import BlockDiffusion, LexicalUnits, decode, run_anpd, run_jacobi
from bench.speed.contenders import (
    ANPD,
    BLOCK_DIFFUSION,
    BY_ATTRIBUTE,
    CONTINUOUS,
    DRAFT_MODEL,
    JACOBI,
    LEXICAL_UNITS,
    PROMPT_LOOKUP,
    check_lengths,
)
from bench.workloads.workload import ForcedRecord, Workload, branch_prompts
from hpd_core import EngineConfig
from hpd_core.models import loading
from tests.bench.test_benchmark import NUM_RECORDS, RIVALS, run
from tests.pipelines.conftest import Workplace, products
from tests.tiny_model import answering_model, answering_tokenizer

Answers = list[list[int]]


@pytest.fixture(scope="module")
def model() -> Any:
    return answering_model(answering_tokenizer())


@pytest.fixture
def workload(workplace: Workplace) -> Workload:
    workplace.write_parquet("a.parquet", products(NUM_RECORDS))
    gold = workplace.folder / "gold.jsonl"
    rows = [{"product_id": row["id"], "category": row["category"], "values": {}} for row in products(NUM_RECORDS)]
    rows[3]["values"] = {"Weight": ["1250"]}
    rows[4]["values"] = {"Brand": ["Velor"], "Sizes": ["41", "42"]}
    gold.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    job = workplace.config()
    return Workload.of_gold(loading.load_tokenizer(job.model, job.engine), job, str(gold), None)


@torch.inference_mode()
def greedy(model: Any, prompt: Sequence[int], count: int, stop: list[int] | None = None) -> list[int]:
    """Plain greedy decoding, one prompt in a batch of its own."""
    ids = torch.tensor([prompt])
    options: dict[str, Any] = {"do_sample": False, "pad_token_id": 0, "eos_token_id": stop, "max_new_tokens": count}
    row: list[int] = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **options)[0].tolist()
    return row[len(prompt) :]


def continuous(model: Any, records: Sequence[ForcedRecord], batch_size: int) -> Answers:
    seconds, answers = run_continuous(model, records, batch_size)
    assert seconds > 0
    return answers


@pytest.mark.parametrize(
    "rival", [run_generate, run_prompt_lookup, run_jacobi, run_anpd, continuous], ids=lambda rival: rival.__name__
)
@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_rival_writes_what_plain_greedy_decoding_writes(
    model: Any, workload: Workload, rival: Callable[..., Answers], batch_size: int
) -> None:
    records = workload.forced(model.config, EngineConfig())
    answers = rival(model, records, batch_size)
    assert answers == [greedy(model, record.trunk, record.answer_length) for record in records]
    assert len({len(answer) for answer in answers}) > 2, "lengths as the gold answers have them"
    check_lengths(answers, records)
    assert model.config._attn_implementation == "sdpa", "as it was"


MASK, SIZE = 0, 4


@torch.inference_mode()
def slow_blocks(model: Any, prompt: Sequence[int], threshold: float, count: int) -> list[int]:
    """Block diffusion without a cache, its mask written pair by pair."""
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


@pytest.mark.parametrize("length", [4, 6, 9])
def test_what_is_taken_without_proof(model: Any, length: int) -> None:
    prompt = list(range(5, 5 + length))
    expected = greedy(model, prompt, 14)
    for num_masks in (0, 3):
        assert decode(model, prompt, 14, LexicalUnits(MASK, num_masks, 1.1)) == expected, "sure of nothing"
    for threshold in (1.1, 0.2):
        guesser = BlockDiffusion(prompt, MASK, SIZE, threshold)
        assert decode(model, prompt, 14, guesser) == slow_blocks(model, prompt, threshold, 14)


def test_by_attribute_every_value_is_a_sequence_of_its_own(model: Any, workload: Workload) -> None:
    records = workload.forced(model.config, EngineConfig())
    asked = [each for record in records for each in zip(branch_prompts(record.layout), record.lengths, strict=True)]
    assert run_by_attribute(model, records, 4) == [greedy(model, prompt, count) for prompt, count in asked]


@pytest.mark.full
def test_on_request_everybody_runs(workplace: Workplace) -> None:
    workplace.write_parquet("a.parquet", products(NUM_RECORDS))
    drafts = workplace.folder / "draft"
    tokenizer = answering_tokenizer()
    answering_model(tokenizer, num_hidden_layers=1).save_pretrained(drafts)
    tokenizer.save_pretrained(drafts)
    result = run(workplace, "--all", "--limit", "3", "--draft-model", str(drafts))
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout.strip().splitlines()[-1])
    on_request = {PROMPT_LOOKUP, DRAFT_MODEL, CONTINUOUS, JACOBI, ANPD, LEXICAL_UNITS, BLOCK_DIFFUSION}
    assert on_request | {BY_ATTRIBUTE} < set(facts["seconds"])
    assert {"transformers generate", "tree", "ceiling"} < set(facts["seconds"])
    assert set(facts["notes"]) == on_request | {"floor"}
    for name in on_request - {CONTINUOUS}:
        assert facts["notes"][name].startswith("one product at a time")
        assert " forwards wrote " in facts["notes"][name]
    assert f"{JACOBI}: {facts['notes'][JACOBI]}." in " ".join(result.stdout.split())

    alone = run(workplace, "--only", ANPD, "--limit", "3")
    assert set(json.loads(alone.stdout.splitlines()[-1])["seconds"]) == {ANPD, "tree", "ceiling", "floor"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "vLLM AR"], "--only 'vLLM AR' needs --vllm"),
        (["--only", DRAFT_MODEL], "--only 'generate, draft model' needs --draft-model"),
        (["--only", ANPD, "--all"], "--only and --all exclude each other"),
        (["--vllm", "python", "--set", "engine.quantization=nf4"], "--vllm runs the weights as they are stored"),
        (["--draft-model", "/nowhere"], "cannot load the model '/nowhere'"),
    ],
)
def test_what_cannot_run_is_an_error(workplace: Workplace, arguments: list[str], message: str) -> None:
    workplace.write_parquet("a.parquet", products(NUM_RECORDS))
    result = run(workplace, *arguments)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith(f"Error: {message}")


@pytest.mark.skipif(not RIVALS.exists(), reason="no vLLM here; `make rivals` installs it")
def test_vllm_answers_by_schema(workplace: Workplace) -> None:
    workplace.write_parquet("a.parquet", products(4))
    settings = ("--vllm", str(RIVALS), "--limit", "4", "--set", "model=smollm2", "--set", "engine.dtype=bfloat16")
    result = run(workplace, *settings, "--only", "vLLM AR, JSON schema")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout.strip().splitlines()[-1])
    assert set(facts["seconds"]) == {"vLLM AR, JSON schema", "tree", "ceiling", "floor"}
    assert " of 4 answers were cut at their limit" in facts["notes"]["vLLM AR, JSON schema"]
