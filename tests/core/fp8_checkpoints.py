"""Tiny checkpoints in FP8, as llm-compressor writes them: compressed-tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from hpd_core.layers.fp8 import quantize_rows
from tests.tiny_model import answering_model, answering_tokenizer

_BY_TOKEN = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": True, "strategy": "token"}
_BY_CHANNEL = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False, "strategy": "channel"}


def scheme(weights: dict[str, Any] | None = None, inputs: dict[str, Any] | None = None) -> dict[str, Any]:
    """As llm-compressor writes it into `config.json`, with these settings other than usual."""
    group = {
        "targets": ["Linear"],
        "weights": _BY_CHANNEL | (weights or {}),
        "input_activations": _BY_TOKEN | (inputs or {}),
        "output_activations": None,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "config_groups": {"group_0": group},
    }


def write(folder: Path, quantization: dict[str, Any], *, shards: int = 1, **changes: Any) -> dict[str, Tensor]:
    """A tiny checkpoint in FP8, and what is in it: weights by channel or, as the scheme says, by tensor.

    `changes`: of tensors, by their names with "__" for "."; None leaves one out.
    """
    tokenizer = answering_tokenizer()
    answering_model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    by_tensor = "tensor" in json.dumps(quantization.get("config_groups"))
    stored: dict[str, Tensor] = {}
    for key, weight in load_file(folder / "model.safetensors").items():
        if ".layers." not in key or weight.dim() < 2:
            stored[key] = weight
            continue
        whole = weight.reshape(1, -1) if by_tensor else weight
        weight8, scales = quantize_rows(whole)
        stored[key] = weight8.view(weight.shape)
        stored[f"{key}_scale"] = scales if by_tensor else scales[:, None].bfloat16()
    for name, tensor in changes.items():
        stored.pop(name.replace("__", "."))
        stored |= {} if tensor is None else {name.replace("__", "."): tensor}
    keys = sorted(stored)
    if shards == 1:
        save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    else:
        (folder / "model.safetensors").unlink()
        index: dict[str, Any] = {"metadata": {}, "weight_map": {}}
        for number in range(shards):  # so that a weight's scale may be in another file
            name = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
            save_file({key: stored[key] for key in keys[number::shards]}, folder / name, metadata={"format": "pt"})
            index["weight_map"] |= dict.fromkeys(keys[number::shards], name)
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": quantization}))
    return stored
