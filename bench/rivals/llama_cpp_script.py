"""llama.cpp on the benchmark's prompts. Runs in an environment of its own (`make rivals`) that has it and not us.

    .venv-rivals/bin/python bench/rivals/llama_cpp_script.py WORK.json

WORK.json is written by rivals/llama_cpp_process.py: the GGUF file, and for every way of asking its records
(rivals/llama_cpp_requests.py). Prints one JSON line when it is ready; then, for every line of standard input, which
names a way of asking, runs it with an empty cache and prints its seconds, its answers and how many tokens llama.cpp has
counted. What was never asked costs nothing.

It is driven by `llama_decode`, in batches of tokens of many sequences, as its own server does it, with less work: a
prefix is computed once and a document once, whoever goes on from there, and records are added as others end.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

import llama_cpp
import numpy as np
import numpy.typing as npt

_BF16 = 32
"""LLAMA_FTYPE_MOSTLY_BF16."""
_PREFIX = 0
"""The sequence of the prefix that was computed last; those of answers are numbered from 1."""


@dataclass(slots=True)
class WrittenAnswer:
    """One sequence that grows. `start` is the position of its first token, `sequence` int32 [1]."""

    start: int
    limit: int
    sequence: npt.NDArray[np.int32]
    tokens: list[int] = field(default_factory=list)


@dataclass(slots=True)
class OpenRecord:
    """A record that is being answered. `num_cells`: of the cache, behind the prefix, when all its answers are whole."""

    prefix: int
    num_cells: int
    answers: list[WrittenAnswer]


@dataclass(slots=True)
class FedPiece:
    """Tokens side by side in a batch that the same sequences see; an answer may go on behind the last one."""

    tokens: Sequence[int]
    position: int
    sequences: npt.NDArray[np.int32]
    answer: WrittenAnswer | None = None


class LlamaCpp:
    """A model and its cache, which all sequences share."""

    def __init__(self, work: dict[str, Any]) -> None:
        path = _bf16_file(work["gguf"], work["scratch"]) if work["in_bf16"] else work["gguf"]
        self._model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self._vocabulary_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        if self._vocabulary_size != work["vocabulary_size"]:
            raise RuntimeError(
                f"{path} has {self._vocabulary_size:,} tokens, the job's model has {work['vocabulary_size']:,}: name a "
                f"file of the same model"
            )
        self._work = work
        self._context = self._memory = None
        self._had_single_tokens = False

    def prepare(self, run: dict[str, Any]) -> None:
        """An empty cache that suits this way of asking, in place of the one before."""
        if self._context is not None:
            llama_cpp.llama_free(self._context)
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = run["num_cells"]
        parameters.n_batch = run["batch_size"]
        parameters.n_ubatch = run["step_size"]
        parameters.n_seq_max = run["num_sequences"] + 1
        parameters.n_threads = parameters.n_threads_batch = self._work["num_threads"]
        # In one cache to go on behind a document copies nothing, but attention goes through everybody's tokens. In a
        # cache for each sequence what it goes on from is copied, and llama.cpp is faster without its flash attention.
        parameters.kv_unified = run["is_shared"]
        parameters.flash_attn_type = int(run["is_shared"])
        parameters.no_perf = False
        self._context = llama_cpp.llama_init_from_model(self._model, parameters)
        if not self._context:
            raise RuntimeError("llama.cpp has no memory for its cache")
        self._memory = llama_cpp.llama_get_memory(self._context)

    @property
    def description(self) -> str:
        """Family, size and types of the weights, as llama.cpp tells them."""
        text = ctypes.create_string_buffer(256)
        llama_cpp.llama_model_desc(self._model, text, len(text))
        return text.value.decode()

    @property
    def num_forwarded(self) -> int:
        """Tokens since a run began, by llama.cpp's own count."""
        counts = llama_cpp.llama_perf_context(self._context)
        # Batches of one token are counted apart, as one where there was none.
        return int(counts.n_p_eval + (counts.n_eval if self._had_single_tokens else 0))

    def run(self, run: dict[str, Any]) -> list[list[int]]:
        """The answers of all records, record by record."""
        llama_cpp.llama_memory_clear(self._memory, False)
        llama_cpp.llama_perf_context_reset(self._context)
        self._had_single_tokens = False
        prefixes = run["prefixes"]
        records: list[OpenRecord] = []
        # Of one prefix side by side, so that each is computed once.
        order = sorted(range(len(run["records"])), key=lambda number: run["records"][number]["prefix"])
        waiting = deque(order)
        free = list(range(1, run["num_sequences"] + 1))
        open_records: list[OpenRecord] = []
        known = None
        while waiting or open_records:
            pieces = [
                FedPiece(answer.tokens[-1:], answer.start + len(answer.tokens) - 1, answer.sequence, answer)
                for record in open_records
                for answer in record.answers
                if len(answer.tokens) < answer.limit
            ]
            num_tokens = len(pieces)
            while waiting:
                record = run["records"][waiting[0]]
                new = sum(map(len, [record["document"], *record["branches"]]))
                num_cells = new + sum(record["limits"]) - len(record["limits"])
                held = {each.prefix for each in open_records} | {known, record["prefix"]} - {None}
                used = sum(each.num_cells for each in open_records) + sum(len(prefixes[number]) for number in held)
                if (
                    num_tokens + new > run["batch_size"]
                    or len(record["branches"]) > len(free)
                    or used + num_cells > run["num_cells"]
                ):
                    break
                waiting.popleft()
                if record["prefix"] != known:
                    known = record["prefix"]
                    self._remember(prefixes[known])
                opened, added = self._fork(record, len(prefixes[known]), num_cells, free)
                records.append(opened)
                open_records.append(opened)
                pieces += added
                num_tokens += new
            # llama.cpp computes those together whose caches lie side by side, in their order.
            self._forward(sorted(pieces, key=lambda piece: int(piece.sequences[0])))
            for answer in [piece.answer for piece in pieces if piece.answer is not None]:
                if len(answer.tokens) == answer.limit:
                    free.append(int(answer.sequence[0]))
                    llama_cpp.llama_memory_seq_rm(self._memory, free[-1], -1, -1)
            free.sort()
            open_records = [
                record for record in open_records if any(len(answer.tokens) < answer.limit for answer in record.answers)
            ]
        written = dict(zip(order, records, strict=True))
        return [answer.tokens for number in range(len(order)) for answer in written[number].answers]

    def _remember(self, prefix: Sequence[int]) -> None:
        """Computes a prefix. What goes on behind the one before keeps that."""
        llama_cpp.llama_memory_seq_rm(self._memory, _PREFIX, -1, -1)
        if prefix:
            self._forward([FedPiece(prefix, 0, np.array([_PREFIX], np.int32))])

    def _fork(
        self, record: dict[str, Any], start: int, num_cells: int, free: list[int]
    ) -> tuple[OpenRecord, list[FedPiece]]:
        """A record that is answered from now on behind the known prefix, and what is to be computed of it."""
        sequences = np.array([free.pop(0) for _ in record["branches"]], np.int32)
        for sequence in sequences.tolist():
            llama_cpp.llama_memory_seq_cp(self._memory, _PREFIX, sequence, -1, -1)
        pieces = [FedPiece(record["document"], start, sequences)]
        start += len(record["document"])
        answers = []
        for number, (tokens, limit) in enumerate(zip(record["branches"], record["limits"], strict=True)):
            answers.append(WrittenAnswer(start + len(tokens), limit, sequences[number : number + 1]))
            pieces.append(FedPiece(tokens, start, answers[-1].sequence, answers[-1]))
        return OpenRecord(record["prefix"], num_cells, answers), pieces

    def _forward(self, pieces: Sequence[FedPiece]) -> None:
        """One batch; every answer in it gets its likeliest next token."""
        lengths = np.array([len(piece.tokens) for piece in pieces])
        ends = np.cumsum(lengths)
        tokens = np.concatenate([np.asarray(piece.tokens, np.int32) for piece in pieces])
        firsts = np.array([piece.position for piece in pieces]) - ends + lengths
        positions = (np.repeat(firsts, lengths) + np.arange(len(tokens))).astype(np.int32)
        counts = np.repeat(np.array([len(piece.sequences) for piece in pieces], np.int32), lengths)
        # For each token a pointer to the list of its sequences.
        lists = np.repeat(np.array([piece.sequences.ctypes.data for piece in pieces], np.uint64), lengths)
        answers = [piece.answer for piece in pieces if piece.answer is not None]
        is_wanted = np.zeros(len(tokens), np.int8)
        is_wanted[[end - 1 for end, piece in zip(ends, pieces, strict=True) if piece.answer is not None]] = 1
        batch = llama_cpp.llama_batch(n_tokens=len(tokens))
        types = dict(llama_cpp.llama_batch._fields_)
        arrays = {"token": tokens, "pos": positions, "n_seq_id": counts, "seq_id": lists, "logits": is_wanted}
        for name, array in arrays.items():
            setattr(batch, name, ctypes.cast(array.ctypes.data, types[name]))
        self._had_single_tokens |= len(tokens) == 1
        status = llama_cpp.llama_decode(self._context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode says {status}")
        if not answers:
            llama_cpp.llama_synchronize(self._context)  # or it would be counted together with the next batch
            return
        logits = llama_cpp.llama_get_logits(self._context)
        rows = np.ctypeslib.as_array(logits, (len(answers), self._vocabulary_size))
        for answer, token in zip(answers, rows.argmax(1).tolist(), strict=True):
            answer.tokens.append(token)


def main(path: str) -> None:
    """Loads the model, then answers standard input line by line."""
    with open(path, encoding="utf-8") as file:
        work = json.load(file)
    answers = _private_stdout()
    started = time.perf_counter()
    engine = LlamaCpp(work)
    facts = {
        "version": llama_cpp.__version__,
        "weights": engine.description,
        "features": llama_cpp.llama_print_system_info().decode().strip(),
    }
    _say(answers, facts | {"load_seconds": time.perf_counter() - started})
    warm: set[str] = set()
    for line in sys.stdin:
        name = line.strip()
        run = work["runs"][name]
        engine.prepare(run)
        if name not in warm:
            engine.run(run)
            warm.add(name)
        started = time.perf_counter()
        written = engine.run(run)
        seconds = time.perf_counter() - started
        if [len(ids) for ids in written] != [limit for record in run["records"] for limit in record["limits"]]:
            raise RuntimeError("llama.cpp wrote other lengths than it was asked for")
        _say(answers, {"seconds": seconds, "answers": written, "num_tokens": engine.num_forwarded})


def _bf16_file(path: str, folder: str) -> str:
    """The same weights in bf16, one file more in the folder."""
    target = os.path.join(folder, "bf16.gguf")
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = _BF16
    parameters.allow_requantize = parameters.pure = True
    if llama_cpp.llama_model_quantize(path.encode(), target.encode(), ctypes.byref(parameters)) != 0:
        raise RuntimeError(f"llama.cpp cannot write {path} in bf16")
    return target


def _private_stdout() -> TextIO:
    """Standard output for answers alone; whatever libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _say(answers: TextIO, message: dict[str, Any]) -> None:
    print(json.dumps(message), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
