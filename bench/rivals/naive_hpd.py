"""HPD as one would write it first, as a rival."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from bench.workloads.workload import ForcedRecord
from hpd_core.decoding.cohort_cache import UNSEEN
from hpd_core.layout import EVERYBODY, PUBLIC, visible


@torch.inference_mode()
def run_naive_hpd(model: Any, records: Sequence[ForcedRecord], batch_size: int) -> None:
    """Run HPD as one would write it first: `tree` prompts in a padded batch, a 4D mask, transformers' DynamicCache.

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
    ends_of = [torch.from_numpy(layout.ends).to(model.device) for layout in layouts]
    tokens = [logits[row, ends].argmax(-1).cpu() for row, ends in enumerate(ends_of)]
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
        chosen = _naive_forward(model, cache, ids, positions, scopes, k_positions, k_scopes).argmax(-1).cpu()
        for row, branches in enumerate(alive):
            tokens[row][branches] = chosen[row, : len(branches)]
        step += 1


def _naive_forward(
    model: Any, cache: Any, ids: Tensor, positions: Tensor, scopes: Tensor, k_positions: Tensor, k_scopes: Tensor
) -> Tensor:
    k_lasts = torch.where(k_scopes == PUBLIC, EVERYBODY, k_scopes)
    k_scopes, k_lasts, k_positions = (place[:, None, :] for place in (k_scopes, k_lasts, k_positions))
    seen = visible(scopes[:, :, None], positions[:, :, None], k_scopes, k_lasts, k_positions)
    output = model(
        input_ids=ids.to(model.device),
        position_ids=positions.to(model.device),
        attention_mask=seen[:, None].to(model.device),
        past_key_values=cache,
        use_cache=True,
    )
    logits: Tensor = output.logits
    return logits
