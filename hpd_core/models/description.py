"""Description of a loaded model: its size, context, KV cache, ends of text, and its revision.

Of rotary embeddings that change with the length of a text (`longrope` of Phi 3, `dynamic`), a plain forward beyond some
length rotates every earlier token anew. Keys and values kept of a document would then be
wrong. One long record would also change the answers of all that share a row with it. So texts are limited to the length
up to which nothing changes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hpd_core.attention.dispatch import PackedBatch, attending_to
from hpd_core.attention.kv_cache import CacheShape
from hpd_core.errors import ModelError
from hpd_core.families.table import mixers_of, most_seen, moving_ropes
from hpd_core.mixers.states import MixerShape
from hpd_core.models import quantized_checkpoints
from hpd_core.models.embedded import embedded_revision
from hpd_core.models.model_files import files_digest
from hpd_core.models.steering import our_attention
from hpd_core.system.device import is_out_of_memory
from hpd_core.text.endings import Endings
from hpd_core.text.tokenization import SegmentTokenizer

_DECISIVE_FILES = (
    *("*.safetensors", "config.json", "generation_config.json", "*.py"),
    *("tokenizer*", "*tokens*.json", "*.jinja", "*.model", "vocab*", "merges.txt"),
)

_EXPERTS_PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts", "moe_k", "moe_top_k")
"""Names of the number of experts per token in configurations."""

_CHUNK = 64
"""Tokens per chunk, in transformers' functions as a rule."""


def size(model: Any) -> dict[str, int]:
    """Return the model's size: parameters that a token goes through, those of the head, and bytes of all weights. For
    its layers beside attention (0 if there are none): operations per token, bytes of a prompt's states, and of a
    value's token.
    """
    head = model.get_output_embeddings().weight
    is_tied = head is model.get_input_embeddings().weight
    # In transformers' count, a tied head is an embedding. It knows the packed weights of NF4, too.
    layers = model.num_parameters(exclude_embeddings=True) - (0 if is_tied else head.shape[0] * head.shape[1])
    packed = quantized_checkpoints.packed_layers(model)
    layers += sum(layer.in_features * layer.out_features for layer in packed)
    weights = [*model.parameters(), *(weight for layer in packed for weight in layer.buffers())]
    weight_bytes = sum(weight.numel() * weight.element_size() for weight in weights)
    mixers = mixers_of(model)
    shapes = mixers.shapes if mixers is not None else ()
    return {
        "layer_parameters": layers - _idle_parameters(model),
        "head_parameters": head.shape[0] * head.shape[1],
        "weight_bytes": weight_bytes,
        "state_operations": sum(_state_operations(shape) for shape in shapes),
        "state_bytes": sum(shape.bytes_per_trunk for shape in shapes),
        "column_bytes": sum(shape.bytes_per_column for shape in shapes),
    }


def _idle_parameters(model: Any) -> int:
    """Return the number of parameters of experts that a token does not go through. Experts are stacked in one tensor,
    along its first dimension.
    """
    settings = model.config.get_text_config().to_dict()
    chosen = next((settings[name] for name in _EXPERTS_PER_TOKEN if settings.get(name)), None)
    if chosen is None:
        return 0
    parts = (part for part in model.modules() if not isinstance(part, nn.Conv1d))
    stacked = [weight for part in parts for weight in part.parameters(recurse=False) if weight.dim() == 3]
    return sum(round(weight.numel() * max(0.0, 1 - chosen / len(weight))) for weight in stacked)


def _state_operations(shape: MixerShape) -> int:
    """Return the operations per token: its state is read, corrected and written, and it is compared with those of its
    chunk. States of one number per channel are computed token by token.
    """
    with_chunk = _CHUNK * (2 * shape.key_size + shape.value_size) if shape.value_size > 1 else 0
    return 2 * shape.heads * (3 * shape.key_size * shape.value_size + with_chunk)


def device_name(device: torch.device) -> str:
    """Return the GPU's name, or the number of CPU cores."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu, {os.cpu_count()} cores"


def end_of_text_ids(model: Any) -> list[int]:
    """Return the ids by which the model ends its answer. Raise `ModelError` if its settings are not ids."""
    ids: set[int] = set()
    for config in (model.generation_config, model.config.get_text_config()):
        found = getattr(config, "eos_token_id", None)
        listed = found if isinstance(found, list) else [] if found is None else [found]
        if not all(isinstance(index, int) for index in listed):
            raise ModelError(f"eos_token_id is {found!r}, no number and no list of any: mend generation_config.json")
        ids.update(listed)
    return sorted(ids)


def max_positions(model_config: Any) -> int | None:
    """Return the number of positions that the model can use, or None if it does not say.

    Models whose rotary embedding changes with the length are limited to the length up to which it does not
    (`unchanged_up_to`). Those that pick what a token attends to are limited to the length up to which all is
    picked.
    """
    config = model_config.get_text_config()
    claimed: int | None = getattr(config, "max_position_embeddings", None) or getattr(config, "max_seq_len", None)
    limits = (claimed, unchanged_up_to(model_config), most_seen(model_config))
    return min((limit for limit in limits if limit), default=None)


def endings(model: Any, segments: SegmentTokenizer) -> Endings:
    """Return the effect of each id of the model's output on a value; output after the end of a text is undefined, so it
    ends.
    """
    found = segments.endings(model.get_output_embeddings().weight.shape[0])
    return found.also([index for index in end_of_text_ids(model) if index < len(found)])


def num_embedded(model: Any) -> int:
    """Return the number of tokens that have an embedding: ids from 0 to one less can be fed."""
    rows: int = model.get_input_embeddings().weight.shape[0]
    return rows


def refuse_unknown_tokens(model: Any, segments: SegmentTokenizer) -> None:
    """Raise `ModelError` if prompts would have tokens that the model has no row for: they cannot be fed."""
    rows = num_embedded(model)
    template = str(getattr(segments.tokenizer, "chat_template", None) or "")
    written = {text: index for text, index in segments.control_tokens.items() if text in template and index >= rows}
    if written:
        text, index = min(written.items())
        raise ModelError(
            f"the chat template writes {text!r}, which is token {index} of the tokenizer, and the model has {rows}: "
            f"the tokenizer is another model's; put the files back that came with the checkpoint"
        )


def cache_shape(model: Any) -> CacheShape:
    """Return the shape of one token in the model's KV cache. It is found by a forward of two tokens, because
    configurations have no common name for it, and for some layers none at all.

    Raises:
        ModelError: it does not run, or not with our attention.
    """
    ids = torch.arange(2, device=model.device)
    batch = PackedBatch([], seen=[])
    try:
        with torch.inference_mode(), our_attention(model), attending_to(batch, ids):
            model(input_ids=ids[None], position_ids=ids[None], use_cache=False)
    except (TypeError, ValueError, RuntimeError, KeyError) as error:
        if is_out_of_memory(error):
            raise ModelError(f"the model leaves no memory for a forward of two tokens: {error}") from error
        raise ModelError(f"{model.config.model_type} models do not work with steered attention: {error}") from error
    assert batch.seen is not None
    # Later layers that attend to what an earlier one has made are given the very same tensors.
    addresses = [(key.data_ptr(), value.data_ptr()) for _, key, value in batch.seen]
    own = list(dict.fromkeys(addresses))
    shapes = dict(zip(addresses, (shape for shape, _, _ in batch.seen), strict=True))
    embeddings = model.get_input_embeddings().weight
    return CacheShape(
        layers=tuple(shapes[each] for each in own),
        dtype=batch.seen[0][1].dtype if batch.seen else embeddings.dtype,
        device=model.device,
        calls=tuple(own.index(each) for each in addresses),
    )


def model_revision(model: Any, source: str) -> str | None:
    """Return the exact revision of this model: the hub's commit, the digest of an embedded model, or of a folder's
    files.
    """
    commit: str | None = getattr(model.config, "_commit_hash", None)
    folder = Path(source)
    if commit or not folder.is_dir():
        return commit
    embedded = embedded_revision(folder)
    if embedded is not None:
        return embedded
    return files_digest(sorted({path for pattern in _DECISIVE_FILES for path in folder.glob(pattern)}))


def unchanged_up_to(model_config: Any) -> int | None:
    """Return the number of positions up to which the rotary embedding is the same for any text; None if it never
    changes.
    """
    own = getattr(model_config.get_text_config(), "original_max_position_embeddings", None)
    limits = [each.get("original_max_position_embeddings") or own for each in moving_ropes(model_config)]
    return min((limit for limit in limits if limit), default=None)


def warning(model_config: Any) -> str | None:
    """Return a warning for models that could read longer texts by themselves, or None."""
    limit = unchanged_up_to(model_config)
    claimed = getattr(model_config.get_text_config(), "max_position_embeddings", None)
    if limit is None or claimed is None or claimed <= limit:
        return None
    return (
        f"{model_config.model_type}'s rotary embedding changes for texts of more than {limit:,} positions: records "
        f"that need more are refused, though the model takes {claimed:,}; for those take a model of another family"
    )
