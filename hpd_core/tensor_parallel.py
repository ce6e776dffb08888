"""Tensor parallelism: each process holds a part of every layer, and all of them together are the model.

As in Megatron-LM (arXiv 1909.08053, section 3): of two linear layers in a row the first is cut by output columns (whole
attention heads; neurons), the second by input rows, and the partial sums are added up between the processes. Which
layers these are says the model family's `base_model_tp_plan` in transformers. Embeddings and the output head are whole
in every process, so each computes all logits.

Here are the weights; ranks.py has the processes.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hpd_core.cache import CacheShape
from hpd_core.errors import ModelError

_BY_COLUMNS, _BY_ROWS = "colwise", "rowwise"
# A style that only matters in training: the layer stays whole.
_WHOLE = "replicated_with_grad_allreduce"


def check_divisible(model_config: Any, size: int) -> None:
    """Raises `ModelError` if a model of this configuration cannot be cut into `size` equal parts."""
    config = model_config.get_text_config()
    plan = getattr(config, "base_model_tp_plan", None)
    name = model_config.model_type
    if not plan:
        raise ModelError(f"{name} models have no plan for tensor parallelism in transformers; set tensor_parallel to 1")
    unknown = sorted({style for _, style in _layer_plan(config)} - {_BY_COLUMNS, _BY_ROWS, _WHOLE})
    if unknown:
        raise ModelError(
            f"{name} models cannot be cut for tensor parallelism here: their plan asks for {', '.join(unknown)}; set "
            f"tensor_parallel to 1"
        )
    heads = config.num_attention_heads
    counts = {
        "attention heads": heads,
        "key-value heads": getattr(config, "num_key_value_heads", None) or heads,
        "neurons of a layer": config.intermediate_size,
    }
    for what, count in counts.items():
        if count % size:
            raise ModelError(
                f"the model's {count} {what} cannot be divided by tensor_parallel {size}; take a divisor of them"
            )


def cut(model: Any, rank: int, size: int) -> None:
    """Leaves of every layer the part of this rank, in place, and adds up partial sums in every forward.

    Args:
        model: whole, adapters merged, on a CPU as a rule: what is cut away is freed.
        rank: of `size` processes that all do the same.

    Raises:
        ModelError: the plan names a layer that is no plain linear one.
    """
    check_divisible(model.config, size)
    base = model.base_model
    cut_layers = set()
    for pattern, style in _layer_plan(model.config.get_text_config()):
        if style == _WHOLE:
            continue
        found = [(name, module) for name, module in base.named_modules() if fnmatch.fnmatchcase(name, pattern)]
        for name, module in found:
            if type(module) is not nn.Linear:
                raise ModelError(f"{name} is a {type(module).__name__}, which cannot be cut for tensor parallelism")
            _cut_linear(module, rank, size, by_rows=style == _BY_ROWS)
            cut_layers.add(name)
    whole = [name for name, module in base.layers.named_modules(prefix="layers") if _is_linear(module)]
    missed = sorted(set(whole) - cut_layers)
    if missed:
        raise ModelError(f"the plan for tensor parallelism does not say how to cut {missed[0]}")


def cut_cache(shape: CacheShape, size: int) -> CacheShape:
    """What a token takes in the cache of one of `size` processes."""
    return replace(shape, num_kv_heads=shape.num_kv_heads // size)


def _layer_plan(text_config: Any) -> Iterator[tuple[str, str]]:
    """The plan's part on the layers; all around them is whole."""
    for pattern, style in text_config.base_model_tp_plan.items():
        if pattern.startswith("layers."):
            yield pattern, style


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear)


@torch.no_grad()
def _cut_linear(layer: nn.Linear, rank: int, size: int, *, by_rows: bool) -> None:
    """`by_rows` of the matrix as it multiplies: torch stores the weight transposed, [out, in]."""
    axis = 1 if by_rows else 0
    layer.weight = nn.Parameter(_part(layer.weight, rank, size, axis), requires_grad=False)
    layer.out_features, layer.in_features = layer.weight.shape
    if layer.bias is not None and not by_rows:
        layer.bias = nn.Parameter(_part(layer.bias, rank, size, 0), requires_grad=False)
    if by_rows:
        if rank != 0:
            layer.register_parameter("bias", None)  # it is added once
        layer.register_forward_hook(_add_up)


def _part(tensor: Tensor, rank: int, size: int, axis: int) -> Tensor:
    # A copy: a view would keep the whole alive.
    return tensor.detach().chunk(size, dim=axis)[rank].clone(memory_format=torch.contiguous_format)


def _add_up(_layer: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
    dist.all_reduce(output)
    return output
