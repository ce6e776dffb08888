"""Layers in FP8 by the kernels in Triton, in its interpreter: whole decodings are those of the same layers in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hpd_core import EngineConfig
from hpd_core.layers.fp8 import Fp8Linear, quantize_rows
from tests.core.families import build_model
from tests.core.helpers import assert_equals_oracle, decode, random_case, random_endings
from tests.core.triton import needs_interpreter
from tests.tables import table

pytestmark = [needs_interpreter, pytest.mark.usefixtures("torch_rounds")]

ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
MLP = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


def model_with(names: tuple[str, ...]) -> Any:
    """A tiny Qwen3, of whose layers these are in FP8."""
    model = build_model("qwen3")
    for layer in model.model.layers:
        for name in names:
            layer.set_submodule(name, Fp8Linear.from_linear(layer.get_submodule(name)))
    return model


@table(
    "names",
    [
        (*ATTENTION, *MLP),
        ("self_attn.q_proj", "mlp.down_proj"),  # one of three that are one product else
        ("self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj"),
    ],
)
def test_layers_in_fp8_and_others(names: tuple[str, ...]) -> None:
    """A checkpoint may leave any of them as they were. Five seconds each."""
    # A draw without a number at an edge of e4m3, where the last bit of a sum decides and an eighth of it follows.
    rng = np.random.default_rng(12)
    endings = random_endings(rng, share=0.1)
    cases = [random_case(rng, "tree", [[]], branches=2, k_max=2) for _ in range(2)]
    prompts = decode(model_with(names), cases, endings, EngineConfig(attention="triton", layers="triton"))
    oracle = model_with(names)
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)


def test_what_is_not_finite_stays_so() -> None:
    """Else a broken model would answer with confidence."""
    from hpd_core.layers.triton_pointwise import quantize

    x = torch.randn(4, 40)
    x[1, 3], x[2, 7] = torch.nan, torch.inf
    small, scales = quantize(x)
    expected, expected_scales = quantize_rows(x)
    finite = torch.tensor([True, False, False, True])
    assert torch.equal((small.float() * scales[:, None]).isfinite().all(dim=1), finite)
    assert torch.equal(small[finite].float(), expected[finite].float())
    assert torch.equal(scales[finite], expected_scales[finite])
