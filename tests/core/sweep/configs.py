"""A tiny configuration of any model type: what configurations have in common, and exceptions by name."""

from __future__ import annotations

from typing import Any

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tests.core.families import VOCABULARY

NUM_LAYERS = 4

_SIZES: dict[str, Any] = {
    **dict.fromkeys(("vocab_size", "n_vocab", "text_vocab_size"), VOCABULARY),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "dim", "embed_dim"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers"), NUM_LAYERS),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "kv_n_heads", "num_kv_heads"), 2),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "dff"), 96),
    **dict.fromkeys(("moe_intermediate_size", "expert_ffn_hidden_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts", "num_experts_per_token"), 2),
    **dict.fromkeys(("n_group", "topk_group", "num_expert_group", "n_shared_experts", "first_k_dense_replace"), 1),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"), 4096),
    "vocab_size_per_layer_input": VOCABULARY,
    "hidden_size_per_layer_input": 16,
    "head_dim": 16,
    "rotary_dim": 8,
    "embedding_size": 64,
    "word_embed_proj_dim": 64,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "query_pre_attn_scalar": 7,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    # Wide initial weights: with the usual 0.02 a tiny model predicts nearly the same everywhere.
    "initializer_range": 0.3,
    "init_std": 0.3,
    **dict.fromkeys(("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps"), 1e-3),
    # Of linear attention and convolutions.
    **dict.fromkeys(("linear_num_key_heads", "mamba_n_groups", "n_groups", "mamba_ngroups"), 2),
    **dict.fromkeys(("linear_num_value_heads", "mamba_n_heads", "mamba_num_heads", "n_mamba_heads"), 4),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "linear_head_dim"), 16),
    "linear_num_heads": 4,
    **dict.fromkeys(("mamba_d_state", "state_size", "ssm_state_size"), 8),
    **dict.fromkeys(("time_step_rank", "mamba_dt_rank"), 4),
    # Of vision and audio towers.
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 1),
    **dict.fromkeys(("out_hidden_size", "text_hidden_size", "output_dim"), 64),
    **dict.fromkeys(("depth", "vision_layers"), 1),
    "image_size": 32,
    "patch_size": 8,
}

_REACH = (
    *("sliding_window", "attention_chunk_size", "window_size", "attention_window_size", "local_attention"),
    *("index_topk", "index_topk_blocks", "keep_window_size", "floor_scale"),
)
"""How far a token sees, or how much of it."""

REACHES = {"tight": 7, "loose": 4096}
"""Shorter than the sweep's texts, and longer."""

_SECTIONS = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 3, 3]}
_IN_SECTIONS = (
    "qwen2_vl_text",
    "qwen2_5_vl_text",
    "paddleocr_vl_text",
    "glm4v_text",
    "glm_ocr_text",
    "hunyuan_vl_text",
)
_PARTIAL = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [1, 1, 2], "partial_rotary_factor": 0.5}
_PLAIN = {"rope_type": "default", "rope_theta": 10_000.0}

_EXCEPTIONS: dict[str, dict[str, Any]] = {
    **{name: {"rope_parameters": _SECTIONS} for name in _IN_SECTIONS},
    "chameleon": {"vocabulary_map": {"<image>": 4}},
    "cohere_compass_text": {"rope_parameters": {"full_attention": _PLAIN, "sliding_attention": _PLAIN}},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10_000.0, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 96, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense", "sparse"] * (NUM_LAYERS // 2)},
    "dots3_note_vision_encoder": {
        **{"mlp_layer_types": ["dense"] * NUM_LAYERS, "adapter_in_dim": 64, "adapter_out_dim": 64}
    },
    "dots3_note_audio_encoder": {"adapter_input_size": 64, "adapter_out_dim": 64},
    "dots3_note_text": {"num_key_value_heads": 4},
    "ernie4_5_vl_moe_text": {
        "moe_intermediate_size": [32, 32],
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [3, 3, 2]},
    },
    "gemma3n_text": {"num_kv_shared_layers": 2},
    "gemma4_text": {"num_kv_shared_layers": 2},
    "glm4v_moe_text": {"rope_parameters": _PARTIAL},
    "glm5_next_text": {"num_key_value_heads": 4, "index_kpool": 1, "qk_rope_head_dim": 0},
    "gpt_neo": {"attention_types": [[["global", "local"], NUM_LAYERS // 2]]},
    "granite4_vision": {"deepstack_layer_map": [[0, 1]], "spatial_target_layers": [2], "downsample_rate": "1/2"},
    # The same layers run again and again, and rounding grows each time.
    "hrm_text": {"L_cycles": 1, "num_hidden_layers": 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * (NUM_LAYERS // 2)},
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 2},
    # Blocks of one token: so many are picked as there are tokens.
    "minimax_m3_vl_text": {
        "index_block_size": 1,
        "layer_types": ["full_attention", "minimax_m3_sparse"] * (NUM_LAYERS // 2),
    },
    "molmo2_adapter": {"vision_feature_layer": [1, 0]},
    "molmo2_vision": {"image_size": [32, 32]},
    "perception_lm": {"vision_config": {"model_type": "timm_wrapper", "model_args": {"embed_dim": 64}}},
    "qwen2_5_omni_text": {"rope_parameters": _SECTIONS},
    "qwen4_exp_text": {
        **{"ple_layer_ids": [1], "ngram_vocab_size_base": 50, "split_ngram_parts": 1, "indexer_compress_ratio": 1},
        **{"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16},
    },
    "radio": {"video_temporal_patch_size": 2},
    "step3p5": {"sliding_window": 7, "layer_types": ["full_attention", "sliding_attention"] * (NUM_LAYERS // 2)},
    "unlimited_ocr_text": {"num_key_value_heads": 4},
    "zamba": {"layers_block_type": ["linear_attention", "hybrid"] * (NUM_LAYERS // 2)},
    "zamba2": {"layers_block_type": ["linear_attention", "hybrid"] * (NUM_LAYERS // 2)},
    "zaya": {"num_experts_per_tok": 1},
}
"""By model type, what it wants otherwise."""

_AS_IT_IS = ("timm_wrapper",)
"""Parts that are never made."""


def _scaled(sections: list[int], settings: dict[str, Any], known: dict[str, Any]) -> list[int]:
    """Sections of a rotary embedding in several dimensions, for a tiny head."""
    share = known["rope_parameters"].get("partial_rotary_factor", known.get("partial_rotary_factor") or 1.0)
    half = int(settings.get("head_dim", 16) * share) // 2
    rest = [half // len(sections)] * (len(sections) - 1)
    return [half - sum(rest), *rest]


def tiny_config(name: str, reach: int, **more: Any) -> Any:
    """The configuration of a model type, of some 64 dimensions and 4 layers of each of its kinds in turn.

    Args:
        reach: of windows, chunks and top-k.
        more: which win over all else.
    """
    made = CONFIG_MAPPING[name]
    default = made()
    known = default.to_dict()
    settings = {key: value for key, value in _SIZES.items() if key in known}
    settings |= {key: reach for key in _REACH if known.get(key) is not None}
    if "indexer_budget" in known:  # which has no default
        settings["indexer_budget"] = reach
    if "qk_rope_head_dim" in known:  # latent attention: a KV head for each head, and the rotated part is the head size
        settings |= {key: value for key, value in (("num_key_value_heads", 4), ("head_dim", 8)) if key in known}
    if sections := (known.get("rope_parameters") or {}).get("mrope_section"):
        settings["rope_parameters"] = known["rope_parameters"] | {"mrope_section": _scaled(sections, settings, known)}
    kinds = list(dict.fromkeys(known.get("layer_types") or ()))
    if kinds:
        settings["layer_types"] = [kinds[layer % len(kinds)] for layer in range(NUM_LAYERS)]
    settings |= _EXCEPTIONS.get(name, {}) | more
    for part in made.sub_configs:
        sub = getattr(default, part, None)
        if sub is not None:
            is_known = sub.model_type in CONFIG_MAPPING and sub.model_type not in _AS_IT_IS
            settings.setdefault(part, tiny_config(sub.model_type, reach) if is_known else sub)
    return made(**settings)
