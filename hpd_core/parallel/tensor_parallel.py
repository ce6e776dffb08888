"""Tensor parallelism: each process holds a part of every layer, and all of them together are the model.

It works as in Megatron-LM (arXiv 1909.08053, section 3). Of two linear layers in a row the first is cut by output
columns (whole attention heads; neurons), the second by input rows. The partial sums are added up between the processes.
The model family's `base_model_tp_plan` in transformers says which layers these are. Embeddings and the output head are
whole in every process, so each computes all logits.

Here are the weights; parallel/ranks.py and parallel/group.py have the processes.

Cuts of layers beside attention for tensor parallelism: by channels, or by heads with their states.

A short convolution's channels are independent of each other, and so are the heads of a gated delta rule: each process
has the states and the columns of its own. Mamba 2 is not cut: its norm goes over all heads of a group.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hpd_core.config import EngineConfig
from hpd_core.errors import ModelError
from hpd_core.families.table import family_of
from hpd_core.models import loading

_BY_COLUMNS, _BY_ROWS = "colwise", "rowwise"
# A style that only matters in training: the layer stays whole.
_WHOLE = "replicated_with_grad_allreduce"


Cut = Callable[[int, int], None]
"""Keeps only the part of one layer that this rank of so many holds, in place."""


def plan_cuts(model: Any, size: int) -> list[Cut]:
    """Return which layers are cut for `size` processes, and how. Weights are not read: they may be on the device meta.

    Raises:
        ModelError: a model like this cannot be cut, or not into `size` parts; the message says why.
    """
    config = model.config.get_text_config()
    name = model.config.model_type
    plan = family_of(config).tensor_parallel or getattr(config, "base_model_tp_plan", None)
    decoder = model.get_decoder()
    if not plan or not hasattr(decoder, "layers"):
        raise _refusal(name, "they have no plan for it in transformers")
    mixers = {
        path: (module, MIXER_CUTS[type(module).__name__])
        for path, module in decoder.named_modules()
        if type(module).__name__ in MIXER_CUTS
    }
    styles = _styles(decoder, plan, mixers)
    unknown = sorted({*styles.values()} - {_BY_COLUMNS, _BY_ROWS, _WHOLE})
    if unknown:
        raise _refusal(name, f"their plan asks for {', '.join(unknown)}")
    _check_divisible(config, size, mixers.values())
    cuts: dict[str, Cut] = {}
    for path, style in styles.items():
        if style == _WHOLE:
            continue
        module = decoder.get_submodule(path)
        if type(module) is not nn.Linear:
            raise _refusal(name, f"{path} is a {type(module).__name__}")
        cuts[path] = partial(_cut_linear, module, by_rows=style == _BY_ROWS)
        if (count := module.in_features if style == _BY_ROWS else module.out_features) % size:
            raise ModelError(f"{path} ({count}) cannot be divided by tensor_parallel {size}; take a divisor")
    for path, parameter in decoder.layers.named_parameters(prefix="layers"):
        # A matrix that nobody cuts belongs to all heads or neurons (such as a norm of each head), and would not fit.
        if parameter.dim() > 1 and path.rpartition(".")[0] not in cuts and not _is_within(path, mixers):
            raise _refusal(name, f"their plan leaves out {path}")
    return [*cuts.values(), *(partial(_cut_mixer, *each) for each in mixers.values())]


def _styles(decoder: Any, plan: Mapping[str, str], mixers: Iterable[str]) -> dict[str, str]:
    """Return the plan's styles for the decoder's layers, except those beside attention that are cut as a whole."""
    return {
        path: style
        for path, _ in decoder.named_modules()
        for pattern, style in plan.items()
        if fnmatch.fnmatchcase(path, pattern) and path.startswith("layers.") and not _is_within(path, mixers)
    }


def _is_within(path: str, mixers: Iterable[str]) -> bool:
    return any(path.startswith(f"{mixer}.") for mixer in mixers)


def _refusal(name: str, reason: str) -> ModelError:
    return ModelError(f"{name} models cannot be cut for tensor parallelism here: {reason}; set tensor_parallel to 1")


def _check_divisible(config: Any, size: int, mixers: Iterable[tuple[Any, MixerCut]]) -> None:
    heads = config.num_attention_heads
    counts = {
        "attention heads": heads,
        "key-value heads": getattr(config, "num_key_value_heads", None) or heads,
        "neurons of a layer": config.intermediate_size,
        **{how.unit: how.count(module) for module, how in mixers},
    }
    for what, count in counts.items():
        if not isinstance(count, int) or count % size:
            raise ModelError(
                f"the model's {what} ({count}) cannot be divided by tensor_parallel {size}; take a divisor of them"
            )


def cut(model: Any, rank: int, size: int) -> None:
    """Keep only this rank's part of every layer, in place, and add up partial sums in every forward.

    Args:
        model: whole, adapters merged, on a CPU as a rule: removed parts are freed.
        rank: of `size` processes that all do the same.

    Raises:
        ModelError: as `plan_cuts`.
    """
    for keep_part in plan_cuts(model, size):
        keep_part(rank, size)


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


@torch.no_grad()
def _cut_mixer(module: Any, how: MixerCut, rank: int, size: int) -> None:
    kept = {name: _kept(stretches(module), rank, size) for name, stretches in how.rows.items()}
    for name, rows in kept.items():
        part = getattr(module, name)
        if isinstance(part, nn.Parameter):
            setattr(module, name, nn.Parameter(part[rows], requires_grad=False))
            continue
        part.weight = nn.Parameter(part.weight[rows], requires_grad=False)
        if part.bias is not None:
            part.bias = nn.Parameter(part.bias[rows], requires_grad=False)
        if isinstance(part, nn.Linear):
            part.out_features = len(rows)
        else:  # a convolution, each channel by itself
            part.in_channels = part.out_channels = part.groups = len(rows)
    for name in how.divided:
        setattr(module, name, getattr(module, name) // size)
    _cut_linear(getattr(module, how.output), rank, size, by_rows=True)


def _kept(stretches: Sequence[int], rank: int, size: int) -> Tensor:
    """Return the indices of this rank's part of each stretch."""
    parts = torch.split(torch.arange(sum(stretches)), list(stretches))
    return torch.cat([part.chunk(size)[rank] for part in parts])


def _part(tensor: Tensor, rank: int, size: int, axis: int) -> Tensor:
    # A copy: a view would keep the whole alive.
    return tensor.detach().chunk(size, dim=axis)[rank].clone(memory_format=torch.contiguous_format)


def _add_up(_layer: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
    dist.all_reduce(output)
    return output


Stretches = Callable[[Any], Sequence[int]]
"""Function from a mixer to the lengths of stretches that a dimension consists of; each is cut by itself."""


@dataclass(frozen=True, slots=True)
class MixerCut:
    """Cut of the modules of one class.

    Attributes:
        rows: by a part's name, the stretches of the first dimension of its weights.
        output: the linear layer that combines the heads or channels again.
        divided: attributes that count what is cut.
        unit, count: name of the unit that is not cut itself, in words, and how many of them a module has.
    """

    rows: Mapping[str, Stretches]
    output: str
    divided: Sequence[str]
    unit: str
    count: Callable[[Any], int]


def _channels(module: Any) -> Sequence[int]:
    return [module.conv.in_channels]


def _mixed(module: Any) -> Sequence[int]:
    return [module.key_dim, module.key_dim, module.value_dim]


def _values(module: Any) -> Sequence[int]:
    return [module.value_dim]


def _heads(module: Any) -> Sequence[int]:
    return [module.num_v_heads]


_SHORT_CONVOLUTION = MixerCut(
    rows={"in_proj": lambda module: [*_channels(module)] * 3, "conv": _channels},
    output="out_proj",
    divided=(),
    unit="channels of a convolution",
    count=lambda module: module.conv.in_channels,
)
_DELTA_RULE = MixerCut(
    rows={
        **{"in_proj_qkv": _mixed, "conv1d": _mixed, "in_proj_z": _values},
        **{"in_proj_a": _heads, "in_proj_b": _heads, "A_log": _heads, "dt_bias": _heads},
    },
    output="out_proj",
    divided=("num_k_heads", "num_v_heads", "key_dim", "value_dim", "conv_dim"),
    unit="key heads of linear attention",
    count=lambda module: module.num_k_heads,
)

MIXER_CUTS: Mapping[str, MixerCut] = {"Lfm2ShortConv": _SHORT_CONVOLUTION, "Qwen3_5GatedDeltaNet": _DELTA_RULE}
"""Cuts by the name of transformers' class."""


HOST = "127.0.0.1"

HERE, LOADED, READY = "here", "loaded", "ready"
WRONG, FULL, BROKEN = "wrong ", "full ", "broken "
"""Messages of a process: it has its device; it has loaded its part; it is proved; why it ends: the user's fault, too
little memory, or anything else.
"""

LONGEST_WAIT = timedelta(minutes=5)
"""Timeout of one process for another, until they have met and within a step: all of them are at about the same
place.
"""


@dataclass(frozen=True, slots=True)
class Setup:
    """Settings that a process needs to become a part of the engine.

    Attributes:
        port: of rank 0 on this node, where the processes find each other.
        num_threads: of each, if the model is on a CPU.
    """

    model: str
    config: EngineConfig
    adapter: str | None
    rank: int
    port: int
    num_threads: int


def abort() -> None:
    """Abort the GPUs' joint work. NCCL does not notice that another process died, and would wait for it."""
    if dist.is_initialized() and dist.group.WORLD is not None:
        dist.group.WORLD.abort()


def take_device(config: EngineConfig, rank: int) -> torch.device:
    """Return the rank's device and make it this thread's; a tensor is put there to see that it works.

    Raise `ModelError` if it is not there.
    """
    device = loading.resolve_device(config)
    if device.type == "cuda":
        if device.index is not None:
            raise ModelError(f"tensor_parallel takes the GPUs from the first on; set device to 'cuda', not {device}")
        count = torch.cuda.device_count()
        if count < config.tensor_parallel:
            raise ModelError(f"tensor_parallel is {config.tensor_parallel}, there are {count} GPUs")
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
        torch.zeros(1, device=device)
    return device
