"""GPTQ, AWQ and compressed-tensors: as exact as what their packages make of the checkpoint.

`pip install gptqmodel optimum compressed-tensors`, in an environment of its own, as gptqmodel asks for a torch of its
own; without them the tests are skipped. On a CPU gptqmodel compiles its kernels once, for a minute.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
import transformers as tf

from hpd_core import Engine, EngineConfig, ModelError
from hpd_core.models import description, loading
from hpd_core.models.adapter_folder import open_adapter
from hpd_core.models.adapters import add_adapter
from hpd_core.parallel import group
from tests.core.families import build_model
from tests.core.helpers import (
    assert_equals_oracle,
    decode,
    random_case,
    random_endings,
    random_ids,
    without_constraints,
)
from tests.core.models.quantized_checkpoints import BY_FOUR_BITS, METHODS, save_quantized
from tests.core.models.test_adapters import train
from tests.core.models.test_peoples_checkpoints import change
from tests.core.products import SCHEMAS, products
from tests.core.sweep.tokenizer import tiny_tokenizer

CPU = EngineConfig(device="cpu", dtype="float32", max_value_tokens=4)
PACKAGES = {"gptq": ("optimum", "gptqmodel"), "awq": ("gptqmodel",)}
# Deviations of the logits. gptqmodel's kernels for CPUs put weights into bfloat16 whatever the model is in.
WORST_BEHIND = {"gptq": 0.1, "awq": 0.1, "pack-quantized": 1e-3}

Saved: TypeAlias = Callable[[str], tuple[Path, Any]]

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """Of a method a checkpoint's folder, and a plain model of the same numbers. Skips where a package is missing."""
    made: dict[str, tuple[Path, Any]] = {}

    def save(method: str) -> tuple[Path, Any]:
        for package in PACKAGES.get(method, ("compressed_tensors",)):
            pytest.importorskip(package, reason=f"{method} checkpoints are read by {package}")
        if method not in made:
            folder = tmp_path_factory.mktemp(method)
            plain = save_quantized(build_model("llama", hidden_size=64, head_dim=16), folder, method)
            tiny_tokenizer().save_pretrained(folder)
            made[method] = folder, plain
        return made[method]

    return save


@torch.inference_mode()
def behind(found: Any, wanted: Any) -> float:
    """How far two models' logits are apart at most, in their deviations."""
    ids = torch.arange(5, 25)[None]
    theirs, ours = (each(input_ids=ids, use_cache=False).logits for each in (found, wanted))
    return float((theirs - ours).abs().max() / ours.std())


def load_oracle(folder: Path) -> Any:
    """By transformers alone."""
    return tf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, device_map={"": "cpu"})


@pytest.mark.parametrize("method", BY_FOUR_BITS)
def test_decodes_as_transformers_does(method: str, saved: Saved) -> None:
    folder, plain = saved(method)
    model, oracle = loading.load_model(str(folder), CPU), load_oracle(folder)
    assert behind(oracle, plain) < WORST_BEHIND[method]
    rng = np.random.default_rng(11)
    endings = random_endings(rng)
    prefix = random_ids(rng, 9, 14)
    for layout in ("tree", "stacked"):
        cases = [random_case(rng, layout, [prefix], branches=4, k_max=6) for _ in range(4)]
        for case, prompt in zip(cases, decode(model, cases, endings, CPU), strict=True):
            assert_equals_oracle(oracle, case, prompt, endings)


def test_activations_in_eight_bits_are_near_the_oracle(saved: Saved) -> None:
    """The largest number of each token stands between two of the 255 (compressed-tensors makes it 127.5), so that the
    last bit of a sum decides, in float64, too. Measured: none of 123 tokens
    is another."""
    folder, _ = saved("int-quantized")
    model, oracle = loading.load_model(str(folder), CPU), load_oracle(folder)
    rng = np.random.default_rng(11)
    endings = random_endings(rng)
    prefix = random_ids(rng, 9, 14)
    cases = [without_constraints(random_case(rng, "tree", [prefix], branches=4, k_max=6)) for _ in range(12)]
    found = [
        value.behind(index, token)
        for case, prompt in zip(cases, decode(model, cases, endings, CPU), strict=True)
        for value, tokens in zip(case.forced(oracle, endings, prompt.tokens), prompt.tokens, strict=True)
        for index, token in enumerate(tokens)
    ]
    flips = sum(each > 0 for each in found) / len(found)
    print(f"{flips:.3f} of {len(found)} tokens are not the oracle's, the worst {max(found):.3f} deviations behind it")
    assert len(found) > 100
    assert max(found) < 0.5
    assert flips < 0.1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("method", METHODS)
def test_is_loaded_and_proved(method: str, dtype: str, saved: Saved) -> None:
    folder, _ = saved(method)
    with Engine.from_pretrained(str(folder), CPU.model_copy(update={"dtype": dtype})) as engine:
        assert not [result.error for result in engine.extract(products(4), SCHEMAS) if result.error]


@pytest.mark.parametrize("method", BY_FOUR_BITS)
def test_its_size_is_that_of_its_numbers(method: str, saved: Saved) -> None:
    """Not of the words that they are packed into; compressed-tensors keeps its scales beside what it has unpacked."""
    folder, plain = saved(method)
    model = loading.load_model(str(folder), CPU)
    found, expected = description.size(model), description.size(plain)
    assert found["head_parameters"] == expected["head_parameters"]
    assert expected["layer_parameters"] <= found["layer_parameters"] < 1.05 * expected["layer_parameters"]
    assert (found["weight_bytes"] < expected["weight_bytes"]) == (method in PACKAGES)


def test_a_scale_for_a_whole_batch_is_refused(tmp_path: Path) -> None:
    scheme = {"num_bits": 8, "type": "int", "strategy": "tensor", "dynamic": True}
    group = {"targets": ["Linear"], "weights": {**scheme, "dynamic": False}, "input_activations": scheme}
    build_model("llama").save_pretrained(tmp_path)
    quantized = {"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {"group_0": group}}
    change(tmp_path, "config.json", quantization_config=quantized)
    with pytest.raises(ModelError, match=r"one scale for all tokens of a batch.*strategy 'token'"):
        loading.load_model(str(tmp_path), CPU)


@pytest.mark.parametrize("method", METHODS)
def test_an_adapter_beside_it(method: str, saved: Saved, tmp_path: Path) -> None:
    """Its matrices are added to what the layers give; nothing is merged into them."""
    folder, plain = saved(method)
    adapted = train(plain, tmp_path, target_modules=["q_proj", "down_proj"])
    before, model = loading.load_model(str(folder), CPU), loading.load_model(str(folder), CPU)
    with open_adapter(str(tmp_path)) as adapter:
        add_adapter(model, adapter, None)
    assert behind(model, before) > 0.5
    assert behind(model, adapted) < 1.5 * WORST_BEHIND.get(method, 1)


@pytest.mark.parametrize("method", PACKAGES)
def test_they_are_not_cut(method: str, tmp_path: Path) -> None:
    build_model("llama").save_pretrained(tmp_path)
    change(tmp_path, "config.json", quantization_config={"quant_method": method, "bits": 4, "group_size": 32})
    with pytest.raises(ModelError, match=rf"quantized \({method}\), and cannot be cut: set tensor_parallel to 1"):
        group.check(str(tmp_path), CPU.model_copy(update={"tensor_parallel": 2}))


def test_keys_and_values_are_kept_in_full_precision(
    saved: Saved, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, plain = saved("pack-quantized")
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    stored = loading.load_config(str(folder), CPU).quantization_config
    scheme = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}
    change(tmp_path, "config.json", quantization_config={**stored, "kv_cache_scheme": scheme})
    model = loading.load_model(str(tmp_path), CPU)
    assert "kv_cache_scheme is not used" in caplog.text
    assert behind(model, plain) < WORST_BEHIND["pack-quantized"]
