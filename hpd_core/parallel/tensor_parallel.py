"""Tensor parallelism: each process holds a part of every layer, and all of them together are the model.

As in Megatron-LM (arXiv 1909.08053, section 3): of two linear layers in a row the first is cut by output columns (whole
attention heads; neurons), the second by input rows, and the partial sums are added up between the processes. Which
layers these are says the model family's `base_model_tp_plan` in transformers. Embeddings and the output head are whole
in every process, so each computes all logits.

Here are the weights; parallel/ranks.py, parallel/followers.py and parallel/group.py have the processes.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hpd_core.errors import ModelError

_BY_COLUMNS, _BY_ROWS = "colwise", "rowwise"
# A style that only matters in training: the layer stays whole.
_WHOLE = "replicated_with_grad_allreduce"


@dataclass(frozen=True, slots=True)
class LayerCut:
    """How one linear layer is cut: by the rows of its matrix as it multiplies, or by the columns."""

    layer: nn.Linear
    by_rows: bool


def plan_cuts(model: Any, size: int) -> list[LayerCut]:
    """Which layers are cut for `size` processes, and how. Weights are not looked at: they may be on the device meta.

    Raises:
        ModelError: a model like this cannot be cut, or not into so many parts; the message says why.
    """
    config = model.config.get_text_config()
    name = model.config.model_type
    plan = getattr(config, "base_model_tp_plan", None)
    decoder = model.get_decoder()
    if not plan or not hasattr(decoder, "layers"):
        raise _refusal(name, "they have no plan for it in transformers")
    of_layers = {pattern: style for pattern, style in plan.items() if pattern.startswith("layers.")}
    unknown = sorted({*of_layers.values()} - {_BY_COLUMNS, _BY_ROWS, _WHOLE})
    if unknown:
        raise _refusal(name, f"their plan asks for {', '.join(unknown)}")
    _check_divisible(config, size)
    cuts: dict[str, LayerCut] = {}
    for pattern, style in of_layers.items():
        for path, module in decoder.named_modules():
            if style == _WHOLE or not fnmatch.fnmatchcase(path, pattern):
                continue
            if type(module) is not nn.Linear:
                raise _refusal(name, f"{path} is a {type(module).__name__}")
            cuts[path] = LayerCut(module, by_rows=style == _BY_ROWS)
    for path, parameter in decoder.layers.named_parameters(prefix="layers"):
        # A matrix that nobody cuts belongs to all heads or neurons (such as a norm of each head), and would not fit.
        if parameter.dim() > 1 and path.rpartition(".")[0] not in cuts:
            raise _refusal(name, f"their plan leaves out {path}")
    return list(cuts.values())


def _refusal(name: str, reason: str) -> ModelError:
    return ModelError(f"{name} models cannot be cut for tensor parallelism here: {reason}; set tensor_parallel to 1")


def _check_divisible(config: Any, size: int) -> None:
    heads = config.num_attention_heads
    counts = {
        "attention heads": heads,
        "key-value heads": getattr(config, "num_key_value_heads", None) or heads,
        "neurons of a layer": config.intermediate_size,
    }
    for what, count in counts.items():
        if not isinstance(count, int) or count % size:
            raise ModelError(
                f"the model's {what} ({count}) cannot be divided by tensor_parallel {size}; take a divisor of them"
            )


def cut(model: Any, rank: int, size: int) -> None:
    """Leaves of every layer the part of this rank, in place, and adds up partial sums in every forward.

    Args:
        model: whole, adapters merged, on a CPU as a rule: what is cut away is freed.
        rank: of `size` processes that all do the same.

    Raises:
        ModelError: as `plan_cuts`.
    """
    for each in plan_cuts(model, size):
        _cut_linear(each.layer, rank, size, by_rows=each.by_rows)


@torch.no_grad()
def _cut_linear(layer: nn.Linear, rank: int, size: int, *, by_rows: bool) -> None:
    # torch stores the weight transposed, [out, in].
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
