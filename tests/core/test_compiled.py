"""What stands between linear layers, by torch.compile: right, for any number of tokens, and compiled at load only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hpd_core import compiled, models
from hpd_core.config import EngineConfig
from hpd_core.decoder import Decoder
from hpd_core.errors import ModelError

from .families import FUSED, build_model
from .helpers import assert_equals_oracle, decode, random_case, random_endings, random_ids
from .native import EVERY_WAY
from .pretended_gpu import pretended_gpu


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """torch compiles a function for a limited number of sizes in a process; a test's models have their own."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def decoder(model: Any, **changes: Any) -> Decoder:
    models.attach(model)
    endings = random_endings(np.random.default_rng(1))
    return Decoder(model, endings, EngineConfig(**changes), models.cache_shape(model))


def assert_near(found: Tensor, expected: Tensor) -> None:
    # Inside of a function nothing is rounded to bf16 but its result.
    tolerance = 1e-5 if found.dtype == torch.float32 else 2**-7
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight.double()


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
    assert decoder(model, layers="compiled", attention=attention).layers == "compiled"
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
        assert decoder(build_model("llama").to("cuda")).layers == "transformers"
    assert "layers run by transformers' code: torch.compile does not work here (ValueError: no Triton)" in caplog.text
    with pytest.raises(ModelError, match=r"engine\.layers is 'compiled', but torch\.compile does not work here"):
        decoder(build_model("llama"), layers="compiled")


def test_who_asks_for_what_cannot_be_had_is_told_why() -> None:
    with pytest.raises(ModelError, match=r"engine\.layers is 'compiled', but there is no code of ours for Gemma2For"):
        decoder(build_model("gemma2"), layers="compiled")
    with pytest.raises(ModelError, match=r"engine\.layers is 'native', but attention is 'eager'"):
        decoder(build_model("llama"), layers="native", attention="eager")
