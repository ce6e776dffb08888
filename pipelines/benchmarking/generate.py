"""transformers' generate as a rival."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import StoppingCriteria, StoppingCriteriaList

from pipelines.benchmarking.workload import ForcedRecord


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
