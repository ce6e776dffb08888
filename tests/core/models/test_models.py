"""Which models work, which are refused, and why."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf

from hpd_core import Engine, EngineConfig, ErrorCode, ModelError, Record
from hpd_core.models.description import max_positions
from hpd_core.models.loading import load_model, load_tokenizer, resolve_dtype
from hpd_core.requests.prompt_builder import PromptBuilder
from tests.core.families import VOCABULARY
from tests.core.helpers import assert_equals_oracle, decode, random_case, random_endings, random_ids
from tests.core.products import SCHEMAS, products
from tests.tables import table
from tests.tiny_model import answering_model, answering_tokenizer

CPU = {"device": "cpu", "dtype": "float32"}
_SMALL: dict[str, Any] = {
    "vocab_size": 420,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def save(folder: Path, config: Any, *, weights: bool) -> str:
    if weights:
        tf.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    else:
        config.save_pretrained(folder)
    answering_tokenizer().save_pretrained(folder)
    return str(folder)


# Refused by their config alone: nobody waits for the weights of a model that cannot work.
BY_CONFIG: dict[str, tuple[Any, str]] = {
    "inkling": (lambda: tf.InklingTextConfig(vocab_size=420), "hear from every distance"),
    "deepseek_v4": (lambda: tf.DeepseekV4Config(vocab_size=420), "Take DeepSeek V3.2"),
    # It does not say how much it picks.
    "qwen4_exp": (lambda: tf.Qwen4ExpTextConfig(vocab_size=420), "layers of type indexed_attention"),
    "t5": (
        lambda: tf.T5Config(vocab_size=420, d_model=32, d_kv=16, d_ff=32, num_layers=2, num_heads=2),
        "decoder-only",
    ),
}


@table("family", BY_CONFIG)
def test_refused_by_config_with_the_reason(family: str, tmp_path: Path) -> None:
    make, reason = BY_CONFIG[family]
    folder = save(tmp_path, make(), weights=False)
    with pytest.raises(ModelError, match=reason):
        Engine.from_pretrained(folder, EngineConfig(**CPU))


BY_CODE: dict[str, Any] = {
    "bloom": lambda: tf.BloomConfig(vocab_size=420, hidden_size=32, n_layer=2, n_head=2),
    "mpt": lambda: tf.MptConfig(vocab_size=420, d_model=32, n_layers=2, n_heads=2),
}


@table("family", BY_CODE)
def test_models_that_attend_by_code_of_their_own_are_proved_to_obey(family: str, tmp_path: Path) -> None:
    folder = save(tmp_path, BY_CODE[family](), weights=True)
    Engine.from_pretrained(folder, EngineConfig(**CPU)).close()


def test_a_model_that_is_bidirectional_is_refused() -> None:
    """BERT takes our attention, but its own forward is not what decoding means."""
    torch.manual_seed(0)
    config = tf.BertConfig(**{k: v for k, v in _SMALL.items() if k != "num_key_value_heads"}, initializer_range=0.3)
    with pytest.raises(ModelError):
        Engine(tf.BertLMHeadModel(config).eval(), answering_tokenizer(), EngineConfig(**CPU))


@table(("nope", "value"), [(8, 12), (32, 8), (32, 64)])
def test_keys_and_values_of_different_size_work_or_are_refused(nope: int, value: int) -> None:
    """DeepSeek V3: never a raw shape error."""
    config = tf.DeepseekV3Config(
        **_SMALL,
        n_routed_experts=4,
        n_group=1,
        topk_group=1,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        q_lora_rank=None,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=nope,
        v_head_dim=value,
    )
    model = tf.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    # Working is as good as a refusal that names the family.
    with contextlib.suppress(ModelError):
        Engine(model, answering_tokenizer(), EngineConfig(**CPU)).close()


def test_a_layer_that_forgets_the_mask_is_found_out() -> None:
    """The proof at load compares with ordinary forwards; here the model ignores the positions it is given."""
    model = answering_model(answering_tokenizer())
    forward = model.forward

    def without_positions(*args: Any, position_ids: Any = None, **options: Any) -> Any:
        return forward(*args, **options)

    model.forward = without_positions
    with pytest.raises(ModelError, match="llama"):
        Engine(model, answering_tokenizer(), EngineConfig(**CPU))


# Where the model comes from.


def test_unknown_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no-such-folder.*there is no such folder.*gemma3-270m, smollm2"):
        Engine.from_pretrained(str(tmp_path / "no-such-folder"), EngineConfig(**CPU))


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        Engine.from_pretrained(str(tmp_path), EngineConfig(**CPU))


def test_pickled_weights_are_not_loaded(tmp_path: Path) -> None:
    model = answering_model(answering_tokenizer())
    model.config.save_pretrained(tmp_path)
    answering_tokenizer().save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="safetensors"):
        Engine.from_pretrained(str(tmp_path), EngineConfig(**CPU))


def test_code_that_comes_with_a_model_does_not_run(tmp_path: Path) -> None:
    folder = Path(save(tmp_path / "model", answering_model(answering_tokenizer()).config, weights=True))
    witness = tmp_path / "it-ran"
    code = f"from pathlib import Path\nPath({str(witness)!r}).touch()\n"
    code += "from transformers import LlamaConfig as C, LlamaForCausalLM as M\nclass OwnC(C):\n    model_type='own'\n"
    (folder / "own.py").write_text(code + "class OwnM(M):\n    config_class = OwnC\n")
    text = (folder / "config.json").read_text().replace('"model_type": "llama"', '"model_type": "own"')
    auto = '{"auto_map": {"AutoConfig": "own.OwnC", "AutoModelForCausalLM": "own.OwnM"},'
    (folder / "config.json").write_text(text.replace("{", auto, 1))
    with pytest.raises(ModelError):
        Engine.from_pretrained(str(folder), EngineConfig(**CPU))
    assert not witness.exists()


def test_code_that_would_replace_known_classes_does_not_run(tmp_path: Path, tiny_model_dir: Path) -> None:
    """transformers prefers such code as soon as it is trusted; untrusted, its own classes load the model."""
    folder, witness = tmp_path / "model", tmp_path / "it-ran"
    shutil.copytree(tiny_model_dir, folder)
    code = f"from pathlib import Path\nPath({str(witness)!r}).touch()\n"
    code += "from transformers import LlamaForCausalLM as OwnM, PreTrainedTokenizerFast as OwnT\n"
    (folder / "own.py").write_text(code)
    for name, auto in (
        ("config.json", {"AutoModelForCausalLM": "own.OwnM"}),
        ("tokenizer_config.json", {"AutoTokenizer": [None, "own.OwnT"]}),
    ):
        data = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**data, "auto_map": auto}))
    with contextlib.suppress(ModelError):
        Engine.from_pretrained(str(folder), EngineConfig(**CPU)).close()
    assert not witness.exists()


@table("device", ["cuda", "tpu", "gpu:0", "cpu0", ""])
def test_devices_that_are_not_there_are_refused(device: str, tiny_model_dir: Path) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(ModelError, match="device"):
        Engine.from_pretrained(str(tiny_model_dir), EngineConfig(device=device))


# How far a model's positions reach.


def _rope(kind: str, **options: Any) -> dict[str, Any]:
    return {"rope_type": kind, "rope_theta": 10000.0, "factor": 4.0, **options}


@table(
    ("config", "expected"),
    [
        (tf.LlamaConfig(**_SMALL, max_position_embeddings=512), 512),
        (tf.LlamaConfig(**_SMALL, max_position_embeddings=512, rope_parameters=_rope("linear")), 512),
        (
            tf.LlamaConfig(
                **_SMALL,
                max_position_embeddings=512,
                rope_parameters=_rope("dynamic", original_max_position_embeddings=128),
            ),
            128,
        ),
        (
            tf.Phi3Config(
                **_SMALL,
                max_position_embeddings=4096,
                original_max_position_embeddings=256,
                rope_parameters=_rope("longrope", short_factor=[1.0] * 8, long_factor=[2.0] * 8),
            ),
            256,
        ),
        (tf.GPT2Config(vocab_size=420, n_embd=32, n_layer=2, n_head=2, n_positions=300), 300),
        (tf.OPTConfig(vocab_size=420, hidden_size=32, max_position_embeddings=300), 300),
        (tf.Gemma3TextConfig(max_position_embeddings=700), 700),
        (tf.DogeConfig(max_position_embeddings=700, keep_window_size=300), 300),
    ],
)
def test_max_positions(config: Any, expected: int) -> None:
    assert max_positions(config) == expected


LEARNED: dict[str, Any] = {
    "gpt2": lambda vocabulary, positions: tf.GPT2Config(
        vocab_size=vocabulary,
        n_embd=48,
        n_layer=2,
        n_head=4,
        n_positions=positions,
        initializer_range=0.3,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "opt": lambda vocabulary, positions: tf.OPTConfig(
        vocab_size=vocabulary,
        hidden_size=48,
        word_embed_proj_dim=48,
        ffn_dim=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=positions,
        init_std=0.3,
        do_layer_norm_before=True,
        dropout=0.0,
    ),
}


def learned(family: str, vocabulary: int, positions: int) -> Any:
    torch.manual_seed(0)
    config = LEARNED[family](vocabulary, positions)
    return tf.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()


@table("family", LEARNED)
def test_learned_positions_equal_the_oracle_in_tree(family: str) -> None:
    rng = np.random.default_rng(6)
    endings = random_endings(rng)
    cases = [random_case(rng, "tree", [random_ids(rng, 3, 6)], branches=4, k_max=5) for _ in range(4)]
    prompts = decode(learned(family, VOCABULARY, 256), cases, endings, EngineConfig())
    oracle = learned(family, VOCABULARY, 256)
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)


@table("family", LEARNED)
def test_learned_positions_bound_what_is_taken(family: str) -> None:
    """`stacked` needs positions for its gaps; `tree` takes longer documents with the same model."""
    tokenizer = answering_tokenizer()
    records = [Record("1", "Shoes", {"t": "Velor red 42"})]
    tree = PromptBuilder(tokenizer, EngineConfig(), None).build(records, SCHEMAS)[0][0]
    positions = tree.layout.num_positions
    codes = {}
    for layout in ("tree", "stacked"):
        with Engine(
            learned(family, len(tokenizer), positions), tokenizer, EngineConfig(**CPU, layout=layout)
        ) as engine:
            codes[layout] = engine.extract(records, SCHEMAS)[0].error_code
    assert codes == {"tree": None, "stacked": ErrorCode.TOO_LONG}


def test_end_of_text_ids_outside_the_vocabulary_are_no_raw_error() -> None:
    """Configs of cut vocabularies keep the old ids; transformers only warns."""
    model = answering_model(answering_tokenizer(), eos_token_id=[2, 50256])
    Engine(model, answering_tokenizer(), EngineConfig(**CPU)).close()


# Precision.


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this CPU does not multiply in bfloat16")
@table(
    ("cpu", "dtype"),
    [
        ({"cpu_name": "Intel Xeon", "amx_tile": True}, torch.bfloat16),
        ({"cpu_name": "Intel Xeon", "amx_tile": False, "avx512_bf16": True}, torch.float32),
        ({"cpu_name": "AMD EPYC 9R14", "amx_tile": False, "avx512_bf16": True}, torch.bfloat16),
        ({"architecture": "aarch64"}, torch.bfloat16),
    ],
)
def test_auto_is_the_faster_one(cpu: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: cpu)
    assert resolve_dtype(EngineConfig(), torch.device("cpu")) == dtype


@table("layout", ["tree", "stacked"])
@table("dtype", ["bfloat16", "float16", "auto"])
def test_half_precision_runs(dtype: Any, layout: Any, tiny_model_dir: Path) -> None:
    with Engine.from_pretrained(str(tiny_model_dir), EngineConfig(dtype=dtype, device="cpu", layout=layout)) as engine:
        results = engine.extract(products(10), SCHEMAS)
        assert dtype in ("auto", engine.describe()["dtype"])
    values = [value for result in results for value in result.values.values()]
    assert all(value.logprob_mean is not None and np.isfinite(value.logprob_mean) for value in values)
    assert len({value.raw for value in values}) > 5


@table("quantization", ["nf4", "int8"])
def test_quantized_weights_run_and_products_do_not_touch_each_other(quantization: Any, tiny_model_dir: Path) -> None:
    pytest.importorskip("bitsandbytes")
    config = EngineConfig(**CPU, quantization=quantization, max_value_tokens=8)
    model = load_model(str(tiny_model_dir), config)
    kinds = {type(module).__name__ for module in model.modules()}
    assert {"nf4": "Linear4bit", "int8": "Linear8bitLt"}[quantization] in kinds
    for module in model.modules():
        if type(module).__name__ == "Linear8bitLt":
            assert module.state.threshold == 0.0
    # An outlier in one row: with a threshold it would change how all rows are computed.
    records = products(8)
    loud = Record("loud", "Shoes", {"t": "red " * 200 + "!" * 50})
    with Engine(model, load_tokenizer(str(tiny_model_dir), config), config) as engine:
        assert engine.describe()["quantization"] == quantization
        among = engine.extract([loud, *records, loud], SCHEMAS)[1:-1]
        alone = [engine.extract([record], SCHEMAS)[0] for record in records]
    for one, other in zip(alone, among, strict=True):
        found = [(v.raw, v.status, v.num_tokens) for v in one.values.values()]
        assert found == [(v.raw, v.status, v.num_tokens) for v in other.values.values()]


def test_quantization_without_bitsandbytes_says_what_to_install(
    tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "bitsandbytes", None)
    with pytest.raises(ModelError, match=r"pip install bitsandbytes"):
        load_model(str(tiny_model_dir), EngineConfig(**CPU, quantization="nf4"))
