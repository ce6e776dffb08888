"""How long the same steps would take on another card: arithmetic, not a measurement.

A step of n tokens, of which m have logits, takes

    max(products + attention + traffic, launches x cost of a launch)

    products    max(2 x (layers' weights x n + the head's weights x m) / FLOP/s, bytes of the weights / bandwidth)
    attention   4 x layers x heads x size of a head x context x n / (a third of FLOP/s)
    traffic     what norms, rotary embedding, the cache and SwiGLU read and write, x n / bandwidth

Of the card that was measured FLOP/s, bandwidth and the cost of a launch are measured, too, and the same sum for it is
compared with what its steps took. The other card's sum is multiplied by that ratio.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FORMULA = (
    "estimate = measured seconds x (sum over steps for the L40S) / (the same sum for this card); a step takes "
    "max(2 x weights x tokens / FLOP/s or weights' bytes / bandwidth + attention at a third of FLOP/s + "
    "activations' bytes / bandwidth, launches x cost)"
)

_ATTENTION_SHARE = 1 / 3
"""Of the products' FLOP/s."""

_BYTES = 2
"""Of a number of an activation."""


@dataclass(frozen=True, slots=True)
class Card:
    """What a card does in a second, and what a launch costs the host."""

    name: str
    flops: float
    bytes_per_second: float
    launch_seconds: float


L40S = Card("L40S", 0.65 * 362e12, 0.85 * 864e9, 8e-6)
"""NVIDIA's data sheet: 362 TFLOP/s in bf16 (dense), 864 GB/s. Assumed: within its 350 W large products reach 65%, and
copies 85%."""


DIMENSIONS = (
    *("num_hidden_layers", "hidden_size", "intermediate_size"),
    *("num_attention_heads", "num_key_value_heads", "head_dim"),
)
"""Of a model's configuration, as `ModelFacts` has them at its end, in this order."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the time of a step depends on.

    Attributes:
        context: tokens that a token attends to, on average.
        launches: of a step.
    """

    layer_parameters: int
    head_parameters: int
    weight_bytes: int
    context: float
    launches: float
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int

    @classmethod
    def of_row(cls, row: Mapping[str, Any], launches: float) -> ModelFacts:
        """`row`: of `tree`. A token sees half of its product's prompt, and some of the category's prefix."""
        sizes = (row["dimensions"][name] for name in DIMENSIONS)
        context = 0.6 * row["tokens"] / row["records"]
        return cls(row["layer_parameters"], row["head_parameters"], row["weight_bytes"], context, launches, *sizes)


def step_seconds(card: Card, model: ModelFacts, num_tokens: int, logits_share: float) -> float:
    """Of a step of so many tokens, of which this share has logits."""
    per_token = 2.0 * (model.layer_parameters + model.head_parameters * logits_share)
    products = max(per_token * num_tokens / card.flops, model.weight_bytes / card.bytes_per_second)
    scores = 4.0 * model.layers * model.heads * model.head_size * model.context
    attention = scores * num_tokens / (_ATTENTION_SHARE * card.flops)
    traffic = activation_numbers(model) * _BYTES * num_tokens / card.bytes_per_second
    return max(products + attention + traffic, model.launches * card.launch_seconds)


def activation_numbers(model: ModelFacts) -> float:
    """Numbers that go from and to memory between the products, for one token."""
    add_norm = 2 * 4 * model.hidden  # the stream and what is added to it in, the stream and its norm out
    rotary = 2 * (model.heads + 2 * model.kv_heads) * model.head_size
    swiglu = 3 * model.intermediate
    return float(model.layers * (add_norm + rotary + swiglu))


def estimate(row: Mapping[str, Any], here: Card, there: Card, model: ModelFacts) -> tuple[float, float]:
    """Products a second there, and measured seconds for a second of the formula here.

    Args:
        row: of `tree`, with its steps.
    """
    share = row["logits"] / row["tokens"]
    sums = [sum(step_seconds(card, model, tokens, share) for _, tokens in row["steps"]) for card in (here, there)]
    ratio = row["seconds"] / sums[0]
    return row["records"] / (sums[1] * ratio), ratio
