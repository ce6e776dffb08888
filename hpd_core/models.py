"""Loading a model, and refusing at once what cannot work."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from hpd_core.attention import ATTENTION_NAME, packed_attention
from hpd_core.cache import CacheShape
from hpd_core.cohort import Prompt
from hpd_core.config import EngineConfig
from hpd_core.decoder import Decoder
from hpd_core.embedded import EMBEDDED_MODELS, cache_folder, embedded_model_folder, embedded_revision
from hpd_core.ending import Endings
from hpd_core.errors import ModelError
from hpd_core.layout import Branch, tree_layout
from hpd_core.memory import is_out_of_memory
from hpd_core.storage import local_copy
from hpd_core.tokenization import SegmentTokenizer

_KNOWN_LAYER_TYPES = frozenset({"full_attention", "sliding_attention"})
_DECISIVE_FILES = (
    *("*.safetensors", "config.json", "generation_config.json", "*.py"),
    *("tokenizer*", "*tokens*.json", "*.jinja", "*.model", "vocab*", "merges.txt"),
)
_CONTEXT_DEPENDENT_ROPE = frozenset({"longrope", "dynamic"})


def resolve_source(model: str, *, weights: bool = True) -> str:
    """A folder or hub id for transformers: embedded names become the folder of their weights, URIs a local copy.

    Args:
        weights: False where only configuration and tokenizer are wanted: weights behind a URI stay there.
    """
    if model in EMBEDDED_MODELS:
        return str(embedded_model_folder(model))
    if "://" in model:
        return str(local_copy(model, cache_folder() / "copies", weights=weights))
    looks_like_path = model.startswith((".", "/", "~")) or os.sep * 2 in model
    folder = Path(model).expanduser()
    if looks_like_path and not folder.is_dir():
        raise ModelError(_not_found(model, FileNotFoundError("there is no such folder")))
    return str(folder) if folder.is_dir() else model


def load_tokenizer(model: str, config: EngineConfig) -> Any:
    """Loads the tokenizer of `model`.

    Raises:
        ModelError: not found, or without a vocabulary we can use.
    """
    source = resolve_source(model, weights=False)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=config.trust_remote_code)
    except (OSError, ValueError) as error:
        raise ModelError(_not_found(model, error)) from error
    return tokenizer


def load_model(model: str, config: EngineConfig) -> Any:
    """Loads the weights of `model`, ready for `attach`: safetensors only, quantized if asked.

    Raises:
        ModelError: not found, not in safetensors, or quantization is not possible.
    """
    source = resolve_source(model)
    device = resolve_device(config)
    options: dict[str, Any] = {
        "dtype": resolve_dtype(config, device),
        "trust_remote_code": config.trust_remote_code,
        "use_safetensors": True,
    }
    try:
        model_config = AutoConfig.from_pretrained(source, trust_remote_code=config.trust_remote_code)
        _refuse_unsupported(model_config)
        if config.quantization:
            options["quantization_config"] = _quantization(config.quantization, options["dtype"])
            options["device_map"] = {"": device}
        loaded = AutoModelForCausalLM.from_pretrained(source, config=model_config, **options)
    except ModelError:
        raise
    except (OSError, ValueError, ImportError) as error:
        raise ModelError(_not_found(model, error)) from error
    return loaded.eval() if config.quantization else loaded.to(device).eval()


def load_empty(model: str, config: EngineConfig) -> Any:
    """The model without its weights, on the device meta. Raises `ModelError` if it is not found."""
    source = resolve_source(model, weights=False)
    trust = config.trust_remote_code
    try:
        model_config = AutoConfig.from_pretrained(source, trust_remote_code=trust)
        _refuse_unsupported(model_config)
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(model_config, trust_remote_code=trust)
    except (OSError, ValueError) as error:
        raise ModelError(_not_found(model, error)) from error


def _not_found(model: str, error: Exception) -> str:
    names = ", ".join(sorted(EMBEDDED_MODELS))
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return (
        f"cannot load the model {model!r}: {reason} "
        f"(a model is a folder with safetensors weights, local or at any fsspec URI, a hub id, or one of: {names})"
    )


def resolve_device(config: EngineConfig) -> torch.device:
    """The device to run on; 'auto' is the GPU if there is one.

    Raises:
        ModelError: a CUDA device is asked for and there is none.
    """
    if config.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(config.device)
    except RuntimeError as error:
        raise ModelError(f"no such device: {config.device!r}; use 'auto', 'cpu', 'cuda' or 'cuda:1'") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"device {config.device!r} is not there: torch sees no CUDA device; use 'cpu' or 'auto'")
    return device


def resolve_dtype(config: EngineConfig, device: torch.device) -> torch.dtype:
    """The dtype to compute in; 'auto' is bfloat16 where the hardware multiplies faster in it, else float32."""
    if config.dtype != "auto":
        dtype: torch.dtype = getattr(torch, config.dtype)
        return dtype
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    mkldnn: Any = torch.backends.mkldnn
    has_bf16 = mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return torch.bfloat16 if has_bf16 and not _is_bf16_slow(torch.cpu.get_capabilities()) else torch.float32


def _is_bf16_slow(cpu: Mapping[str, Any]) -> bool:
    """Whether the processor has bfloat16 and is slower in it: Intel's by vectors, without AMX or with AMX hidden from a
    virtual machine (docs/performance.md). AMD's are faster in it by vectors, too.
    """
    return str(cpu.get("cpu_name", "")).startswith("Intel") and not cpu.get("amx_tile", False)


def size(model: Any) -> dict[str, int]:
    """How large a model is: parameters that every token goes through, those that make logits, bytes of all weights."""
    head = model.get_output_embeddings().weight
    is_tied = head is model.get_input_embeddings().weight
    # In transformers' count, a tied head is an embedding. It knows the packed weights of NF4, too.
    layers = model.num_parameters(exclude_embeddings=True) - (0 if is_tied else head.shape[0] * head.shape[1])
    weight_bytes = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    return {
        "layer_parameters": layers,
        "head_parameters": head.shape[0] * head.shape[1],
        "weight_bytes": weight_bytes,
    }


def device_name(device: torch.device) -> str:
    """The GPU's name, or the number of CPU cores."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu, {os.cpu_count()} cores"


def _quantization(name: str, dtype: torch.dtype) -> Any:
    try:
        import bitsandbytes  # noqa: F401
    except ImportError as error:
        raise ModelError(f"quantization {name!r} needs bitsandbytes: pip install 'hpd[quantization]'") from error
    if name == "nf4":
        return transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype
        )
    # With outlier columns picked per batch (threshold > 0), other products in the batch change an answer.
    return transformers.BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0)


def _refuse_unsupported(model_config: Any) -> None:
    text_config = model_config.get_text_config()
    kinds = set(getattr(text_config, "layer_types", None) or ()) - _KNOWN_LAYER_TYPES
    if kinds:
        raise ModelError(
            f"{model_config.model_type} has layers of type {', '.join(sorted(kinds))}. HPD steers what each token sees "
            f"through the attention mask; recurrent and chunked layers do not obey it. Use a model with plain "
            f"(or sliding-window) attention in every layer"
        )
    if getattr(text_config, "is_encoder_decoder", False):
        raise ModelError(f"{model_config.model_type} is an encoder-decoder model; HPD needs a decoder-only one")


def attach(model: Any) -> None:
    """Makes the model call our attention (`verify` proves that it obeys).

    Raises:
        ModelError: the model does not go through transformers' attention interface.
    """
    _refuse_unsupported(model.config)
    transformers.AttentionInterface.register(ATTENTION_NAME, packed_attention)
    name = model.config.model_type
    if not getattr(model, "_supports_attention_backend", False):
        raise ModelError(
            f"{name} models bypass transformers' attention interface, so their attention cannot be steered"
        )
    try:
        model.set_attn_implementation(ATTENTION_NAME)
    except ValueError as error:
        raise ModelError(f"{name} models take no custom attention: {error}") from error


def end_of_text_ids(model: Any) -> list[int]:
    """The ids by which the model ends its answer."""
    ids: set[int] = set()
    for config in (model.generation_config, model.config.get_text_config()):
        found = getattr(config, "eos_token_id", None)
        ids.update(found if isinstance(found, list) else [] if found is None else [found])
    return sorted(ids)


def verify(model: Any, tokenizer: Any, decoder: Decoder, expected: Sequence[Tensor] | None = None) -> None:
    """Proves on one line of text that the model obeys our masks and positions.

    Two branches behind a shared trunk must be predicted as two ordinary causal forwards predict them, by the
    model's own attention.

    Args:
        expected: `probe` of the model as it was before it was cut into parts.

    Raises:
        ModelError: it does not obey.
    """
    prompt = run_probe(model, tokenizer, decoder)
    # Half precision moves log-probabilities by tenths, and so may int8, which rounds activations: the last bit of a sum
    # decides to which side. Seeing a wrong token moves them by more.
    is_exact = model.dtype == torch.float32 and not getattr(model, "is_loaded_in_8bit", False)
    tolerance = 1e-3 if is_exact else 0.5
    if expected is None:
        with own_attention(model):
            expected = probe(model, tokenizer)
    for logprobs, found, decoded in zip(expected, prompt.tokens, prompt.logprobs, strict=True):
        wanted = logprobs[found[0]].item()
        if not abs(wanted - decoded[0]) < tolerance:
            raise ModelError(
                f"{model.config.model_type} models do not obey attention masks: a token has log-probability "
                f"{decoded[0]:.4f} where an ordinary forward gives {wanted:.4f}"
            )


def run_probe(model: Any, tokenizer: Any, decoder: Decoder) -> Prompt:
    """The line of text through our decoder. Raises `ModelError` if the model takes no steered attention."""
    trunk, *branches = tokenizer(list(_PROBE), add_special_tokens=False)["input_ids"]
    prompt = Prompt(tree_layout([], trunk, [Branch(tokens, 1) for tokens in branches]), None)
    decoder.add([prompt])
    name = model.config.model_type
    try:
        while decoder.has_work:
            decoder.step()
    except (TypeError, RuntimeError, KeyError, MemoryError) as error:
        if is_out_of_memory(error):
            raise ModelError(f"the model leaves no memory for a first step on {model.device}: {error}") from error
        raise ModelError(f"{name} models do not work with steered attention: {error}") from error
    return prompt


@torch.inference_mode()
def probe(model: Any, tokenizer: Any) -> list[Tensor]:
    """The same by an attention of the model's own, which it must have now: of each branch the log-probabilities of its
    next token, [vocabulary]."""
    trunk, *branches = tokenizer(list(_PROBE), add_special_tokens=False)["input_ids"]
    found = []
    for tokens in branches:
        ids = torch.tensor([[*trunk, *tokens]], device=model.device)
        found.append(model(input_ids=ids, use_cache=False).logits[0, -1].float().log_softmax(-1).cpu())
    return found


_PROBE = ("The red bicycle has two wheels and", " a comfortable saddle made of brown", " one bright lamp that")


def own_attentions(model: Any) -> Sequence[str]:
    """Names of transformers' own ways to attend that the model takes; the first is the fastest as a rule."""
    softcap = getattr(model.config.get_text_config(), "attn_logit_softcapping", None)
    takes_sdpa = getattr(model, "_supports_sdpa", False) and softcap is None
    return ("sdpa", "eager") if takes_sdpa else ("eager",)


def use_own_attention(model: Any, name: str | None = None) -> None:
    """Sets an attention of transformers' own: that of `own_attentions` with this name, or the first."""
    model.set_attn_implementation(name or own_attentions(model)[0])


@contextmanager
def own_attention(model: Any, name: str | None = None) -> Iterator[None]:
    """Gives the model back an attention of transformers' own (see above), for as long as the block runs."""
    use_own_attention(model, name)
    try:
        yield
    finally:
        model.set_attn_implementation(ATTENTION_NAME)


def max_positions(model_config: Any) -> int | None:
    """How many positions the model can use, or None if it does not say.

    Rotary scalings that look at the longest row of the whole batch would let one long record change every other
    record's answer; such models are held to the length up to which nothing is scaled.
    """
    config = model_config.get_text_config()
    limit: int | None = getattr(config, "max_position_embeddings", None)
    rope = getattr(config, "rope_parameters", None) or {}
    variants = [rope] if "rope_type" in rope else [item for item in rope.values() if isinstance(item, dict)]
    for parameters in variants:
        if parameters.get("rope_type") in _CONTEXT_DEPENDENT_ROPE:
            original = parameters.get("original_max_position_embeddings") or getattr(
                config, "original_max_position_embeddings", None
            )
            if original:
                limit = min(original, limit or original)
    return limit


def endings(model: Any, segments: SegmentTokenizer) -> Endings:
    """What each id of the model's output does to a value; behind the end of a text output is undefined, so it ends."""
    found = segments.endings(model.get_output_embeddings().weight.shape[0])
    return found.also([index for index in end_of_text_ids(model) if index < len(found)])


def cache_shape(model: Any) -> CacheShape:
    """What one token takes in the model's KV cache."""
    config = model.config.get_text_config()
    heads = config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return CacheShape(
        num_layers=config.num_hidden_layers,
        num_kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        key_size=size,
        value_size=getattr(config, "v_head_dim", None) or size,
        dtype=model.get_input_embeddings().weight.dtype,
        device=model.device,
    )


def model_revision(model: Any, source: str) -> str | None:
    """What names exactly this model: the hub's commit, the digest of an embedded model, or one of a folder's files."""
    commit: str | None = getattr(model.config, "_commit_hash", None)
    folder = Path(source)
    if commit or not folder.is_dir():
        return commit
    embedded = embedded_revision(folder)
    if embedded is not None:
        return embedded
    return files_digest(sorted({path for pattern in _DECISIVE_FILES for path in folder.glob(pattern)}))


def files_digest(paths: Iterable[Path]) -> str:
    """A short name for the files' names and contents, in the order given."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    return f"sha256:{digest.hexdigest()[:16]}"
