"""Other ways to decode the same answers, for the benchmark: plain transformers in this process, vLLM in its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, StoppingCriteria, StoppingCriteriaList

from hpd_core.cohort import UNSEEN
from hpd_core.layout import PUBLIC, Layout, visible
from pipelines.errors import UsageError


@dataclass(frozen=True, slots=True)
class ForcedRecord:
    """One record and how long each of its answers is.

    Attributes:
        layout: of the layout `tree`.
        lengths: tokens of each value, the closing one included.
    """

    layout: Layout
    lengths: list[int]

    @property
    def trunk(self) -> list[int]:
        """The prompt up to the first key."""
        ids: list[int] = self.layout.token_ids[: self.layout.num_tokens - self.layout.num_key_tokens].tolist()
        return ids

    @property
    def branch_prompts(self) -> list[list[int]]:
        """A prompt for each attribute: the trunk and the attribute's key."""
        trunk, start, prompts = self.trunk, len(self.trunk), []
        for end in (self.layout.ends + 1).tolist():
            prompts.append(trunk + self.layout.token_ids[start:end].tolist())
            start = end
        return prompts

    @property
    def answer_length(self) -> int:
        """Tokens that plain autoregressive decoding writes: keys, values and the closing brace."""
        return self.layout.num_key_tokens + sum(self.lengths) + 1


class VllmProcess:
    """vLLM, loaded once, in an environment and a process of its own; it sleeps between runs."""

    AUTOREGRESSIVE = "ar"
    FAN_OUT = "fan-out"

    def __init__(self, python: str, folder: str, dtype: str, records: Sequence[ForcedRecord], block_size: int) -> None:
        """Starts it and waits until it has compiled and warmed up.

        Args:
            python: the interpreter of its environment (`make rivals`).
            folder: of the model.
            block_size: tokens of a block of its KV cache. Only whole blocks of a prompt are found again.

        Raises:
            UsageError: it does not start.
        """
        runs = {
            self.AUTOREGRESSIVE: [(record.trunk, record.answer_length) for record in records],
            # One request for each attribute, as many finished prefixes as possible: a product's stand side by side.
            self.FAN_OUT: [
                item for record in records for item in zip(record.branch_prompts, record.lengths, strict=True)
            ],
        }
        longest = max(len(prompt) + count for requests in runs.values() for prompt, count in requests)
        work = {
            "model": folder,
            "dtype": dtype,
            "max_model_len": longest + block_size,
            "block_size": block_size,
            "num_threads": torch.get_num_threads(),
            "runs": runs,
        }
        self._scratch = tempfile.TemporaryDirectory(prefix="hpd-vllm-")
        path = Path(self._scratch.name, "work.json")
        path.write_text(json.dumps(work), encoding="utf-8")
        script = Path(__file__).with_name("vllm_rival.py")
        self._log = Path(self._scratch.name, "log.txt")
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [python, "-P", str(script), str(path)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
        except OSError as error:
            raise UsageError(f"--vllm {python}: {error}") from error
        try:
            self.facts = self._answer()
        except BaseException:
            self.close()
            raise

    def run(self, name: str) -> float:
        """Seconds for all requests of one way of asking, with an empty prefix cache."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # then there is no answer
            print(name, file=self._process.stdin, flush=True)
        seconds: float = self._answer()["seconds"]
        return seconds

    def close(self) -> None:
        """Ends it."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._scratch.cleanup()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line.startswith("{"):
            answer: dict[str, Any] = json.loads(line)
            return answer
        self._process.kill()
        self._process.wait()
        last = [text for text in self._log.read_text(errors="replace").splitlines() if text.strip()][-5:]
        raise UsageError("vLLM has ended:\n  " + "\n  ".join(last))


class _AnswerLengths(StoppingCriteria):  # type: ignore[misc]
    """Ends each row after its own number of tokens."""

    def __init__(self, prompt_length: int, lengths: Sequence[int]) -> None:
        self._ends = torch.tensor(lengths) + prompt_length

    def __call__(self, input_ids: Tensor, scores: Tensor, **kwargs: Any) -> Tensor:
        """bool [batch]: which rows are done."""
        return (self._ends <= input_ids.shape[1]).to(input_ids.device)


@torch.inference_mode()
def run_generate(model: Any, records: Sequence[ForcedRecord], batch_size: int) -> None:
    """transformers' generate, batched, left-padded; rows of like answer length share a batch."""
    ordered = sorted(records, key=lambda record: record.answer_length)
    for first in range(0, len(ordered), batch_size):
        batch = ordered[first : first + batch_size]
        prompts = [record.trunk for record in batch]
        lengths = [record.answer_length for record in batch]
        width = max(len(prompt) for prompt in prompts)
        ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts], device=model.device)
        mask = torch.tensor(
            [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=model.device
        )
        model.generate(
            input_ids=ids,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=max(lengths),
            pad_token_id=0,
            eos_token_id=None,
            stopping_criteria=StoppingCriteriaList([_AnswerLengths(width, lengths)]),
        )


@torch.inference_mode()
def run_naive_hpd(model: Any, records: Sequence[ForcedRecord], batch_size: int) -> None:
    """HPD as one would write it first: `tree` prompts in a padded batch, a 4D mask, transformers' DynamicCache.

    No shared prefix, no refill, logits wherever a token was fed; finished values are pruned, and a row that has
    fewer live values than the widest row of its batch is padded with masked dummy tokens (paper, 4.3.6).
    """
    ordered = sorted(records, key=lambda record: (record.layout.num_tokens, record.lengths))
    for first in range(0, len(ordered), batch_size):
        _run_naive_batch(model, ordered[first : first + batch_size])


def _run_naive_batch(model: Any, batch: Sequence[ForcedRecord]) -> None:
    layouts = [record.layout for record in batch]
    count, width = len(batch), max(layout.num_tokens for layout in layouts)
    ids = torch.zeros(count, width, dtype=torch.long)
    positions = torch.zeros_like(ids)
    scopes = torch.full_like(ids, PUBLIC)
    k_positions = torch.full_like(ids, UNSEEN)
    for row, layout in enumerate(layouts):
        size = layout.num_tokens
        ids[row, :size] = torch.from_numpy(layout.token_ids)
        positions[row, :size] = k_positions[row, :size] = torch.from_numpy(layout.positions)
        scopes[row, :size] = torch.from_numpy(layout.scopes)
    cache = DynamicCache(config=model.config)
    k_scopes = scopes
    logits = _naive_forward(model, cache, ids, positions, scopes, k_positions, k_scopes)
    tokens = [logits[row, torch.from_numpy(layout.ends)].argmax(-1) for row, layout in enumerate(layouts)]
    lengths = [torch.tensor(record.lengths) for record in batch]
    step = 1
    while any(int(length.max()) > step for length in lengths):
        alive = [(length > step).nonzero()[:, 0] for length in lengths]
        width = max(len(branches) for branches in alive)
        ids = torch.zeros(count, width, dtype=torch.long)
        positions = torch.zeros_like(ids)
        scopes = torch.full_like(ids, PUBLIC)
        new_positions = torch.full_like(ids, UNSEEN)
        for row, branches in enumerate(alive):
            layout, size = layouts[row], len(branches)
            ends = torch.from_numpy(layout.positions[layout.ends])
            ids[row, :size] = tokens[row][branches]
            positions[row, :size] = new_positions[row, :size] = ends[branches] + step
            scopes[row, :size] = torch.from_numpy(layout.value_scopes)[branches]
        k_positions = torch.cat([k_positions, new_positions], dim=1)
        k_scopes = torch.cat([k_scopes, scopes], dim=1)
        chosen = _naive_forward(model, cache, ids, positions, scopes, k_positions, k_scopes).argmax(-1)
        for row, branches in enumerate(alive):
            tokens[row][branches] = chosen[row, : len(branches)]
        step += 1


def _naive_forward(
    model: Any, cache: Any, ids: Tensor, positions: Tensor, scopes: Tensor, k_positions: Tensor, k_scopes: Tensor
) -> Tensor:
    seen = visible(scopes[:, :, None], positions[:, :, None], k_scopes[:, None, :], k_positions[:, None, :])
    output = model(
        input_ids=ids.to(model.device),
        position_ids=positions.to(model.device),
        attention_mask=seen[:, None].to(model.device),
        past_key_values=cache,
        use_cache=True,
    )
    logits: Tensor = output.logits.cpu()
    return logits
