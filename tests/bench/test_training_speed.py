"""What a training step is measured against has its tokens and targets, and leaves the model as it was."""

from __future__ import annotations

from typing import Any

import torch

from bench.training_speed import Size, Times, dense, products
from hpd_core.training.loss import attach_training, collate, forward_loss
from tests.core.families import build_model
from tests.core.training.test_native import some_examples


def test_dense_rows_and_products_leave_a_model_that_trains() -> None:
    model = build_model("llama").train()
    attach_training(model)
    pack = some_examples()
    before = forward_loss(model, collate(pack))[0].item()
    seen: list[tuple[int, ...]] = []
    hook = model.model.register_forward_pre_hook(
        lambda _, __, kwargs: seen.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    size = Size.of(pack)
    assert size.num_tokens == collate(pack).num_tokens
    assert size.num_targets == len(collate(pack).targets)
    dense(model, size)
    hook.remove()
    assert seen == [(len(pack), size.num_tokens // len(pack))]
    products(model, size)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert forward_loss(model, collate(pack))[0].item() == before


def test_times_are_of_what_runs() -> None:
    times, made = Times(), list[Any]()
    times.add(lambda: made.append(torch.ones(300, 300) @ torch.ones(300, 300)))
    assert len(made) == len(times.processor) == len(times.clock) == 1
    assert times.clock[0] > 0
