"""The cross entropy of a training's targets."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hpd_core.training.examples import IGNORED


def cross_entropy(logits: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Summed cross entropy in fp32, as torch's, for logits [N, V] and targets int64 [N] (IGNORED: none)."""
    loss: Tensor = _CrossEntropy.apply(logits, targets, label_smoothing)  # type: ignore[no-untyped-call]
    return loss


class _CrossEntropy(torch.autograd.Function):
    """Cross entropy, computed a few rows at a time.

    torch's own makes four fp32 copies of [N, vocabulary]; this one keeps a single one in the logits' dtype, and its
    blocks stay in the cache. The gradient is known in the forward: softmax minus the target.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        """logits: [N, V]; targets: int64 [N]. Returns a scalar."""
        gradient = torch.empty_like(logits)
        total = torch.zeros((), dtype=torch.float32, device=logits.device)
        at_once = _LOSS_ROWS_AT_ONCE.get(logits.device.type, 256)
        for first in range(0, len(logits), max(1, at_once)):
            rows = slice(first, first + at_once)
            block = logits[rows].float()
            counts = targets[rows, None] != IGNORED
            target = targets[rows, None].clamp(min=0)
            logsumexp = block.logsumexp(-1, keepdim=True)
            likely = (1 - smoothing) * block.gather(1, target) + smoothing * block.mean(-1, keepdim=True)
            total += ((logsumexp - likely) * counts).sum()
            softmax = (block - logsumexp).exp_()
            softmax -= smoothing / block.shape[1]
            softmax.scatter_add_(1, target, softmax.new_full(target.shape, smoothing - 1))
            gradient[rows] = softmax.mul_(counts)
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """The gradient of the logits."""
        (gradient,) = ctx.saved_tensors
        return gradient * gradients[0].to(gradient.dtype), None, None


_LOSS_ROWS_AT_ONCE = {"cpu": 32, "cuda": 2048}
