"""Models that lose our keyword on the way, make logits that nobody asked for, or attend by code of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hpd_core.models import text_towers
from hpd_core.training.loss import attach_training, collate, forward_loss
from tests.core.sweep.configs import REACHES
from tests.core.sweep.outcome import build
from tests.core.training.test_hybrid_loss import draw, gradients, plain_loss
from tests.tables import table

LOSE_KEYWORDS = ("nemotron", "stablelm")
MAKE_ALL_LOGITS = ("qwen2_5_omni_thinker", "qwen3_omni_moe_thinker")


def tight(name: str) -> Any:
    model = build(name, REACHES["tight"])
    return model if text_towers.multimodal_class(model.config) is None else text_towers.alone(model)


@table("name", [*LOSE_KEYWORDS, *MAKE_ALL_LOGITS])
def test_loss_is_that_of_each_chain_alone(name: str) -> None:
    drawn, chains = draw(np.random.default_rng(0), 5, (3, 1, 4), longest=40)
    model = tight(name)
    attach_training(model)
    loss, _ = forward_loss(model, collate(drawn, multiple=16))
    with torch.no_grad():
        expected = plain_loss(tight(name), chains).item()
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    assert all(weight.isfinite().all() for weight in gradients(model, loss).values())
