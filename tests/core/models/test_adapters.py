"""LoRA adapters: what is answered with one is what peft itself computes, and nothing of it is left out."""

from __future__ import annotations

import copy
import json
import logging
import shutil
import sys
from pathlib import Path
from typing import Any

import fsspec
import huggingface_hub
import numpy as np
import pytest
import torch
from peft import IA3Config, LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from torch import Tensor

from hpd_core import AutoregressiveBaseline, Engine, EngineConfig, ModelError
from hpd_core.models.adapter_folder import open_adapter
from hpd_core.models.adapter_record import AdapterRecord
from hpd_core.models.adapters import add_adapter
from hpd_core.models.description import model_revision
from hpd_core.models.loading import load_model, load_tokenizer
from tests.core.families import VOCABULARY, build_model
from tests.core.helpers import assert_equals_oracle, decode, random_case, random_endings, random_ids
from tests.core.products import SCHEMAS, products
from tests.tables import table
from tests.tiny_model import answering_model, answering_tokenizer

CPU: dict[str, Any] = {"device": "cpu", "dtype": "float32", "max_value_tokens": 8}
ATTENTION = ["q_proj", "v_proj"]
RECORD = AdapterRecord(
    base_model="tiny",
    base_revision=None,
    layout="tree",
    prompt_hash=EngineConfig().prompt.hash,
    max_value_tokens=30,
    stack_size=6,
)


def train(model: Any, folder: Path, seed: int = 0, **options: Any) -> Any:
    """peft's own model with random LoRA matrices that change every answer, saved to `folder`; `model` is left alone."""
    torch.manual_seed(seed)
    settings = {"r": 4, "lora_alpha": 8, "target_modules": ATTENTION, "task_type": "CAUSAL_LM"} | options
    adapted = get_peft_model(copy.deepcopy(model), LoraConfig(**settings))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    adapted.save_pretrained(folder, save_embedding_layers=False)
    return adapted.eval()


def use(model: Any, folder: Path, merge: bool | None = None, base_revision: str | None = None) -> Any:
    """A copy of `model` with the adapter in it."""
    adapted = copy.deepcopy(model)
    with open_adapter(str(folder)) as adapter:
        add_adapter(adapted, adapter, base_revision, merge)
    return adapted


@torch.inference_mode()
def logits(model: Any, vocabulary: int = VOCABULARY) -> Tensor:
    ids = torch.randint(3, vocabulary, (2, 24), generator=torch.Generator().manual_seed(1))
    rows: Tensor = model(input_ids=ids, use_cache=False).logits
    return rows


def lora_modules(model: Any) -> list[str]:
    return [name for name, _ in model.named_modules() if "lora_" in name]


def answers(engine: Any) -> list[list[tuple[str | None, str]]]:
    return [
        [(value.raw, value.status) for value in result.values.values()]
        for result in engine.extract(products(9), SCHEMAS)
    ]


@pytest.fixture
def base(tiny_model_dir: Path) -> Any:
    return load_model(str(tiny_model_dir), EngineConfig(**CPU))


@pytest.fixture
def adapter(base: Any, tmp_path: Path) -> Path:
    train(base, tmp_path / "adapter")
    return tmp_path / "adapter"


# What is computed.

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "attention": ("llama", {}),
    "every linear layer": ("gemma3", {"target_modules": "all-linear"}),
    "fused layers": ("phi3", {"target_modules": ["qkv_proj", "gate_up_proj"]}),
    "gpt_neox": ("gpt_neox", {"target_modules": ["query_key_value", "dense_4h_to_h"]}),
    "mixture of experts": ("qwen3_moe", {"target_modules": ["q_proj", "o_proj"]}),
    "patterns": ("qwen2", {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"v_proj": 3}, "use_rslora": True}),
    "some layers": ("olmo2", {"layers_to_transform": [0, 2]}),
    "dora": ("qwen3", {"use_dora": True, "use_rslora": True, "target_modules": ["q_proj", "down_proj"]}),
    "a whole head": ("llama", {"modules_to_save": ["lm_head"]}),
    "whole embeddings and norms": ("qwen2", {"modules_to_save": ["embed_tokens", "norm", "k_proj"]}),
    "embeddings": ("llama", {"target_modules": ["embed_tokens", "lm_head", "up_proj"]}),
}


@table("merge", [True, False])
@table("shape", SHAPES)
def test_logits_are_those_of_peft(shape: str, merge: bool, tmp_path: Path) -> None:
    family, options = SHAPES[shape]
    model = build_model(family)
    expected = logits(train(model, tmp_path, **options))
    adapted = use(model, tmp_path, merge)
    assert bool(lora_modules(adapted)) is not merge
    scale = float(expected.std())
    torch.testing.assert_close(logits(adapted), expected, atol=5e-4 * scale, rtol=1e-4)
    assert float((expected - logits(model)).abs().mean()) > 0.05 * scale, "the adapter changes nothing worth testing"


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("layout", ["tree", "stacked"])
@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen3_moe"])
def test_decoding_with_an_adapter_equals_the_oracle(family: str, layout: str, merge: bool, tmp_path: Path) -> None:
    """The oracle is a plain forward of peft's model; the engine decodes with ours."""
    rng = np.random.default_rng(5)
    endings = random_endings(rng)
    prefixes = [random_ids(rng, 9, 14), random_ids(rng, 3, 5)]
    cases = [random_case(rng, layout, prefixes, branches=4, k_max=6) for _ in range(5)]
    model = build_model(family)
    oracle = train(model, tmp_path)
    config = EngineConfig(max_prompts_per_cohort=3, max_tokens_per_step=64)
    prompts = decode(use(model, tmp_path, merge), cases, endings, config)
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle.get_base_model(), case, prompt, endings)
    assert [p.tokens for p in prompts] != [p.tokens for p in decode(model, cases, endings, config)]


def test_merging_rounds_once(base: Any, tmp_path: Path) -> None:
    """In bfloat16 a weight is the rounded sum in float32, not a sum of rounded parts."""
    half = copy.deepcopy(base).bfloat16()
    train(base, tmp_path)
    stored = load_file(tmp_path / "adapter_model.safetensors")
    merged = use(half, tmp_path)
    layer = "model.layers.1.self_attn.q_proj"
    a, b = (stored[f"base_model.model.{layer}.lora_{kind}.weight"] for kind in "AB")
    weight = half.get_submodule(layer).weight
    exact = (weight.float() + 2.0 * (b @ a)).bfloat16()
    assert merged.get_submodule(layer).weight.dtype == torch.bfloat16
    assert torch.equal(merged.get_submodule(layer).weight, exact)
    # The case is one in which it matters.
    assert not torch.equal(weight + 2.0 * (b.bfloat16() @ a.bfloat16()), exact)


def test_half_precision_adapters_stay_as_exact_as_their_file_beside_the_weights(base: Any, tmp_path: Path) -> None:
    half = copy.deepcopy(base).bfloat16()
    expected = train(base, tmp_path).state_dict()
    beside = use(half, tmp_path, merge=False).state_dict()
    name = "model.layers.0.self_attn.v_proj.lora_A.default.weight"
    assert torch.equal(beside[name], expected[f"base_model.model.{name}"])


def test_tied_embeddings_are_not_changed_through_the_head(tmp_path: Path) -> None:
    model = answering_model(answering_tokenizer(), tie_word_embeddings=True)
    vocabulary = model.config.vocab_size
    assert model.lm_head.weight is model.model.embed_tokens.weight
    expected = logits(train(model, tmp_path, target_modules=["lm_head", "q_proj"]), vocabulary)
    merged = use(model, tmp_path)
    torch.testing.assert_close(logits(merged, vocabulary), expected, atol=1e-4, rtol=1e-4)
    assert torch.equal(merged.model.embed_tokens.weight, model.model.embed_tokens.weight)


def test_dropout_is_for_training_only(base: Any, tmp_path: Path) -> None:
    expected = logits(train(base, tmp_path, lora_dropout=0.5))
    beside = use(base, tmp_path, merge=False)
    assert not any(module.training for module in beside.modules())
    torch.testing.assert_close(logits(beside), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("quantization", ["nf4", "int8"])
def test_beside_quantized_weights(quantization: Any, base: Any, tiny_model_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    train(base, tmp_path)
    config = EngineConfig(**CPU, quantization=quantization)
    expected = logits(PeftModel.from_pretrained(load_model(str(tiny_model_dir), config), str(tmp_path)).eval())
    adapted = load_model(str(tiny_model_dir), config)
    with open_adapter(str(tmp_path)) as opened:
        with pytest.raises(ModelError, match="cannot be merged into quantized weights"):
            add_adapter(adapted, opened, None, merge=True)
        add_adapter(adapted, opened, None)
    assert lora_modules(adapted)
    torch.testing.assert_close(logits(adapted), expected, atol=1e-4, rtol=1e-4)
    assert float((expected - logits(load_model(str(tiny_model_dir), config))).abs().mean()) > 0.05
    with Engine.from_pretrained(str(tiny_model_dir), config, adapter=str(tmp_path)) as engine:
        assert all(result.error is None for result in engine.extract(products(4), SCHEMAS))


# From a name to an engine.


def test_the_engine_answers_with_it(adapter: Path, base: Any, tiny_model_dir: Path) -> None:
    model = str(tiny_model_dir)
    config = EngineConfig(**CPU)
    with Engine.from_pretrained(model, config) as plain:
        without = answers(plain)
    with Engine(use(base, adapter), load_tokenizer(model, config), config) as merged:
        expected = answers(merged)
    with Engine.from_pretrained(model, config, adapter=str(adapter)) as engine:
        assert answers(engine) == expected != without


@pytest.mark.parametrize("kind", [Engine, AutoregressiveBaseline])
def test_both_decoders_load_it_and_name_it(kind: Any, adapter: Path, base: Any, tiny_model_dir: Path) -> None:
    config = EngineConfig(**CPU)
    with kind.from_pretrained(str(tiny_model_dir), config, adapter=str(adapter)) as decoder:
        found = decoder.describe()
        weights = decoder._weights.model.state_dict()
    expected = use(base, adapter).state_dict()
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    assert found["adapter_id"] == str(adapter)
    assert found["adapter_revision"].startswith("sha256:")
    assert found["notes"] == []
    with kind.from_pretrained(str(tiny_model_dir), config) as plain:
        bare = plain.describe()
    assert (bare["adapter_id"], bare["adapter_revision"]) == (None, None)
    assert bare["model_revision"] == found["model_revision"], "the adapter has a revision of its own"


def test_the_revision_is_of_settings_and_weights(adapter: Path, base: Any) -> None:
    def revision() -> str:
        with open_adapter(str(adapter)) as opened:
            return opened.revision

    first = revision()
    assert revision() == first
    path = adapter / "adapter_config.json"
    path.write_text(path.read_text().replace('"lora_alpha": 8', '"lora_alpha": 9'))
    second = revision()
    train(base, adapter, seed=1)
    assert len({first, second, revision()}) == 3


def test_from_another_file_system(adapter: Path, base: Any) -> None:
    memory = fsspec.filesystem("memory")
    memory.put(f"{adapter}/", "/adapters/mine/", recursive=True)
    try:
        with open_adapter("memory://adapters/mine") as there, open_adapter(str(adapter)) as here:
            folder = there.folder
            assert there.revision == here.revision
            adapted = copy.deepcopy(base)
            add_adapter(adapted, there, None)
        assert torch.equal(logits(adapted), logits(use(base, adapter)))
        assert not folder.exists(), "the copy is left behind"
    finally:
        memory.rm("/adapters", recursive=True)
    with (
        pytest.raises(ModelError, match=r"'memory://adapters/mine': there is no adapter_config.json"),
        open_adapter("memory://adapters/mine"),
    ):
        pass
    with (
        pytest.raises(ModelError, match=r"it cannot be downloaded: .*Protocol not known"),
        open_adapter("nosuch://b/x"),
    ):
        pass


def test_from_the_hubs_cache_its_commit_is_the_revision(
    adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "hub/models--shop--shoes-lora"
    shutil.copytree(adapter, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with open_adapter("shop/shoes-lora") as opened:
        assert (opened.id, opened.revision) == ("shop/shoes-lora", commit)
        assert opened.settings["r"] == 4
    with (
        pytest.raises(ModelError, match=r"cannot use the adapter 'shop/none': no such folder, and the hub does not"),
        open_adapter("shop/none"),
    ):
        pass


# What it was trained for.


def test_the_record_is_read_as_written(tmp_path: Path) -> None:
    assert AdapterRecord.read(tmp_path) is None
    RECORD.write(tmp_path)
    assert AdapterRecord.read(tmp_path) == RECORD
    written = json.loads((tmp_path / "hpd.json").read_text())
    assert written == RECORD.model_dump() | {"format": 1}
    (tmp_path / "hpd.json").write_text(json.dumps(written | {"of_a_later_version": 1}))
    assert AdapterRecord.read(tmp_path) == RECORD


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"stack_size": None}, "stack_size: "), ({"format": 2}, "format: "), ({"layout": "flat"}, "layout: ")],
)
def test_a_record_of_another_kind_is_refused(change: dict[str, Any], reason: str, adapter: Path) -> None:
    (adapter / "hpd.json").write_text(json.dumps(RECORD.model_dump() | change))
    with pytest.raises(ModelError, match=f"hpd.json is no record of a fine-tuning: {reason}"):
        use(None, adapter)
    (adapter / "hpd.json").write_text("{")
    with pytest.raises(ModelError, match=r"hpd\.json is no record of a fine-tuning: Invalid JSON"):
        use(None, adapter)


def test_an_adapter_of_other_weights_is_refused(adapter: Path, base: Any, tiny_model_dir: Path) -> None:
    revision = model_revision(base, str(tiny_model_dir))
    RECORD.model_copy(update={"base_revision": revision}).write(adapter)
    Engine.from_pretrained(str(tiny_model_dir), EngineConfig(**CPU), adapter=str(adapter)).close()
    RECORD.model_copy(update={"base_revision": "sha256:0000"}).write(adapter)
    with pytest.raises(ModelError, match=f"trained on tiny with revision sha256:0000, this model has .* {revision}"):
        Engine.from_pretrained(str(tiny_model_dir), EngineConfig(**CPU), adapter=str(adapter))


def test_another_layout_or_prompt_is_a_note(
    adapter: Path, tiny_model_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    RECORD.model_copy(update={"prompt_hash": "abc"}).write(adapter)
    layout_note = "the adapter was trained for layout 'tree', this run uses"
    config = EngineConfig(**CPU, layout="stacked")
    gap_note = "the adapter was trained with max_value_tokens 30, this run uses 8"
    prompt_note = (
        f"the adapter was trained with the prompt abc, this run uses {config.prompt.hash}: other texts, or other "
        f"engine.prompt.keys"
    )
    with (
        caplog.at_level(logging.WARNING, "hpd_core"),
        Engine.from_pretrained(str(tiny_model_dir), config, adapter=str(adapter)) as engine,
    ):
        assert engine.describe()["notes"] == [f"{layout_note} 'stacked'", gap_note, prompt_note]
    assert [record.getMessage() for record in caplog.records] == [
        f"{adapter}: {note}" for note in engine.describe()["notes"]
    ]
    # Of the same texts, but the tokenizer made something else of them.
    RECORD.model_copy(update={"rendered_prompt_hash": "def"}).write(adapter)
    with Engine.from_pretrained(str(tiny_model_dir), EngineConfig(**CPU), adapter=str(adapter)) as engine:
        rendered = engine.describe()["prompt_hash"]
        assert engine.notes == [
            f"the adapter was trained with the prompt def, this run uses {rendered}: another chat template, or another "
            f"engine.prompt.date"
        ]
    RECORD.model_copy(update={"rendered_prompt_hash": rendered}).write(adapter)
    with Engine.from_pretrained(str(tiny_model_dir), EngineConfig(**CPU), adapter=str(adapter)) as engine:
        assert engine.notes == []
    RECORD.write(adapter)
    with AutoregressiveBaseline.from_pretrained(str(tiny_model_dir), config, adapter=str(adapter)) as baseline:
        assert baseline.describe()["notes"] == [f"{layout_note} 'ar'"]


# What is refused: in one line, with the way out.


def refusal(adapter: Path | str, base: Any) -> str:
    with pytest.raises(ModelError) as caught:
        use(base, Path(adapter))
    message = str(caught.value)
    assert "\n" not in message
    return message


@table("name", ["/no/such/folder", "nothing", "a/b/c"])
def test_a_missing_folder(name: str) -> None:
    with pytest.raises(ModelError, match=f"cannot use the adapter '{name}': no such folder; .* hub id"):
        use(None, Path(name))


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_missing_file(name: str, adapter: Path) -> None:
    (adapter / name).rename(adapter / "adapter_model.bin")
    assert f"there is no {name} in it; an adapter is a folder as peft's save_pretrained" in refusal(adapter, None)


def test_broken_files(adapter: Path, base: Any) -> None:
    (adapter / "adapter_model.safetensors").write_bytes(b"not safetensors")
    assert "its adapter_model.safetensors cannot be read: " in refusal(adapter, base)
    save_file({}, adapter / "adapter_model.safetensors")
    assert "is empty" in refusal(adapter, base)
    for text in ("{", "[]"):
        (adapter / "adapter_config.json").write_text(text)
        assert "its adapter_config.json is no JSON" in refusal(adapter, None)


def test_another_method_than_lora(base: Any, tmp_path: Path) -> None:
    config = IA3Config(target_modules=["k_proj"], feedforward_modules=[], task_type="CAUSAL_LM")
    get_peft_model(copy.deepcopy(base), config).save_pretrained(tmp_path)
    assert "it is of type 'IA3'; train it as LORA" in refusal(tmp_path, base)


VARIANTS: dict[str, tuple[dict[str, Any], str]] = {
    "task": ({"task_type": "SEQ_CLS"}, "it is for the task 'SEQ_CLS'"),
    "dora": ({"use_dora": True}, "it targets layers without having weights for them"),
    "bias": ({"bias": "lora_only"}, "it uses bias, which is not supported"),
    "whole layers": ({"modules_to_save": ["lm_head"]}, "it has no weights for the whole layer lm_head"),
    "parameters": ({"target_parameters": ["mlp.up_proj.weight"]}, "it uses target_parameters,"),
    "of a peft to come": ({"lora_of_tomorrow": {"depth": 2}}, "it uses lora_of_tomorrow,"),
    "changed weights": ({"init_lora_weights": "pissa"}, "begun with init_lora_weights='pissa'"),
    "no rank": ({"r": 0}, "`r` should be a positive integer"),
    "nonsense": ({"r": "four"}, "it does not fit this llama model"),
    "a damaged pattern": ({"target_modules": "*_proj"}, "it does not fit this llama model: nothing to repeat"),
    "a list for a mapping": ({"rank_pattern": [8]}, "it does not fit this llama model"),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_not_plain_lora(variant: str, adapter: Path, base: Any) -> None:
    change, reason = VARIANTS[variant]
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert reason in refusal(adapter, base)


def test_settings_of_a_later_peft_that_are_off_do_no_harm(adapter: Path, base: Any) -> None:
    expected = logits(use(base, adapter))
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"lora_of_tomorrow": None}))
    assert torch.equal(logits(use(base, adapter)), expected)


MISFITS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "other names": ({"layers": 2}, {"target_modules": ["query_key_value"]}, "not found in the base model"),
    "wider": ({"hidden_size": 128, "head_dim": 16}, {}, "size mismatch for model.layers.0.self_attn.q_proj.lora_"),
    "deeper": ({"num_hidden_layers": 3}, {}, "4 of its 12 weights find no layer, such as "),
    "shallower": ({"num_hidden_layers": 1}, {}, "it targets layers without having weights for them, such as "),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_an_adapter_of_another_model(misfit: str, base: Any, tmp_path: Path) -> None:
    shape, options, reason = MISFITS[misfit]
    other = build_model("gpt_neox") if "layers" in shape else answering_model(answering_tokenizer(), **shape)
    train(other, tmp_path, **options)
    message = refusal(tmp_path, base)
    assert "it does not fit this llama model: " in message
    assert reason in message
    assert message.endswith("; load the model that it was trained on")


def test_a_target_without_weights_and_a_weight_without_target(adapter: Path, base: Any) -> None:
    """Settings and weights that do not belong together."""
    path = adapter / "adapter_config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps(settings | {"target_modules": ["q_proj", "v_proj", "o_proj"]}))
    assert "it targets layers without having weights for them, such as model.layers.0.self_attn.o_proj" in refusal(
        adapter, base
    )
    path.write_text(json.dumps(settings | {"target_modules": ["q_proj"]}))
    assert "4 of its 8 weights find no layer, such as " in refusal(adapter, base)


def test_weights_that_are_no_lora_or_not_finite(adapter: Path, base: Any) -> None:
    path = adapter / "adapter_model.safetensors"
    weights = load_file(path)
    save_file(weights | {"base_model.model.lm_head.weight": base.lm_head.weight.detach().clone()}, path)
    assert "it holds more than LoRA matrices, such as base_model.model.lm_head.weight; save it" in refusal(
        adapter, base
    )
    key = next(iter(weights))
    save_file(weights | {key: torch.full_like(weights[key], float("nan"))}, path)
    assert f"its weight {key} is not finite" in refusal(adapter, base)


def test_a_merge_that_half_precision_cannot_hold(adapter: Path, base: Any) -> None:
    path = adapter / "adapter_model.safetensors"
    save_file({key: weight * 1000 for key, weight in load_file(path).items()}, path)
    assert "it is beyond the range of torch.float16; use another dtype" in refusal(adapter, copy.deepcopy(base).half())


def test_without_peft(adapter: Path, base: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    assert refusal(adapter, base) == "an adapter needs the package 'peft': pip install peft"
