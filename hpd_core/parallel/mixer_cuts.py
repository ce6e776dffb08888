"""Cuts of layers beside attention for tensor parallelism: by channels, or by heads with their states.

A short convolution's channels are independent of each other, and so are the heads of a gated delta rule: each process
has the states and the columns of its own. Mamba 2 is not cut: its norm goes over all heads of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_FEED_FORWARD = {
    "layers.*.feed_forward.w1": "colwise",
    "layers.*.feed_forward.w3": "colwise",
    "layers.*.feed_forward.w2": "rowwise",
}
_ATTENTION = {
    "layers.*.self_attn.q_proj": "colwise",
    "layers.*.self_attn.k_proj": "colwise",
    "layers.*.self_attn.v_proj": "colwise",
    "layers.*.self_attn.out_proj": "rowwise",
}
PLANS: Mapping[str, Mapping[str, str]] = {"lfm2": {**_ATTENTION, **_FEED_FORWARD}}
"""Plans of families that have none in transformers, by `model_type`, in the format of `base_model_tp_plan`."""

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
