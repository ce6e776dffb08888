"""transformers as a rival: generate, plain, with prompt lookup and with a draft model; and its continuous batching.

Every function returns what was written, per record in their order, so that the caller can count it.
"""

from __future__ import annotations

import inspect
import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import ContinuousBatchingConfig, GenerationConfig, StoppingCriteria, StoppingCriteriaList

from bench.workloads.workload import ForcedRecord, branch_prompts
from hpd_core import EngineConfig
from hpd_core.models import loading, steering
from pipelines.errors import UsageError

_NO_END = -1  # no token has this id
PROMPT_LOOKUP_TOKENS = 10
"""The most tokens of a prompt-lookup draft; transformers has no default, its documentation's example says 10."""


class _AnswerLengths(StoppingCriteria):  # type: ignore[misc]
    """Ends each row after its own number of tokens."""

    def __init__(self, prompt_length: int, lengths: Sequence[int]) -> None:
        self._ends = torch.tensor(lengths) + prompt_length

    def __call__(self, input_ids: Tensor, scores: Tensor, **kwargs: Any) -> Tensor:
        """Return bool [batch]: which rows are done."""
        return (self._ends <= input_ids.shape[1]).to(input_ids.device)


def run_generate(model: Any, records: Sequence[ForcedRecord], batch_size: int) -> list[list[int]]:
    """Run transformers' generate, batched, left-padded; rows of like answer length share a batch."""
    return _generate(
        model, [record.trunk for record in records], [record.answer_length for record in records], batch_size
    )


def run_by_attribute(model: Any, records: Sequence[ForcedRecord], batch_size: int) -> list[list[int]]:
    """Run generate with a sequence for each attribute, which shares nothing and writes its value alone.

    Lu et al. 2024, PaDeLLM-NER (arXiv 2402.04838): all label-mention pairs are sequences of one batch.
    """
    prompts = [prompt for record in records for prompt in branch_prompts(record.layout)]
    return _generate(model, prompts, [length for record in records for length in record.lengths], batch_size)


@torch.inference_mode()
def _generate(
    model: Any, all_prompts: Sequence[list[int]], all_lengths: Sequence[int], batch_size: int
) -> list[list[int]]:
    order = sorted(range(len(all_prompts)), key=lambda number: all_lengths[number])
    answers: dict[int, list[int]] = {}
    for first in range(0, len(order), batch_size):
        numbers = order[first : first + batch_size]
        prompts = [all_prompts[number] for number in numbers]
        lengths = [all_lengths[number] for number in numbers]
        width = max(len(prompt) for prompt in prompts)
        ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts], device=model.device)
        mask = torch.tensor(
            [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=model.device
        )
        rows: list[list[int]] = model.generate(
            input_ids=ids,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=max(lengths),
            pad_token_id=0,
            eos_token_id=None,
            stopping_criteria=StoppingCriteriaList([_AnswerLengths(width, lengths)]),
        )[:, width:].tolist()
        # Behind a row that is done stands padding.
        answers |= {number: row[:length] for number, row, length in zip(numbers, rows, lengths, strict=True)}
    return [answers[number] for number in range(len(all_prompts))]


def run_prompt_lookup(model: Any, records: Sequence[ForcedRecord], batch_size: int) -> list[list[int]]:
    """Run generate with prompt lookup: drafts are what followed an earlier occurrence of the last tokens.

    One record at a time, whatever `batch_size` says: transformers refuses more (assisted decoding's batch is 1).
    """
    return _run_assisted(model, records, prompt_lookup_num_tokens=PROMPT_LOOKUP_TOKENS)


def run_draft_model(draft: Any, model: Any, records: Sequence[ForcedRecord], batch_size: int) -> list[list[int]]:
    """Run generate with a draft model, with drafts as long as its generation config says, one record at a time."""
    return _run_assisted(model, records, assistant_model=draft)


@torch.inference_mode()
def _run_assisted(model: Any, records: Sequence[ForcedRecord], **options: Any) -> list[list[int]]:
    answers: list[list[int]] = []
    for record in records:
        ids = torch.tensor([record.trunk], device=model.device)
        written = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=record.answer_length,
            pad_token_id=0,
            eos_token_id=None,
            **options,
        )
        answers.append(written[0, ids.shape[1] :].tolist())
    return answers


def load_draft_model(name: str, model_name: str, tokenizer: Any, config: EngineConfig) -> Any:
    """Load the draft model `name` for the model `model_name`, ready for `run_draft_model`.

    Args:
        tokenizer: of the model.

    Raises:
        ModelError: it cannot be loaded.
        UsageError: its tokens are others than the model's.
    """
    theirs = loading.load_tokenizer(name, config).get_vocab()
    ours = tokenizer.get_vocab()
    if theirs != ours:
        token = min(theirs.items() ^ ours.items(), key=lambda item: (item[1], item[0]))[0]
        raise UsageError(
            f"--draft-model {name}: its tokens are not those of {model_name} (token {token!r} is number "
            f"{theirs.get(token, 'none')} in one and {ours.get(token, 'none')} in the other); name a smaller model of "
            f"the same family"
        )
    draft = loading.load_model(name, config)
    steering.use_own_attention(draft)
    return draft


def run_continuous(model: Any, records: Sequence[ForcedRecord], batch_size: int) -> tuple[float, list[list[int]]]:
    """Give all records as requests to a fresh manager, so that every prefix is computed in it.

    Starting the manager (cache, warm-up, CUDA graphs) is not counted, as nobody's loading is.

    Args:
        batch_size: requests at once.

    Returns:
        Seconds, and what was written per record.

    Raises:
        UsageError: it cannot run; the message says why.
    """
    longest = max(len(record.trunk) + record.answer_length for record in records)
    generation = GenerationConfig(do_sample=False, eos_token_id=_NO_END, max_new_tokens=longest)
    with _quiet():
        try:
            manager = model.init_continuous_batching(generation, _config(model, longest, batch_size))
            manager.warmup()
            manager.start()
        except (ValueError, RuntimeError, ImportError) as error:
            raise _failure(error) from error
        try:
            started = time.perf_counter()
            names = [
                manager.add_request(record.trunk, max_new_tokens=record.answer_length, eos_token_id=_NO_END)
                for record in records
            ]
            written = _collect(manager, len(names))
            seconds = time.perf_counter() - started
        finally:
            manager.stop(block=True)
            manager.destroy()
    return seconds, [written[name] for name in names]


def _config(model: Any, longest: int, batch_size: int) -> ContinuousBatchingConfig:
    if model.device.type == "cuda":
        # Its own choice, from the GPU's free memory.
        return ContinuousBatchingConfig(max_requests_per_batch=batch_size)
    # On a CPU its own choice would be more than half of the machine's memory. A page as small as vLLM's blocks here:
    # only whole pages of a prompt are found again. Twice the need, so that pages of ended requests can be kept.
    page_size = 32
    num_blocks = 2 * batch_size * (math.ceil(longest / page_size) + 1)
    # transformers 5.17 calls a page a block.
    known = inspect.signature(ContinuousBatchingConfig).parameters
    page = {"page_size" if "page_size" in known else "block_size": page_size}
    return ContinuousBatchingConfig(
        **page, num_blocks=num_blocks, max_batch_tokens=2048, max_requests_per_batch=batch_size
    )


def _collect(manager: Any, count: int) -> dict[str, list[int]]:
    written: dict[str, list[int]] = {}
    while len(written) < count:
        result = manager.get_result(timeout=1)
        if result is None:
            if not manager.is_running():
                raise _failure(manager.background_thread_status.fatal_error)
        elif result.error is not None:
            raise _failure(result.error)
        elif result.is_finished():
            written[result.request_id] = result.generated_tokens
    return written


def _failure(reason: object) -> UsageError:
    first_line = (str(reason).strip() or type(reason).__name__).splitlines()[0]
    return UsageError(f"transformers' continuous batching does not run with this model here: {first_line}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the manager's log: the user gets its errors as one line, not as a thread's stack trace."""
    logger = logging.getLogger("ContinuousBatchingLogger")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with torch.no_grad():
            yield
    finally:
        logger.setLevel(level)
