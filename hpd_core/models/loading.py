"""Loading of models, and early refusal of those that cannot work."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from hpd_core.config import EngineConfig
from hpd_core.errors import ModelError, first_line
from hpd_core.families.table import refuse_both_ways, refuse_layout, refuse_unsupported
from hpd_core.layers import fp8
from hpd_core.models import description, quantized_checkpoints, text_towers
from hpd_core.models.adapter_folder import Adapter, AdapterRecord, as_trained, open_adapter
from hpd_core.models.adapters import add_adapter
from hpd_core.models.embedded import EMBEDDED_MODELS, embedded_model_folder
from hpd_core.models.model_files import local_folder, local_place, model_problem, what_models_are
from hpd_core.system.device import is_out_of_memory
from hpd_core.system.storage import cache_folder, local_copy

logger = logging.getLogger(__name__)


def resolve_source(model: str, *, weights: bool = True) -> str:
    """Return a folder or hub id for transformers: embedded names become the folder of their weights, URIs a local copy.

    Args:
        weights: False if only configuration and tokenizer are needed: weights at a URI are not copied.
    """
    if model in EMBEDDED_MODELS:
        return str(embedded_model_folder(model))
    if "://" in model:
        return str(local_copy(model, cache_folder() / "copies", weights=weights))
    if (folder := local_place(model)) is None:
        return model
    if local_folder(model) is None:
        raise ModelError(not_found(model, FileNotFoundError(model_problem(folder))))
    return str(folder)


def load_tokenizer(model: str, config: EngineConfig) -> Any:
    """Load the tokenizer of `model`.

    Raises:
        ModelError: not found, or without a vocabulary we can use.
    """
    source = resolve_source(model, weights=False)
    with reading(model):
        return AutoTokenizer.from_pretrained(source, trust_remote_code=config.trust_remote_code)


def load_config(model: str, config: EngineConfig) -> Any:
    """Load only the configuration of `model`. Raise `ModelError` if it is not found."""
    source = resolve_source(model, weights=False)
    with reading(model):
        return AutoConfig.from_pretrained(source, trust_remote_code=config.trust_remote_code)


def load_model(model: str, config: EngineConfig) -> Any:
    """Load the weights of `model`, ready for `attach`: safetensors only, quantized if asked.

    Raises:
        ModelError: not found, not in safetensors, or quantization is not possible.
    """
    return finish(load_weights(model, config), config)


def load_weights(model: str, config: EngineConfig) -> Any:
    """Load as `load_model`, but leave what goes into FP8 on the CPU for `finish`: adapters are merged before.

    Raises:
        ModelError: as `load_model`.
    """
    source = resolve_source(model)
    device = resolve_device(config)
    dtype = resolve_dtype(config, device)
    trust = config.trust_remote_code
    options: dict[str, Any] = {"dtype": dtype, "trust_remote_code": trust, "use_safetensors": True}
    with reading(model):
        model_config = AutoConfig.from_pretrained(source, trust_remote_code=trust)
        refuse_unsupported(model_config)
        refuse_layout(model_config, config.layout)
        quantized_checkpoints.refuse_fp8(model_config)
        _refuse_quantizing_again(model_config, config.quantization)
        if config.reads_both_ways:
            refuse_both_ways(model_config)
        to_fp8 = config.quantization == "fp8"
        is_quantized = not to_fp8 and bool(config.quantization or quantized_checkpoints.quantization_of(model_config))
        kind = text_towers.multimodal_class(model_config)
        if (warning := description.warning(model_config)) is not None:
            logger.warning(warning)
        if to_fp8:
            if (reason := fp8.why_not(device, dtype)) is not None:
                raise ModelError(f"FP8 cannot be had: {reason}; set engine.quantization to null, or to 'nf4'")
            fp8.decoder_linears(load_empty(model, config), device)  # nobody waits for the weights of what cannot work
        if config.quantization is not None and not to_fp8:
            options["quantization_config"] = _quantization(config.quantization, dtype)
        if is_quantized:
            options["device_map"] = {"": device}  # by which the code that multiplies is chosen
        loaded = _whole(source, quantized_checkpoints.readable(model_config), kind, options)
        quantized_checkpoints.unpack(loaded)
        loaded = loaded if kind is None else text_towers.alone(loaded)
        on_device = loaded if to_fp8 or is_quantized else loaded.to(device)
    return on_device.eval()


def _whole(source: str, model_config: Any, kind: Any | None, options: Mapping[str, Any]) -> Any:
    """Load the model by transformers. Raise `ModelError` if weights are missing: transformers would make up random
    ones.
    """
    loader = AutoModelForCausalLM if kind is None else text_towers.without_towers(kind)
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()  # it warns of each weight that there is no use for
    try:
        loaded, report = loader.from_pretrained(
            source, config=model_config, output_loading_info=True, ignore_mismatched_sizes=True, **options
        )
    except (ImportError, RuntimeError) as error:  # the latter: there is a part of what is needed
        if method := quantized_checkpoints.quantization_of(model_config).get("quant_method"):
            package = quantized_checkpoints.PACKAGES.get(method)
            install = "install what is missing" if package is None else f"pip install {package}"
            reason = f"quantized by {method}, which cannot be read here ({first_line(error)})"
            raise ModelError(
                f"the checkpoint is {reason}: {install}, or take the model in bfloat16 with engine.quantization: nf4"
            ) from error
        raise
    finally:
        transformers.logging.set_verbosity(verbosity)
    if mismatched := sorted(report["mismatched_keys"]):
        name, stored, wanted = mismatched[0]
        raise ModelError(
            f"{name} is {tuple(stored)} in the checkpoint, and {tuple(wanted)} by its config.json: put the files back "
            f"that belong together"
        )
    if missing := sorted(report["missing_keys"]):
        others = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelError(f"the checkpoint lacks {missing[0]}{others}: it is not whole, or of another kind of model")
    if kind is None and (unused := sorted(report["unexpected_keys"])):
        if scales := [key for key in unused if "scale" in key.rpartition(".")[2]]:
            raise ModelError(f"config.json has no quantization_config, which says what {scales[0]} is for")
        logger.warning("%d tensors of the checkpoint are not used, such as %s", len(unused), unused[0])
    return loaded


def finish(loaded: Any, config: EngineConfig) -> Any:
    """Put a model of `load_weights` into FP8, if that is asked for, and on its device, in place.

    Raises:
        ModelError: as `load_model`.
    """
    device = resolve_device(config)
    if config.quantization == "fp8" and not fp8.is_fp8(loaded):
        fp8.quantize_model(loaded, device)
    if fp8.is_fp8(loaded):
        loaded.to(device)
        if device.type == "cpu":
            logger.warning("FP8 is emulated on a CPU: slower than without it, to judge the answers")
    return loaded


def _refuse_quantizing_again(model_config: Any, asked: str | None) -> None:
    """Raise `ModelError` if the checkpoint is quantized, and another quantization is asked for."""
    stored = quantized_checkpoints.quantization_of(model_config)
    method = stored.get("quant_method")
    if stored and asked not in (None, "fp8") and method != "bitsandbytes":
        raise ModelError(f"the checkpoint is quantized already ({method}): set engine.quantization to null")
    if stored and asked == "fp8":
        raise ModelError(f"the checkpoint is quantized already ({method}): FP8 is made of one in bfloat16")


def load_empty(model: str, config: EngineConfig) -> Any:
    """Return the model without its weights, on the device meta. Raise `ModelError` if it is not found."""
    source = resolve_source(model, weights=False)
    trust = config.trust_remote_code
    with reading(model):
        model_config = AutoConfig.from_pretrained(source, trust_remote_code=trust)
        refuse_unsupported(model_config)
        refuse_layout(model_config, config.layout)
        kind = text_towers.multimodal_class(model_config)
        with torch.device("meta"):
            if kind is not None:
                return text_towers.alone(text_towers.without_towers(kind)(model_config))
            return AutoModelForCausalLM.from_config(model_config, trust_remote_code=trust)


def resolve_device(config: EngineConfig) -> torch.device:
    """Return the device to run on; 'auto' is the GPU if there is one.

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
    """Return the dtype to compute in; 'auto' is bfloat16 if the hardware multiplies faster in it, else float32."""
    if config.dtype != "auto":
        dtype: torch.dtype = getattr(torch, config.dtype)
        return dtype
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    mkldnn: Any = torch.backends.mkldnn
    has_bf16 = mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return torch.bfloat16 if has_bf16 and not _is_bf16_slow(torch.cpu.get_capabilities()) else torch.float32


def _is_bf16_slow(cpu: Mapping[str, Any]) -> bool:
    """Return whether the processor has bfloat16 and is slower in it: Intel's by vectors, without AMX or with AMX hidden
    from a virtual machine (docs/log.md). AMD's are faster in it by vectors, too.
    """
    return str(cpu.get("cpu_name", "")).startswith("Intel") and not cpu.get("amx_tile", False)


def _quantization(name: str, dtype: torch.dtype) -> Any:
    try:
        import bitsandbytes  # noqa: F401
    except ImportError as error:
        raise ModelError(f"quantization {name!r} needs bitsandbytes: pip install bitsandbytes accelerate") from error
    if name == "nf4":
        return transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype
        )
    # With outlier columns picked per batch (threshold > 0), other products in the batch change an answer.
    return transformers.BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0)


@dataclass(eq=False)
class Weights:
    """Loaded model and what identifies it.

    Attributes:
        source: the folder or hub id it came from.
        adapter: the adapter that was put into it; its files may be gone.
        whole_size: `description.size` of the whole model, if this process has a part.
    """

    model: Any
    model_id: str
    source: str
    adapter: Adapter | None = None
    whole_size: dict[str, int] | None = None

    @classmethod
    def of(cls, model: Any) -> Weights:
        """Return the names of a model that the caller has loaded."""
        name = str(getattr(model.config, "_name_or_path", "") or "")
        return cls(model, name, name)

    @classmethod
    def load(cls, model: str, config: EngineConfig, adapter: str | None) -> Weights:
        """Load `model` and put `adapter` into it. Raise ModelError."""
        with ExitStack() as stack:
            # Before the weights: what is wrong with an adapter's files is said within seconds.
            opened = None if adapter is None else stack.enter_context(open_adapter(adapter))
            weights = cls(load_weights(model, config), model, resolve_source(model), opened)
            if opened is not None:
                add_adapter(weights.model, opened, weights.revision)
            finish(weights.model, config)
        return weights

    def settings(self, config: EngineConfig, decoding: str = "hpd") -> EngineConfig:
        """Return the settings for these weights: 'auto' becomes what they were trained with (`as_trained`).

        Args:
            decoding: kind of decoding; 'ar' reads documents causally, however they were read in training.

        Raises:
            ModelError: the record in the model's folder cannot be read.
        """
        record = self.adapter.record if self.adapter is not None else AdapterRecord.read(Path(self.source))
        return as_trained(config, record, "ar" if decoding == "ar" else None)

    @cached_property
    def revision(self) -> str | None:
        """Exact revision of the model, without the adapter."""
        return description.model_revision(self.model, self.source)


@contextmanager
def reading(model: str) -> Iterator[None]:
    """Raise `ModelError` for any error in the context except out of memory: transformers raises any error for files
    that it cannot parse.
    """
    try:
        yield
    except ModelError:
        raise
    except SafetensorError as error:
        raise ModelError(f"a file of the weights of {model!r} is not whole: copy it again ({error})") from error
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise ModelError(not_found(model, error)) from error


def not_found(model: str, error: Exception) -> str:
    """Return the message: that the model cannot be loaded, why, and what a model is."""
    return f"cannot load the model {model!r}: {first_line(error)} ({what_models_are()})"
