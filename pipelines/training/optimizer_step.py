"""Optimizer step: forward and backward over a worker's packs, then the update."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from hpd_core.training.loss import attach_training, collate, forward_loss
from pipelines.errors import UsageError
from pipelines.training.course import Course
from pipelines.training.step_planner import TrainingStep
from pipelines.training.trained_weights import MasterWeights

# oneDNN prepares its kernels anew for every shape, which takes longer than a forward.
_PADDING_MULTIPLE = 128


class Stepper:
    """Optimizer steps of worker `rank` of `num_workers`."""

    def __init__(self, course: Course, rank: int, num_workers: int) -> None:
        self._config = course.config
        self._rank, self._num_workers = rank, num_workers
        model = course.trained.model
        attach_training(model)
        self._device = model.device
        self._wrapped: Any = model
        if num_workers > 1:
            devices = [model.device] if model.device.type == "cuda" else None
            self._wrapped = DistributedDataParallel(model, device_ids=devices)
        self.weights = MasterWeights(course.trained.parameters, self._config.optimizer, course.num_steps)

    def take(self, step: TrainingStep, number: int) -> tuple[float, int, float]:
        """Take step `number` (from 0). Return this worker's summed loss and right predictions, and the gradient's norm.

        Raises `UsageError` if the norm is not finite.
        """
        # Dropout of a step is the same, however often the run was stopped before.
        torch.manual_seed(hash((self._config.seed, number, self._rank)))
        packs = step.packs[self._rank]
        total_loss, num_right = 0.0, 0
        for index, pack in enumerate(packs):
            is_last = index == len(packs) - 1
            wait = contextlib.nullcontext() if is_last or self._num_workers == 1 else self._wrapped.no_sync()
            with wait:
                # A worker without a pack forwards another one's with no weight: all must meet in the last backward.
                batch = collate(pack or step.packs[0][0], self._device, _PADDING_MULTIPLE)
                loss, right = forward_loss(self._wrapped, batch, self._config.optimizer.label_smoothing)
                # Workers' gradients are averaged, the loss is a mean over all of them.
                (loss * (self._num_workers / step.num_targets if pack else 0.0)).backward()  # type: ignore[no-untyped-call]
            if pack:
                total_loss += float(loss.detach())
                num_right += int(right)
        norm = self.weights.step(number)
        if not math.isfinite(norm):
            raise UsageError(
                f"the gradient is not finite at step {number}: the training has diverged. Lower "
                f"optimizer.learning_rate, in another output"
            )
        return total_loss, num_right, norm
