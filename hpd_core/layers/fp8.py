"""Linear layers in FP8 (e4m3): weights with a scale for every output channel, activations with one for every token.

A token's scale comes from that token alone. So other tokens of the step affect only the order in which a product is
summed. On a GPU torch multiplies the 8-bit numbers directly (`torch.nn.functional.scaled_mm`). On a CPU they are
multiplied in float32, which is slower than without FP8 and serves to judge its effect on the answers. Embeddings, norms
and the output head stay unchanged.
"""

from __future__ import annotations

from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hpd_core.errors import ModelError, first_line

DTYPE = torch.float8_e4m3fn
LARGEST = 448.0
"""Largest number of e4m3: each row's largest magnitude is scaled to it."""

SHARE = 1 / LARGEST
"""Factor for scales. A product with it is the same everywhere; a quotient by a constant is not: on a GPU torch makes a
product of it.
"""

SMALLEST = 2.0**-100
"""Lower bound of a row's largest magnitude: below it, a scale would lose its own precision, and end at zero."""

_MULTIPLE = 16
"""Divisor of both sizes of a weight, as a GPU requires."""

_VALUES = torch.arange(256, dtype=torch.uint8).view(DTYPE).float()
"""Values of all numbers in FP8, by their bits."""

_FIRST_CAPABILITY = (8, 9)
"""Compute capability of the first GPUs with products in FP8: Ada (L4, L40S) and newer."""


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize each row to FP8, so that its largest number becomes 448: a token's activations, or a weight's output
    channel.

    Args:
        x: [T, D], floating point.

    Returns:
        [T, D] in `DTYPE`, rounded to the nearest, and float32 [T], by which to multiply them: the row's largest
        magnitude times `SHARE`, 1 where all are zero. A row that is not finite becomes NaN.
    """
    wide = x if x.dtype == torch.float64 else x.float()
    largest = wide.abs().amax(dim=-1)
    scales = torch.where(largest == 0, 1.0, largest.clamp(min=SMALLEST).float() * SHARE)
    return (wide / scales[:, None]).to(DTYPE), scales


def product(
    x8: Tensor, x_scales: Tensor, w8: Tensor, w_scales: Tensor, bias: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """Return (x8 * x_scales) times (w8 * w_scales) transposed, plus bias: summed in float32, and rounded once, to
    `dtype`.

    Args:
        x8: [T, K] in `DTYPE`; x_scales: float32 [T].
        w8: [N, K] in `DTYPE`; w_scales: float32 [N]. On a GPU, N and K are multiples of 16.
        bias: [N] of `dtype`.

    Returns:
        [T, N] of `dtype`. On a CPU it may be float64, too; then all of it is summed in that.
    """
    if x8.device.type == "cuda":
        return _scaled_product(x8, x_scales, w8, w_scales, bias, dtype)
    values = _VALUES.double() if dtype == torch.float64 else _VALUES
    found = F.linear(_looked_up(values, x8), _looked_up(values, w8)).mul_(x_scales[:, None]).mul_(w_scales)
    return (found if bias is None else found.add_(bias)).to(dtype)


def _looked_up(values: Tensor, x8: Tensor) -> Tensor:
    """Convert FP8 numbers to another type by a table, four times as fast as torch does on a CPU."""
    return values.index_select(0, x8.view(torch.uint8).int().flatten()).view(x8.shape)


def _scaled_product(
    x8: Tensor, x_scales: Tensor, w8: Tensor, w_scales: Tensor, bias: Tensor | None, dtype: torch.dtype
) -> Tensor:
    by_row = F.ScalingType.RowWise
    # Beside an output of float32 torch takes no bias.
    fused, added = (None, bias) if dtype == torch.float32 else (bias, None)
    found: Tensor = F.scaled_mm(
        *(x8, w8.t(), x_scales[:, None], by_row, w_scales[None], by_row),
        bias=fused,
        output_dtype=dtype,
        use_fast_accum=True,
    )
    return found if added is None else found.add_(added)


class Fp8Linear(nn.Module):
    """Linear layer with its weight in FP8, for inference.

    Attributes:
        weight8: [N, K] in `DTYPE`.
        weight_scales: float32 [N].
        bias: [N], or None.
        in_features, out_features: K and N.
    """

    weight_scales: Tensor

    def __init__(self, weight8: Tensor, weight_scales: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight8.shape
        self.weight8 = nn.Parameter(weight8, requires_grad=False)
        # No parameter: a model's parameters are counted to say how many operations a token takes.
        self.register_buffer("weight_scales", weight_scales)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    @classmethod
    def from_linear(cls, linear: nn.Linear, device: torch.device | None = None) -> Self:
        """Return the layer in FP8, on `device`, or where it is. Raise ValueError if its weights are not finite."""
        weight = linear.weight.detach().to(device)
        weight8, scales = quantize_rows(weight)
        if not scales.isfinite().all():
            raise ValueError("its weights are not finite")
        return cls(weight8, scales, None if linear.bias is None else linear.bias.detach().to(device))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the layer: [..., K] -> [..., N], of x's dtype."""
        rows = x.reshape(-1, self.in_features)
        found = product(*quantize_rows(rows), self.weight8, self.weight_scales, self.bias, x.dtype)
        return found.view(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        """Return a linear layer's description."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def is_fp8(model: nn.Module) -> bool:
    """Return whether there are layers in FP8."""
    return any(isinstance(module, Fp8Linear) for module in model.modules())


def why_not(device: torch.device, dtype: torch.dtype) -> str | None:
    """Return why FP8 products with results of this dtype are not available there; None if they are. On a GPU it tries
    one.
    """
    if device.type == "cpu":
        return None
    if device.type != "cuda":
        return f"there is no code for FP8 on {device.type}, only on NVIDIA's GPUs, and on 'cpu' to try it"
    capability = torch.cuda.get_device_capability(device)
    if capability < _FIRST_CAPABILITY:
        return (
            f"{torch.cuda.get_device_name(device)} does not multiply in FP8 (its compute capability is "
            f"{capability[0]}.{capability[1]}; it begins with 8.9: L4, L40S, H100 and newer)"
        )
    number = torch.zeros(_MULTIPLE, _MULTIPLE, device=device)
    try:
        product(*quantize_rows(number), *quantize_rows(number), None, dtype)
    except (RuntimeError, ValueError) as error:
        reason = f"{first_line(error)}; try dtype 'bfloat16'"
        return f"torch does not multiply in FP8 with results in {dtype} on this GPU ({reason})"
    return None


def decoder_linears(model: Any, device: torch.device) -> list[str]:
    """Return the names of the linear layers between embeddings and head, within `model`, which may be on the device
    meta.

    Args:
        device: where they are to be multiplied in FP8.

    Raises:
        ModelError: a matrix there belongs to something else, such as experts, or is of a size that a GPU does not take
            in FP8; the message names it.
    """
    family, layers = model.config.model_type, getattr(model.get_decoder(), "layers", None)
    if layers is None:
        raise _refusal(family, "they have no list of layers")
    within = next(name for name, module in model.named_modules() if module is layers)
    names = []
    for path, module in layers.named_modules(prefix=within):
        if type(module) is nn.Linear:
            sizes = module.weight.shape
            if device.type == "cuda" and any(size % _MULTIPLE for size in sizes):
                raise _refusal(family, f"{path} is {sizes[0]} x {sizes[1]}, and a GPU wants multiples of {_MULTIPLE}")
            names.append(path)
        elif not isinstance(module, Fp8Linear) and any(part.dim() > 1 for part in module.parameters(recurse=False)):
            raise _refusal(family, f"{path} is a {type(module).__name__}, not a linear layer")
    return names


def _refusal(family: str, reason: str) -> ModelError:
    return ModelError(f"{family} models cannot be had in FP8 here: {reason}; set engine.quantization to null or 'nf4'")


@torch.no_grad()
def quantize_model(model: Any, device: torch.device | None = None) -> None:
    """Put the linear layers of all decoder layers into FP8, in place, one after the other; adapters are merged before.

    Args:
        model: a transformers model with its weights, as a rule on the CPU, where they are freed one by one.
        device: where to put the layers in FP8; by default where the model is.

    Raises:
        ModelError: as `decoder_linears`, or weights are not finite.
    """
    for name in decoder_linears(model, device or model.device):
        try:
            layer = Fp8Linear.from_linear(model.get_submodule(name), device)
        except ValueError as error:
            raise _refusal(model.config.model_type, f"{name}: {error}") from error
        model.set_submodule(name, layer)
