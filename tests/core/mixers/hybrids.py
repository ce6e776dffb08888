"""Tiny random models, in fp32, whose layers are not all attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as tf

from tests.core.families import VOCABULARY, random_model

_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
    "initializer_range": 0.3,
}
_CONVOLUTIONS = ["conv", "full_attention", "conv", "conv"]

_CONFIGS: dict[str, Any] = {
    "lfm2": lambda: tf.Lfm2Config(**_COMMON, norm_eps=1e-3, layer_types=_CONVOLUTIONS, conv_bias=True),
    "lfm2_moe": lambda: tf.Lfm2MoeConfig(
        **_COMMON,
        norm_eps=1e-3,
        layer_types=_CONVOLUTIONS,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        num_dense_layers=1,
    ),
    # A window beside convolutions, which look at seven tokens.
    "lfm3": lambda: tf.Lfm3Config(
        **_COMMON,
        norm_eps=1e-3,
        layer_types=["conv", "full_attention", "sliding_attention", "conv"],
        sliding_window=7,
    ),
}
_LINEAR = ["linear_attention", "full_attention", "linear_attention", "linear_attention"]
_DELTA_RULE: dict[str, Any] = {
    **_COMMON,
    "rms_norm_eps": 1e-3,
    "head_dim": 16,
    "layer_types": _LINEAR,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
}
_EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}
_CONFIGS |= {
    "qwen3_next": lambda: tf.Qwen3NextConfig(**_DELTA_RULE, **_EXPERTS),
    "qwen3_5": lambda: tf.Qwen3_5TextConfig(**_DELTA_RULE),
    "qwen3_5_moe": lambda: tf.Qwen3_5MoeTextConfig(**_DELTA_RULE, **_EXPERTS),
    # Corrections of up to twice what is wrong.
    "olmo_hybrid": lambda: tf.OlmoHybridConfig(**{k: v for k, v in _DELTA_RULE.items() if k != "head_dim"}),
}
_SCAN: dict[str, Any] = {
    **_COMMON,
    "rms_norm_eps": 1e-3,
    "mamba_n_heads": 8,
    "mamba_d_head": 12,
    "mamba_n_groups": 2,
    "mamba_d_state": 10,
    "mamba_chunk_size": 16,
}
_CONFIGS |= {
    # Latent attention beside a delta rule that fades each dimension of the keys by itself.
    "kimi_linear": lambda: tf.KimiLinearConfig(
        **{**_COMMON, "num_key_value_heads": 4},
        rms_norm_eps=1e-3,
        layer_types=_LINEAR,
        linear_num_heads=4,
        linear_head_dim=8,
        num_experts=4,
        num_experts_per_token=2,
        moe_intermediate_size=32,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=12,
    ),
    "granitemoehybrid": lambda: tf.GraniteMoeHybridConfig(
        **_SCAN, layer_types=_LINEAR, num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=32
    ),
    "granitemoehybrid_dense": lambda: tf.GraniteMoeHybridConfig(
        **_SCAN, layer_types=_LINEAR, num_local_experts=0, position_embedding_type="rope", shared_intermediate_size=32
    ),
    # No attention at all.
    "granitemoehybrid_bare": lambda: tf.GraniteMoeHybridConfig(
        **_SCAN, layer_types=["linear_attention"] * 4, num_local_experts=0, shared_intermediate_size=32
    ),
    # Attention and scan side by side in every layer.
    "falcon_h1": lambda: tf.FalconH1Config(**_SCAN, head_dim=12, mamba_d_ssm=96, mamba_rms_norm=True),
    "falcon_h1_gated": lambda: tf.FalconH1Config(**_SCAN, head_dim=12, mamba_d_ssm=96, ssm_out_multiplier=0.7),
}
_BARE: dict[str, Any] = {name: value for name, value in _COMMON.items() if "_heads" not in name}
"""Of models that have nothing but scans."""
_CONFIGS |= {
    "bailing_hybrid": lambda: tf.BailingHybridConfig(
        **{**_COMMON, "num_key_value_heads": 4},
        rms_norm_eps=1e-3,
        layer_types=_LINEAR,
        linear_num_heads=4,
        linear_head_dim=8,
        num_experts=4,
        num_experts_per_token=2,
        num_expert_group=2,
        topk_group=1,
        first_k_dense_replace=1,
        moe_intermediate_size=32,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=12,
    ),
    "mamba2": lambda: tf.Mamba2Config(**_BARE, num_heads=8, head_dim=12, n_groups=2, state_size=10, chunk_size=16),
    "bamba": lambda: tf.BambaConfig(**_SCAN, attn_layer_indices=[1]),
    # The least a step may be, so that padding is one, too, if it is not taken care of.
    "nemotron_h": lambda: tf.NemotronHConfig(
        **{name: value for name, value in _BARE.items() if name != "num_hidden_layers"},
        layers_block_type=["linear_attention", "moe", "full_attention", "linear_attention", "mlp"],
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=12,
        mamba_num_heads=8,
        mamba_head_dim=12,
        n_groups=2,
        ssm_state_size=10,
        chunk_size=16,
        time_step_min=0.05,
        n_routed_experts=4,
        moe_intermediate_size=32,
        moe_shared_expert_intermediate_size=32,
    ),
    # Attention layers share their weights, and stand in front of scans.
    "zamba2": lambda: tf.Zamba2Config(
        **{**_COMMON, "num_key_value_heads": 4},
        rms_norm_eps=1e-3,
        layers_block_type=["linear_attention", "hybrid", "linear_attention", "hybrid"],
        n_mamba_heads=8,
        mamba_ngroups=2,
        mamba_d_state=10,
        chunk_size=16,
        time_step_min=0.05,
        adapter_rank=8,
    ),
    # States of each channel by itself.
    "mamba": lambda: tf.MambaConfig(**_BARE, state_size=10, time_step_rank=4),
    "falcon_mamba": lambda: tf.FalconMambaConfig(**_BARE, state_size=10, time_step_rank=4),
    "jamba": lambda: tf.JambaConfig(
        **_COMMON,
        rms_norm_eps=1e-3,
        attn_layer_period=3,
        attn_layer_offset=1,
        expert_layer_period=2,
        num_experts=4,
        num_experts_per_tok=2,
        mamba_d_state=10,
        mamba_dt_rank=4,
    ),
    "zamba": lambda: tf.ZambaConfig(
        **{**_COMMON, "num_key_value_heads": 4},
        rms_norm_eps=1e-3,
        layers_block_type=["linear_attention", "hybrid", "linear_attention", "hybrid"],
        n_mamba_heads=2,
        mamba_d_state=10,
        mamba_dt_rank=4,
    ),
    # No convolution: a branch looks back at nothing but the state.
    "minimax": lambda: tf.MiniMaxConfig(
        **_COMMON,
        rms_norm_eps=1e-3,
        layer_types=_LINEAR,
        head_dim=12,
        block_size=16,
        num_local_experts=4,
        num_experts_per_tok=2,
    ),
    # Embeddings of several tokens, a convolution with gaps, and an indexer that picks all there is.
    "qwen4_exp": lambda: tf.Qwen4ExpTextConfig(
        **{name: value for name, value in _DELTA_RULE.items() if name not in ("layer_types", "intermediate_size")},
        **_EXPERTS,
        layer_types=["linear_attention", "indexed_attention", "linear_attention", "indexed_attention"],
        hc_count=2,
        hc_lowrank=8,
        ple_layer_ids=[1, 3],
        ple_embed_dim=32,
        ple_conv_kernel_size=3,
        heads_per_ngram=2,
        ngram_vocab_size_base=50,
        make_ngram_vocab_size_divisible_by=8,
        split_ngram_parts=1,
        indexer_n_heads=2,
        indexer_kv_heads=1,
        indexer_head_dim=16,
        indexer_budget=1024,
        indexer_compress_ratio=4,
    ),
}
_NEWER = {"lfm3": "Lfm3Config", "qwen4_exp": "Qwen4ExpTextConfig"}
"""Configurations that not all versions of transformers have that we take."""
HYBRIDS = tuple(name for name in _CONFIGS if hasattr(tf, _NEWER.get(name, "PretrainedConfig")))

MOST_USED = ("lfm2", "qwen3_5", "granitemoehybrid")
"""Those that `make test` proves; the others are proved by `make test-all`."""

HYBRID_PARAMETERS = [pytest.param(family, marks=() if family in MOST_USED else pytest.mark.full) for family in HYBRIDS]
"""For `pytest.mark.parametrize`."""


def build_hybrid(family: str, seed: int = 0, **sizes: int) -> Any:
    """A fresh model; equal seeds give equal weights. `sizes`: of its configuration, other than usual."""
    config = _CONFIGS[family]()
    config.update(sizes)
    model = random_model(config, seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("A_log"):  # at first a state fades within a token, and whoever loses it is not found out
                parameter.uniform_(-5, -2)
            elif parameter.dim() > 1 and not parameter.any():  # of zeros at first
                parameter.normal_(0, 0.3)
            elif name.endswith(("dt_bias", ".D")):
                parameter.normal_()
    return model
