"""Cross entropy of a training's targets."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hpd_core.native import library, pointwise
from hpd_core.training.examples import IGNORED


def cross_entropy(logits: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return the summed cross entropy in fp32, as torch's, and how many targets are the likeliest token (the first of
    equals).

    Args:
        logits: [N, V]
        targets: int64 [N]; IGNORED rows have no target.

    Returns:
        Scalars; the second one, int64, has no gradient.
    """
    function = _NativeCrossEntropy if pointwise.takes(logits) and library.is_here() else _CrossEntropy
    loss, right = function.apply(logits, targets, label_smoothing)  # type: ignore[no-untyped-call]
    return loss, right


class _CrossEntropy(torch.autograd.Function):
    """Cross entropy, computed a few rows at a time.

    torch's own makes four fp32 copies of [N, vocabulary]; this one keeps a single one in the logits' dtype, and its
    blocks stay in the cache. The gradient is known in the forward: softmax minus the target.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        """Compute as `cross_entropy`."""
        gradient = torch.empty_like(logits)
        total = torch.zeros((), dtype=torch.float32, device=logits.device)
        right = torch.zeros((), dtype=torch.int64, device=logits.device)
        at_once = _LOSS_ROWS_AT_ONCE.get(logits.device.type, 256)
        for first in range(0, len(logits), max(1, at_once)):
            rows = slice(first, first + at_once)
            block = logits[rows].float()
            counts = targets[rows, None] != IGNORED
            right += (block.argmax(-1) == targets[rows]).sum()
            target = targets[rows, None].clamp(min=0)
            logsumexp = block.logsumexp(-1, keepdim=True)
            likely = (1 - smoothing) * block.gather(1, target) + smoothing * block.mean(-1, keepdim=True)
            total += ((logsumexp - likely) * counts).sum()
            softmax = (block - logsumexp).exp_()
            softmax -= smoothing / block.shape[1]
            softmax.scatter_add_(1, target, softmax.new_full(target.shape, smoothing - 1))
            gradient[rows] = softmax.mul_(counts)
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(right)
        return total, right

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of the logits."""
        (gradient,) = ctx.saved_tensors
        return gradient * gradients[0].to(gradient.dtype), None, None


_LOSS_ROWS_AT_ONCE = {"cpu": 32, "cuda": 2048}


class _NativeCrossEntropy(torch.autograd.Function):
    """Cross entropy on a CPU: logits are read once in each direction, and kept in place of their gradient."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        """Compute as `cross_entropy`."""
        targets = targets.contiguous()
        tokens, _, normalizers = pointwise.choose(logits)
        likely = (1 - smoothing) * logits.gather(1, targets.clamp(min=0)[:, None])[:, 0].float()
        if smoothing:
            likely += smoothing * logits.mean(-1, dtype=torch.float32)
        ctx.smoothing = smoothing
        ctx.save_for_backward(logits, targets, normalizers)
        right = (tokens == targets).sum()
        ctx.mark_non_differentiable(right)
        return (normalizers - likely)[targets != IGNORED].sum(), right

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of the logits."""
        logits, targets, normalizers = ctx.saved_tensors
        gradient = torch.empty_like(logits)
        library.function("cross_entropy_backward", logits.dtype)(
            *(x.data_ptr() for x in (logits, normalizers, targets, gradient)),
            *(*logits.shape, ctx.smoothing, float(gradients[0]), torch.get_num_threads()),
        )
        return gradient, None, None
