"""Tiny random models of every family that the engine claims, in fp32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as tf

VOCABULARY = 160
_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
    # Wide initial weights: with the usual 0.02 a tiny model predicts nearly the same everywhere.
    "initializer_range": 0.3,
    "rms_norm_eps": 1e-3,
}
_WINDOW = 7


def _gemma_types(count: int) -> list[str]:
    return ["full_attention" if layer % 2 else "sliding_attention" for layer in range(count)]


_CONFIGS: dict[str, Any] = {
    "llama": lambda: tf.LlamaConfig(**_COMMON),
    # A window in some of the layers.
    "qwen2": lambda: tf.Qwen2Config(**_COMMON, use_sliding_window=True, sliding_window=_WINDOW, max_window_layers=1),
    "qwen3": lambda: tf.Qwen3Config(**_COMMON, head_dim=16),
    "mistral": lambda: tf.MistralConfig(**_COMMON, sliding_window=_WINDOW),
    # A part of each head is turned.
    "phi3": lambda: tf.Phi3Config(
        **_COMMON,
        sliding_window=None,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    ),
    "glm4": lambda: tf.Glm4Config(**_COMMON, head_dim=16),
    "gemma": lambda: tf.GemmaConfig(**_COMMON, head_dim=12),
    "gemma2": lambda: tf.Gemma2Config(
        **_COMMON, head_dim=12, sliding_window=_WINDOW, query_pre_attn_scalar=7, layer_types=_gemma_types(3)
    ),
    "gemma3": lambda: tf.Gemma3TextConfig(
        **_COMMON, head_dim=12, sliding_window=_WINDOW, query_pre_attn_scalar=7, layer_types=_gemma_types(3)
    ),
    "olmo2": lambda: tf.Olmo2Config(**_COMMON),
    "granite": lambda: tf.GraniteConfig(
        **_COMMON, attention_multiplier=0.2, logits_scaling=2.0, embedding_multiplier=3.0, residual_multiplier=0.4
    ),
    "smollm3": lambda: tf.SmolLM3Config(**_COMMON, no_rope_layer_interval=2),
    "qwen3_moe": lambda: tf.Qwen3MoeConfig(
        **_COMMON, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, decoder_sparse_step=1
    ),
    "gpt_neox": lambda: tf.GPTNeoXConfig(**{k: v for k, v in _COMMON.items() if k != "num_key_value_heads"}),
    "gpt_oss": lambda: tf.GptOssConfig(
        **_COMMON, head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=_WINDOW
    ),
}
FAMILIES = tuple(_CONFIGS)

MOST_USED = ("llama", "qwen3", "mistral", "gemma3")
"""Those that `make test` proves; the others are proved by `make test-all`."""

FAMILY_PARAMETERS = [pytest.param(family, marks=() if family in MOST_USED else pytest.mark.full) for family in FAMILIES]
"""For `pytest.mark.parametrize`."""

READING_ALL = ("llama", "qwen3", "gemma", "phi3", "glm4", "olmo2", "granite", "qwen3_moe", "gpt_neox")
"""Those whose layers all see all tokens, so that they read documents both ways."""

BOTH_WAYS = "tree, both ways"
"""The layout 'tree' with documents that are read so."""

FAMILIES_AND_LAYOUTS = [
    pytest.param(*of.values, layout, marks=of.marks)
    for layout in ("tree", "stacked", BOTH_WAYS)
    for of in FAMILY_PARAMETERS
    if layout != BOTH_WAYS or of.values[0] in READING_ALL
]
"""For `pytest.mark.parametrize`."""

ALIKE = ("llama", "mistral", "qwen2", "qwen3")
"""Whose layers are all of one kind, without factors: on a CPU with AMX they run as one function."""

FUSED = (*ALIKE, "gemma", "gemma2", "gemma3", "glm4", "granite", "olmo2", "phi3", "smollm3")
"""Whose layers run by our own code."""


def build_tiled_model(family: str, **sizes: int) -> Any:
    """One in bfloat16 whose products are whole tiles."""
    return build_model(family, **{"hidden_size": 64, "head_dim": 32, **sizes}).to(torch.bfloat16)


def build_model(family: str, seed: int = 0, **sizes: int) -> Any:
    """A fresh model; equal seeds give equal weights. `sizes`: of its configuration, other than usual."""
    config = _CONFIGS[family]()
    config.update(sizes)
    return random_model(config, seed)


def random_model(config: Any, seed: int = 0) -> Any:
    """One of this configuration, whose norms and biases differ."""
    torch.manual_seed(seed)
    config._experts_implementation = "eager"
    model = tf.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("sinks"):
                parameter.normal_()
            elif "norm" in name or name.endswith("bias"):  # all alike at first: who takes the wrong one is to be found
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()
