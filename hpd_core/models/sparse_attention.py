"""Models in which an indexer picks a limited number of tokens, or of blocks of them, that each token attends to.

While no token sees more than that, all are picked, and attention is like any other: the indexer is skipped while our
decoder runs the model. Longer texts are refused, as those beyond a model's context are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from types import MethodType
from typing import Any

import torch
from torch import Tensor

from hpd_core.attention.dispatch import current_batch

_PICKED: Mapping[str, Sequence[str]] = {
    "indexed_attention": ("index_topk",),
    "minimax_m3_sparse": ("index_topk_blocks", "index_block_size"),
    "doge": ("keep_window_size",),
    "qwen4_exp_text": ("indexer_budget",),
}
"""Settings whose product is the number of picked tokens, by the model type, or else the name of such layers in
`config.layer_types`.
"""
LAYER_TYPES = frozenset(_PICKED)

_EVERYTHING = {
    "Qwen4ExpTextQSAIndexer": torch.ones(1, 1, 1, 1, dtype=torch.bool),
    "Glm5NextTextIndexer": torch.zeros(1, 0, 0, dtype=torch.int32),
}
"""Placeholder output by class of indexer, for runs that ignore it; other classes return no indices."""


def most_seen(model_config: Any) -> int | None:
    """Return the number of tokens up to which all are picked; None if nothing is picked, or it is unknown."""
    config = model_config.get_text_config()
    settings: list[list[int | None]] = [
        [getattr(config, name, None) for name in names] for names in settings_of(model_config)
    ]
    known = [[value for value in values if value is not None] for values in settings]
    leaves_tail = getattr(config, "index_kpool", 1) > 1 and not config.index_kpool_always_select_tail
    if not settings or known != settings or leaves_tail:
        return None
    return min(math.prod(values) for values in known)


def settings_of(model_config: Any) -> Sequence[Sequence[str]]:
    """Return, for each kind of layer that picks, the settings whose product is the number of tokens."""
    config = model_config.get_text_config()
    of_model = LAYER_TYPES.intersection([config.model_type])
    kinds = of_model or LAYER_TYPES.intersection(getattr(config, "layer_types", None) or ())
    return [_PICKED[kind] for kind in sorted(kinds)]


def steer(model: Any) -> None:
    """Skip the model's indexers while our decoder runs it."""
    for module in model.modules():
        indexer = getattr(module, "indexer", None)
        if isinstance(indexer, torch.nn.Module) and "forward" not in indexer.__dict__:
            indexer.forward = MethodType(_without_picking(type(indexer), model.device), indexer)
            mask = torch.zeros(1, 1, 1, 1, device=model.device)
            module.register_forward_pre_hook(functools.partial(_with_mask, mask), with_kwargs=True)


def _without_picking(kind: Any, device: torch.device) -> Any:
    own = kind.forward
    everything = _EVERYTHING.get(kind.__name__, torch.zeros(0, dtype=torch.int32)).to(device)

    @functools.wraps(own)
    def forward(indexer: Any, *args: Any, **kwargs: Any) -> Tensor:
        is_ours = current_batch() is not None
        picked: Tensor = everything if is_ours else own(indexer, *args, **kwargs)
        return picked

    return forward


def _with_mask(mask: Tensor, _module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """Pass a mask while our decoder runs: the modules need one to slice for their indexers, or to join with their
    picks.
    """
    return None if current_batch() is None else (args, {**kwargs, "attention_mask": mask})
