"""llama.cpp is asked for what the others are asked for, and its cache is used as it allows."""

from __future__ import annotations

import ctypes
import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter, LlamaFileType
from transformers import LlamaConfig

from bench.rivals.llama_cpp_process import Gguf, LlamaCppProcess, ggufs
from bench.rivals.llama_cpp_requests import (
    MOST_SEQUENCES,
    ForkedRecord,
    ForkedRequests,
    one_per_attribute,
    whole_answers,
)
from bench.workloads.made_up import make_workload
from bench.workloads.workload import ForcedRecord, Workload, branch_prompts
from hpd_core import EngineConfig
from hpd_core.models import loading
from hpd_core.models.embedded import embedded_gguf
from pipelines.errors import UsageError
from tests.bench.test_benchmark import NUM_RECORDS, RIVALS, expected_tokens, run
from tests.pipelines.conftest import Workplace, products
from tests.tiny_model import answering_model, answering_tokenizer

VOCABULARY_SIZE = 97


@pytest.fixture(scope="module")
def model() -> Any:
    return answering_model(answering_tokenizer())


@pytest.fixture
def forced(workplace: Workplace, model: Any) -> list[ForcedRecord]:
    workplace.write_parquet("a.parquet", products(NUM_RECORDS))
    run(workplace, "--only", "nobody")  # writes the gold file
    job = workplace.config()
    tokenizer = loading.load_tokenizer(job.model, job.engine)
    workload = Workload.of_gold(tokenizer, job, str(workplace.folder / "gold.jsonl"), None)
    return workload.forced(model.config, job.engine)


def asked(requests: ForkedRequests) -> list[tuple[list[int], int]]:
    """Every answer's whole prompt and its length."""
    return [
        (requests.prefixes[record.prefix] + record.document + branch, limit)
        for record in requests.records
        for branch, limit in zip(record.branches, record.limits, strict=True)
    ]


# What it is asked.


def test_whole_answers_are_those_of_the_other_rivals(forced: list[ForcedRecord]) -> None:
    requests = whole_answers(forced)
    assert asked(requests) == [(record.trunk, record.answer_length) for record in forced]
    assert len(requests.prefixes) == 2, "one for each category"
    assert all(record.branches[0] for record in requests.records), "somebody writes behind the last token"
    assert requests.num_written == sum(record.answer_length for record in forced)


def test_a_fan_out_forwards_what_tree_forwards(workplace: Workplace, forced: list[ForcedRecord]) -> None:
    requests = one_per_attribute(forced)
    prompts = [prompt for record in forced for prompt in branch_prompts(record.layout)]
    assert asked(requests) == list(zip(prompts, [n for record in forced for n in record.lengths], strict=True))
    assert requests.num_tokens == expected_tokens(workplace)
    assert requests.num_written == sum(sum(record.lengths) for record in forced)


def test_there_is_room_for_the_longest_record() -> None:
    config = LlamaConfig(max_position_embeddings=8192)
    workload = make_workload("wide", answering_tokenizer(), 20, 3)
    workload = replace(workload, documents=[(list(ids) * 3000)[:3000] for ids in workload.documents])
    records = workload.forced(config, EngineConfig())
    for requests in (whole_answers(records), one_per_attribute(records)):
        longest = max(len(r.document) + sum(map(len, r.branches)) for r in requests.records)
        assert requests.batch_size > longest > 3000
        caches = 1 if requests.is_shared else requests.num_sequences + 1
        assert requests.num_cells // caches > longest + max(map(len, requests.prefixes))
    many = workload.with_attributes(300).forced(config, EngineConfig())
    with pytest.raises(UsageError, match=r"llama\.cpp has 255 sequences for answers, and a record has 300 attributes"):
        one_per_attribute(many)


# How it is driven: by a model that says a number of all it sees.


def following(tokens: list[int]) -> int:
    return (7 * sum(tokens) + sum(n * token for n, token in enumerate(tokens)) + len(tokens)) % VOCABULARY_SIZE


class Batch(ctypes.Structure):
    _fields_ = [
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.POINTER(ctypes.c_float)),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


class Pretended:
    """What of llama.cpp is called, with its limits. A cell of the cache is an object that sequences share or copy."""

    def __init__(self) -> None:
        self.sequences: dict[int, list[tuple[int, object]]] = {}
        self.parameters = SimpleNamespace()
        self.num_forwarded, self.num_single, self.batches = 0, 0, 0
        self.logits = np.zeros((0, VOCABULARY_SIZE), np.float32)

    def decode(self, _: Any, batch: Batch) -> int:
        self.batches += 1
        if batch.n_tokens == 1:
            self.num_single += 1
        else:
            self.num_forwarded += batch.n_tokens
        answers = []
        for number in range(batch.n_tokens):
            ids = [batch.seq_id[number][each] for each in range(batch.n_seq_id[number])]
            assert ids
            assert all(0 <= each < self.parameters.n_seq_max for each in ids)
            assert len(ids) == 1 or self.parameters.kv_unified, "caches apart share no token"
            cell = object()
            for each in ids:
                cells = self.sequences.setdefault(each, [])
                assert batch.pos[number] == len(cells), "positions go on"
                cells.append((batch.token[number], cell))
                assert self.parameters.kv_unified or len(cells) <= self.parameters.n_ctx // self.parameters.n_seq_max
            if batch.logits[number]:
                assert len(ids) == 1
                answers.append(following([token for token, _ in self.sequences[ids[0]]]))
        cells_in_use = {id(cell) for cells in self.sequences.values() for _, cell in cells}
        assert not self.parameters.kv_unified or len(cells_in_use) <= self.parameters.n_ctx
        assert batch.n_tokens <= self.parameters.n_batch
        self.logits = np.eye(VOCABULARY_SIZE, dtype=np.float32)[answers]
        return 0

    def copy(self, _: Any, source: int, target: int, *bounds: int) -> None:
        assert bounds == (-1, -1), "caches apart are copied whole"
        cells = self.sequences.get(source, [])
        self.sequences[target] = cells[:] if self.parameters.kv_unified else [(token, object()) for token, _ in cells]

    def module(self) -> ModuleType:
        module = ModuleType("llama_cpp")

        def init(_: Any, parameters: Any) -> str:
            self.parameters = parameters
            return "context"

        functions: dict[str, Callable[..., Any]] = {
            "llama_model_default_params": SimpleNamespace,
            "llama_model_load_from_file": lambda path, _: path,
            "llama_model_get_vocab": lambda _: None,
            "llama_vocab_n_tokens": lambda _: VOCABULARY_SIZE,
            "llama_context_default_params": SimpleNamespace,
            "llama_init_from_model": init,
            "llama_get_memory": lambda _: "memory",
            "llama_free": lambda _: self.sequences.clear(),
            "llama_memory_clear": lambda *_: self.sequences.clear(),
            "llama_memory_seq_rm": lambda _, number, *__: self.sequences.pop(number, None),
            "llama_memory_seq_cp": self.copy,
            "llama_perf_context_reset": lambda _: vars(self).update(num_forwarded=0, num_single=0),
            "llama_perf_context": lambda _: SimpleNamespace(
                n_p_eval=self.num_forwarded, n_eval=max(1, self.num_single)
            ),
            "llama_synchronize": lambda _: None,
            "llama_decode": self.decode,
            "llama_get_logits": lambda _: self.logits.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
        }
        for name, function in functions.items():
            setattr(module, name, function)
        module.llama_batch = Batch  # type: ignore[attr-defined]
        return module


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    found = Pretended()
    monkeypatch.setitem(sys.modules, "llama_cpp", found.module())
    monkeypatch.delitem(sys.modules, "bench.rivals.llama_cpp_script", raising=False)
    return found


def answered(requests: ForkedRequests) -> tuple[list[list[int]], int]:
    """What the script writes, the second time, and the tokens that llama.cpp has counted then."""
    script = importlib.import_module("bench.rivals.llama_cpp_script")
    work = {"gguf": "a.gguf", "in_bf16": False, "vocabulary_size": VOCABULARY_SIZE, "num_threads": 2}
    engine = script.LlamaCpp(work)
    plain = json.loads(json.dumps(asdict(requests)))
    engine.prepare(plain)
    engine.run(plain)
    return engine.run(plain), engine.num_forwarded


def expected(requests: ForkedRequests) -> list[list[int]]:
    answers = []
    for prompt, limit in asked(requests):
        tokens = list(prompt)
        for _ in range(limit):
            tokens.append(following(tokens))
        answers.append(tokens[len(prompt) :])
    return answers


@pytest.mark.parametrize("ask", [whole_answers, one_per_attribute])
@pytest.mark.parametrize("num_sequences", [4, MOST_SEQUENCES])
def test_every_answer_is_that_of_its_own_prompt(
    pretended: Pretended, forced: list[ForcedRecord], ask: Callable[..., ForkedRequests], num_sequences: int
) -> None:
    requests = ask(forced)
    if not requests.is_shared:
        num_sequences = min(num_sequences, len(forced))
        num_cells = requests.num_cells // (requests.num_sequences + 1) * (num_sequences + 1)
        requests = replace(requests, num_cells=num_cells)
    requests = replace(requests, num_sequences=num_sequences)
    answers, num_tokens = answered(requests)
    assert [[token % VOCABULARY_SIZE for token in answer] for answer in answers] == expected(requests)
    assert num_tokens == requests.num_tokens, "every prefix and every document once"


def made_up_requests(num_records: int, num_prefixes: int, **changes: Any) -> ForkedRequests:
    """Branches and limits of all small lengths, a document without tokens among them, prefixes in turn."""
    prefixes = [[11 + number] * (5 + number) for number in range(num_prefixes)]
    records = [
        ForkedRecord(
            number % num_prefixes,
            [number % 89] * (number % 7),
            [[each + 1] * (1 + each % 3) for each in range(1 + number % 4)],
            [1 + (number + each) % 6 for each in range(1 + number % 4)],
        )
        for number in range(num_records)
    ]
    settings = {"is_shared": True, "num_sequences": 9, "num_cells": 200, "batch_size": 40, "step_size": 8}
    return ForkedRequests(prefixes, records, **(settings | changes))


@pytest.mark.parametrize(
    "changes", [{}, {"num_sequences": 4}, {"num_cells": 70}, {"batch_size": 25, "num_cells": 80, "num_sequences": 30}]
)
@pytest.mark.parametrize("num_prefixes", [1, 5])
def test_limits_of_the_cache_are_kept(pretended: Pretended, changes: dict[str, Any], num_prefixes: int) -> None:
    requests = made_up_requests(60, num_prefixes, **changes)
    answers, num_tokens = answered(requests)
    assert answers == expected(requests)
    assert num_tokens == requests.num_tokens
    assert pretended.sequences.keys() <= {0}, "whoever has ended has left the cache"


def test_records_are_added_as_others_end(pretended: Pretended) -> None:
    requests = made_up_requests(60, 1, num_sequences=8)
    answered(requests)
    one_by_one = 2 * sum(max(record.limits) for record in requests.records)
    assert pretended.batches < one_by_one / 1.8


# What it is run with.


@pytest.fixture
def gguf_file(tmp_path: Path) -> str:
    path = tmp_path / "tiny.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return str(path)


def test_an_embedded_model_runs_as_it_is_and_in_bf16(monkeypatch: pytest.MonkeyPatch, gguf_file: str) -> None:
    monkeypatch.setattr("bench.rivals.llama_cpp_process.embedded_gguf", lambda _: Path(gguf_file))
    assert ggufs("smollm2", []) == [Gguf("Q8_0", gguf_file), Gguf("BF16", gguf_file, in_bf16=True)]
    assert ggufs("/a/folder", [gguf_file]) == [Gguf("Q8_0", gguf_file)]


@pytest.mark.parametrize("python", ["/nowhere/python", sys.executable])
def test_where_it_is_missing_the_way_out_is_named(workplace: Workplace, gguf_file: str, python: str) -> None:
    workplace.write_parquet("a.parquet", products(NUM_RECORDS))
    result = run(workplace, "--llama-cpp", python, "--gguf", gguf_file)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].endswith("`make rivals` installs llama.cpp")
    assert (
        "No module named 'llama_cpp'" in result.stderr or f"Error: --llama-cpp {python}: No such file" in result.stderr
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--llama-cpp", "python"], "brings no GGUF file along: name one with --gguf"),
        (["--llama-cpp", "python", "--gguf", "/nowhere.gguf"], "--gguf /nowhere.gguf: it cannot be read as GGUF: "),
        (["--gguf", "a.gguf"], "--gguf is for llama.cpp: name the interpreter"),
        (["--only", "llama.cpp AR, Q4_1"], "--only 'llama.cpp AR, Q4_1' needs --llama-cpp"),
        (["--only", "llama.cpp fan-out"], "--only 'llama.cpp fan-out' needs --llama-cpp"),
    ],
)
def test_what_cannot_run_is_an_error(workplace: Workplace, arguments: list[str], message: str) -> None:
    workplace.write_parquet("a.parquet", products(NUM_RECORDS))
    result = run(workplace, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr.splitlines()[-1]


def test_another_type_of_weights_is_an_error_that_names_those_there_are(workplace: Workplace, gguf_file: str) -> None:
    workplace.write_parquet("a.parquet", products(NUM_RECORDS))
    result = run(workplace, "--llama-cpp", "python", "--gguf", gguf_file, "--only", "llama.cpp AR, BF16")
    assert result.exit_code == 2
    assert "there are 'llama.cpp AR, Q8_0', 'llama.cpp fan-out, Q8_0'," in result.stderr


def has_llama_cpp() -> bool:
    return RIVALS.exists() and not subprocess.run([RIVALS, "-c", "import llama_cpp"], capture_output=True).returncode


@pytest.mark.skipif(not has_llama_cpp(), reason="no llama.cpp here; `make rivals` installs it")
def test_it_writes_what_the_model_writes(workplace: Workplace) -> None:
    """In bf16: as transformers in bf16, but for near ties. And the benchmark has its rows."""
    workplace.write_parquet("a.parquet", products(4))
    settings = ("--set", "model=smollm2", "--set", "engine.dtype=bfloat16", "--limit", "4")
    result = run(workplace, "--llama-cpp", str(RIVALS), *settings)
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout.strip().splitlines()[-1])
    names = {f"llama.cpp {way}, {weights}" for way in ("AR", "fan-out") for weights in ("Q4_1", "BF16")}
    assert names < facts["seconds"].keys()
    assert facts["tokens"]["llama.cpp fan-out, BF16"] == facts["tokens"]["tree"]

    job = workplace.config(model="smollm2")
    model = loading.load_model("smollm2", job.engine)
    tokenizer = loading.load_tokenizer("smollm2", job.engine)
    workload = Workload.of_gold(tokenizer, job, str(workplace.folder / "gold.jsonl"), 4)
    requests = one_per_attribute(workload.forced(model.config, job.engine))
    gguf = Gguf("BF16", str(embedded_gguf("smollm2")), in_bf16=True)
    process = LlamaCppProcess(str(RIVALS), gguf, {"a": requests}, model.get_output_embeddings().weight.shape[0])
    try:
        answers = process.run("a").answers
    finally:
        process.close()
    alike = [
        plainly(model, prompt, limit) == answer
        for (prompt, limit), answer in zip(asked(requests), answers, strict=True)
    ]
    assert sum(alike) >= 0.8 * len(alike)


def plainly(model: Any, prompt: list[int], count: int) -> list[int]:
    import torch

    ids = torch.tensor([prompt])
    with torch.inference_mode():
        for _ in range(count):
            ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], 1)
    found: list[int] = ids[0, len(prompt) :].tolist()
    return found
