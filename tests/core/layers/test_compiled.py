"""What stands between linear layers, by torch.compile: right, for any number of tokens, and compiled at load only."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hpd_core.config import EngineConfig
from hpd_core.errors import ModelError
from hpd_core.layers import compiled
from tests.core.families import FUSED, build_model
from tests.core.helpers import assert_equals_oracle, decode, new_decoder, random_case, random_endings, random_ids
from tests.core.native import EVERY_WAY
from tests.core.pretended_gpu import pretended_gpu


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """torch compiles a function for a limited number of sizes in a process; a test's models have their own."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def assert_near(found: Tensor, expected: Tensor) -> None:
    # Inside of a function nothing is rounded to bf16 but its result.
    tolerance = 1e-5 if found.dtype == torch.float32 else 2**-7
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight.double()


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_functions_are_what_fp64_says(dtype: torch.dtype) -> None:
    torch.manual_seed(1)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape).to(dtype)

    with torch.inference_mode():
        weight, q_weight, k_weight = numbers(48), numbers(8), numbers(8)
        for n in (1, 2, 3, 1, 40, 257):
            x, delta = numbers(n, 48), numbers(n, 48)
            assert_near(compiled.add_norm(x, None, weight, 1e-3), rms_norm(x.double(), weight, 1e-3))
            stream = x + delta
            found = compiled.add_norm(x, delta, weight, 1e-3)
            assert torch.equal(x, stream), "the residual stream is what was added, rounded"
            assert_near(found, rms_norm(x.double(), weight, 1e-3))

            q, k, cos, sin = numbers(n, 6, 8), numbers(n, 2, 8), numbers(n, 8), numbers(n, 8)
            for norms in (None, ((q_weight, 1e-3), (k_weight, 1e-1))):
                for i, turned in enumerate(compiled.rotary(q.clone(), k.clone(), cos, sin, norms)):
                    straight = (q, k)[i].double()
                    straight = straight if norms is None else rms_norm(straight, *norms[i])
                    first, second = straight.split(4, dim=-1)
                    other = torch.cat([-second, first], dim=-1)
                    assert_near(turned, straight * cos.double()[:, None] + other * sin.double()[:, None])

            gate, up = numbers(n, 96), numbers(n, 96)
            expected = torch.nn.functional.silu(gate.double()) * up.double()
            assert_near(compiled.swiglu(gate, up), expected)


@pytest.mark.parametrize("attention", EVERY_WAY)
@pytest.mark.parametrize("layout", ["tree", "stacked"])
@pytest.mark.parametrize("family", FUSED)
@pytest.mark.usefixtures("poison")
def test_decoding_equals_the_oracle_and_compiles_nothing(family: str, layout: str, attention: Any) -> None:
    """Steps have any number of tokens, down to one. What the decoder needs was compiled when it was made."""
    rng = np.random.default_rng(7)
    endings = random_endings(rng)
    cases = [random_case(rng, layout, [random_ids(rng, 9, 14)], branches=4, k_max=6) for _ in range(6)]
    config = EngineConfig(max_prompts_per_cohort=4, max_tokens_per_step=64, layers="compiled", attention=attention)
    model = build_model(family)
    assert new_decoder(model, layers="compiled", attention=attention).layers == "compiled"
    with torch.compiler.set_stance("fail_on_recompile"):
        prompts = decode(model, cases, endings, config)
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(build_model(family), case, prompt, endings)


def broken(*_: Any) -> Any:
    raise ValueError("no Triton\nhere")


def test_a_compiler_that_fails_leaves_the_model_its_own_code(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    build_model("llama")
    monkeypatch.setattr(compiled, "_swiglu", broken)
    caplog.set_level("INFO", logger="hpd_core")
    with pretended_gpu():
        assert new_decoder(build_model("llama").to("cuda")).layers == "transformers"
    assert "layers run by transformers' code: torch.compile does not work here (ValueError: no Triton)" in caplog.text
    with pytest.raises(ModelError, match=r"engine\.layers is 'compiled', but torch\.compile does not work here"):
        new_decoder(build_model("llama"), layers="compiled")


class Wrapped(torch.nn.Module):
    """A linear layer by another name, without a weight of its own."""

    def __init__(self, inside: Any) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x: Tensor) -> Any:
        return self.inside(x)


def test_linear_layers_may_be_anything() -> None:
    rng = np.random.default_rng(7)
    endings = random_endings(rng)
    case = random_case(rng, "tree", [random_ids(rng, 9, 14)], branches=4, k_max=6)
    model = build_model("llama")
    for layer in model.model.layers:
        layer.mlp.gate_proj, layer.self_attn.q_proj = Wrapped(layer.mlp.gate_proj), Wrapped(layer.self_attn.q_proj)
    [prompt] = decode(model, [case], endings, EngineConfig(layers="compiled"))
    assert_equals_oracle(build_model("llama"), case, prompt, endings)


@pytest.mark.full
def test_what_torch_would_run_uncompiled_is_not_called_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """It compiles a function for so many kinds of models, and says nothing where there are more."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for family in FUSED:
            assert new_decoder(build_model(family).to(dtype), layers="compiled", attention="sdpa").layers == "compiled"
    torch.compiler.reset()
    monkeypatch.setattr(compiled, "_MOST_COMPILED", 2)
    with pytest.raises(ModelError, match=r"torch\.compile does not work here \(FailOnRecompileLimitHit"):
        new_decoder(build_model("llama"), layers="compiled")


def test_missing_memory_is_no_missing_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(compiled, "_swiglu", full)
    with pytest.raises(torch.OutOfMemoryError):
        new_decoder(build_model("llama"), layers="compiled")


def test_a_decoder_may_be_stepped_by_another_thread() -> None:
    rng = np.random.default_rng(7)
    endings = random_endings(rng)
    case = random_case(rng, "tree", [random_ids(rng, 9, 14)], branches=4, k_max=6)
    model = build_model("qwen3")
    new_decoder(model, layers="compiled")

    def run() -> None:
        with torch.compiler.set_stance("fail_on_recompile"):
            [prompt] = decode(model, [case], endings, EngineConfig(layers="compiled"))
        assert_equals_oracle(build_model("qwen3"), case, prompt, endings)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(run).result()


def test_who_asks_for_what_cannot_be_had_is_told_why() -> None:
    with pytest.raises(ModelError, match=r"engine\.layers is 'compiled', but there is no code of ours for Gemma2For"):
        new_decoder(build_model("gemma2"), layers="compiled")
    with pytest.raises(ModelError, match=r"engine\.layers is 'native', but attention is 'eager'"):
        new_decoder(build_model("llama"), layers="native", attention="eager")
