"""LoRA adapters in peft's format: small matrices, trained beside a model's weights, that change what it answers.

An adapter is merged into the weights, so that answering costs nothing more: in float32, and rounded once to the
model's precision (before they are put into FP8). Beside bitsandbytes' weights, which cannot take it, it stays what it
is. LoRA on linear and embedding layers is claimed, with rsLoRA's scale and DoRA's magnitudes, and whole layers that
were trained beside it (models/whole_layers.py); whatever else an adapter asks for is refused, because peft would leave
out some of it without a word.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from huggingface_hub import snapshot_download
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from hpd_core.config import EngineConfig
from hpd_core.errors import ModelError
from hpd_core.layers.fp8 import is_fp8
from hpd_core.models import whole_layers
from hpd_core.models.description import files_digest
from hpd_core.system.storage import open_filesystem

RECORD_NAME = "hpd.json"
_CONFIG_NAME = "adapter_config.json"
_WEIGHTS_NAME = "adapter_model.safetensors"
_FILES = (_CONFIG_NAME, _WEIGHTS_NAME, RECORD_NAME)
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")

# Settings that decide what the adapter computes.
_SHAPE_SETTINGS = (
    "r",
    "target_modules",
    "exclude_modules",
    "lora_alpha",
    "use_rslora",
    "use_dora",
    "fan_in_fan_out",
    "layers_to_transform",
    "layers_pattern",
    "rank_pattern",
    "alpha_pattern",
)
# Settings that say where it comes from, or have a meaning only in training or together with another setting.
_IDLE_SETTINGS = (
    "peft_type",
    "task_type",
    "peft_version",
    "auto_mapping",
    "base_model_name_or_path",
    "revision",
    "inference_mode",
    "lora_dropout",
    "init_lora_weights",
    "loftq_config",
    "eva_config",
    "corda_config",
    "lora_ga_config",
    "megatron_core",
    "qalora_group_size",
    "runtime_config",
)
_WHOLE_LAYERS = "modules_to_save"
# Of the ways to begin a training those that leave the model's own weights as they are.
_HARMLESS_STARTS = (True, False, "gaussian", "orthogonal", "eva")
# A matrix, its layer, and the name that the adapter had in training where whole state dicts were saved.
_LORA_KEY = re.compile(
    r"(?P<layer>.+)\.(?:(?P<linear>lora_[AB])(?:\.(?P<name>[^.]+))?\.weight"
    r"|(?P<embedding>lora_embedding_[AB])(?:\.(?P<embedding_name>[^.]+))?"
    r"|(?P<magnitude>lora_magnitude_vector)(?:\.(?P<magnitude_name>(?!weight$)[^.]+))?(?:\.weight)?)"
)
_PREFIX = "base_model.model."
# What stands in front of a model's own names: peft's wrapper, inside of what trained it (Lightning, DeepSpeed).
_OUTSIDE = re.compile(rf".*(?<![^.]){re.escape(_PREFIX)}")
# What training puts around modules: torch.compile, FSDP, activation checkpointing, DeepSpeed.
_WRAPPERS = frozenset(("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module"))
# Why weights are not taken, by what is found in their key.
_FOREIGN = {
    r"\.lora_[AB](\.[^.]+)?\.bias": "its matrices have biases; only plain LoRA is supported, "
    "train it without lora_bias",
    r"lora_down": "it is in another format than peft's; convert it to that",
    r"lora_up": "it is in another format than peft's; convert it to that",
    r"\.lora_a": "it is in another format than peft's; convert it to that",
    r"\.lora_b": "it is in another format than peft's; convert it to that",
}


class AdapterRecord(BaseModel):
    """What an adapter was trained for; our fine-tuning leaves it in the adapter's folder as `hpd.json`.

    `prompt_hash` is of the prompt's texts, `rendered_prompt_hash` of all that stood around the documents: these texts,
    and what the tokenizer made of them. Older records have the first alone. `keys` are those of the answers.
    `held_out` is a hash of the validation products, from which neither it nor what it was continued from has learned,
    as far as the records of those say; None where they say nothing, or otherwise. What a later version notes beside is
    left unread.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Literal[1] = 1
    base_model: str
    base_revision: str | None
    layout: Literal["tree", "stacked", "ar"]
    prompt_hash: str
    rendered_prompt_hash: str | None = None
    keys: Literal["full", "short"] = "full"
    max_value_tokens: int
    stack_size: int
    held_out: str | None = None

    def write(self, folder: Path) -> None:
        """Writes `hpd.json` into the folder."""
        (folder / RECORD_NAME).write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> AdapterRecord | None:
        """The record in the folder, or None if it holds none.

        Raises:
            ModelError: the file is not what `write` writes.
        """
        path = folder / RECORD_NAME
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            problem = error.errors()[0]
            place = ".".join(map(str, problem["loc"]))
            reason = f"{place}: {problem['msg']}" if place else problem["msg"]
            raise ModelError(
                f"{path} is no record of a fine-tuning: {reason}; put the file that came with the adapter back"
            ) from error


def with_trained_keys(config: EngineConfig, record: AdapterRecord | None) -> EngineConfig:
    """The settings with 'auto' keys as those that the model has learned: full, where nobody says so."""
    if config.prompt.keys != "auto":
        return config
    keys = record.keys if record is not None else "full"
    return config.model_copy(update={"prompt": config.prompt.model_copy(update={"keys": keys})})


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter whose files are here and were checked, as far as they can be without the model.

    Attributes:
        id: as the user named it.
        revision: the hub's commit, or a digest of settings and weights.
        folder: where the files are; for as long as `open_adapter` holds it.
        settings: `adapter_config.json`.
        record: what it was trained for; None unless our fine-tuning made it.
    """

    id: str
    revision: str
    folder: Path
    settings: Mapping[str, Any]
    record: AdapterRecord | None

    def notes(self, layout: str, prompt_hash: str, rendered_prompt_hash: str, max_value_tokens: int) -> list[str]:
        """What to tell a user who decodes otherwise than the adapter was trained for: answers may be worse.

        The arguments are as in `AdapterRecord`, of the run.
        """
        if self.record is None:
            return []
        notes = []
        if self.record.layout != layout:
            notes.append(f"the adapter was trained for layout {self.record.layout!r}, this run uses {layout!r}")
        if layout == "stacked" and self.record.max_value_tokens != max_value_tokens:
            # The gaps are K_max wide: another one moves every position behind the first key.
            notes.append(
                f"the adapter was trained with max_value_tokens {self.record.max_value_tokens}, this run uses "
                f"{max_value_tokens}"
            )
        before, now, what = self.record.prompt_hash, prompt_hash, "other texts, or other engine.prompt.keys"
        if before == now and self.record.rendered_prompt_hash is not None:
            before, now = self.record.rendered_prompt_hash, rendered_prompt_hash
            what = "another chat template, or another engine.prompt.date"
        if before != now:
            notes.append(f"the adapter was trained with the prompt {before}, this run uses {now}: {what}")
        return notes


@contextmanager
def open_adapter(name: str) -> Iterator[Adapter]:
    """The adapter `name`: a local folder, a folder at any fsspec URI, or a hub id.

    Raises:
        ModelError: not found, not in safetensors, or of a kind that is not supported; in one line.
    """
    with _local_folder(name) as (folder, commit):
        for required in (_CONFIG_NAME, _WEIGHTS_NAME):
            if not (folder / required).is_file():
                raise _refusal(
                    name,
                    f"there is no {required} in it; an adapter is a folder as peft's save_pretrained writes it, "
                    f"with {_CONFIG_NAME} and {_WEIGHTS_NAME}",
                )
        settings = _settings(name, folder / _CONFIG_NAME)
        revision = commit or files_digest([folder / _CONFIG_NAME, folder / _WEIGHTS_NAME])
        yield Adapter(name, revision, folder, settings, AdapterRecord.read(folder))


@contextmanager
def _local_folder(name: str) -> Iterator[tuple[Path, str | None]]:
    """The folder with the adapter's files, and the hub's commit."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        yield folder, None
    elif "://" in name:
        # Small, and the files behind a URI may change: nothing is kept.
        with tempfile.TemporaryDirectory(prefix="hpd-adapter-") as scratch:
            _download(name, Path(scratch))
            yield Path(scratch), None
    elif _HUB_ID.fullmatch(name):
        try:
            snapshot = Path(snapshot_download(name, allow_patterns=list(_FILES)))
        except (OSError, ValueError) as error:
            raise _refusal(name, f"no such folder, and the hub does not give it: {_first_line(error)}") from error
        yield snapshot, snapshot.name
    else:
        raise _refusal(name, "no such folder; an adapter is a local folder, an fsspec URI, or a hub id")


def _download(uri: str, folder: Path) -> None:
    try:
        filesystem, path = open_filesystem(uri)
        for name in _FILES:
            source = f"{path.rstrip('/')}/{name}"
            if filesystem.exists(source):
                filesystem.get_file(source, str(folder / name))
    except OSError as error:
        raise _refusal(uri, f"it cannot be downloaded: {_first_line(error)}; check the URI and the access") from error


def _settings(name: str, path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_bytes())
    except ValueError as error:
        raise _refusal(name, f"its {_CONFIG_NAME} is no JSON; save it again with peft") from error
    if not isinstance(settings, dict):
        raise _refusal(name, f"its {_CONFIG_NAME} is no JSON object; save it again with peft")
    kind, task = settings.get("peft_type"), settings.get("task_type")
    if kind != "LORA":
        raise _refusal(name, f"it is of type {kind!r}; train it as LORA")
    if task not in (None, "CAUSAL_LM"):
        raise _refusal(name, f"it is for the task {task!r}; train it for CAUSAL_LM")
    known = (*_SHAPE_SETTINGS, *_IDLE_SETTINGS, _WHOLE_LAYERS)
    used = [key for key, value in settings.items() if key not in known and _is_on(value)]
    if used:
        raise _refusal(name, f"it uses {', '.join(sorted(used))}, which is not supported; train it without")
    start = settings.get("init_lora_weights", True)
    if start not in _HARMLESS_STARTS:
        raise _refusal(
            name,
            f"it was begun with init_lora_weights={start!r}, which changes the model's own weights as well; convert it "
            f"to plain LoRA with peft's save_pretrained(path_initial_model_for_weight_conversion=...)",
        )
    return settings


def _is_on(setting: Any) -> bool:
    return setting not in (None, False, "none", "", [], {})


def add_adapter(model: Any, adapter: Adapter, base_revision: str | None, merge: bool | None = None) -> None:
    """Puts the adapter into a loaded model, in place. After an error the model must not be used any more.

    Args:
        model: a transformers model fresh from loading (bitsandbytes repacks 4-bit weights when they are first used, and
            layers put around them then go wrong).
        adapter: as `open_adapter` gives it, still open.
        base_revision: the model's `model_revision`, for adapters that know which one they were trained on.
        merge: into the weights, or beside them; by default into them unless they are quantized.

    Raises:
        ModelError: peft is missing, the adapter was trained on other weights, or not all of it fits the model.
    """
    check_base(adapter, base_revision)
    if is_fp8(model):
        raise _refusal(
            adapter.id,
            "the model's checkpoint is in FP8, into which nothing can be merged; load the model in bfloat16 with "
            "engine.quantization: fp8, which merges the adapter first",
        )
    quantized = bool(getattr(model, "is_quantized", False))
    if merge and quantized:
        raise _refusal(adapter.id, "it cannot be merged into quantized weights; leave it beside them")
    if quantized and adapter.settings.get("use_dora"):
        raise _refusal(adapter.id, "DoRA scales the model's weights, which are quantized; load the model in bfloat16")
    weights, whole = _read_weights(adapter)
    if weights:
        _inject(model, adapter, weights)
        if merge or (merge is None and not quantized):
            _merge(model, adapter)
    try:
        whole_layers.put_into(model, whole)
    except ValueError as error:
        raise _misfit(adapter, model, str(error)) from error
    model.eval()


def check_base(adapter: Adapter, base_revision: str | None) -> None:
    """Raises `ModelError` if the adapter is known to have been trained on another model."""
    record = adapter.record
    if record is not None and record.base_revision is not None and record.base_revision != base_revision:
        raise _refusal(
            adapter.id,
            f"it was trained on {record.base_model} with revision {record.base_revision}, this model has revision "
            f"{base_revision}; load the model that it was trained on, or train it on this one",
        )


def lora_settings(adapter: Adapter) -> dict[str, Any]:
    """The adapter's shape, as keywords of peft's LoraConfig."""
    return {key: adapter.settings[key] for key in _SHAPE_SETTINGS if key in adapter.settings}


def _inject(model: Any, adapter: Adapter, weights: dict[str, Tensor]) -> None:
    """Puts LoRA layers with the adapter's weights, in float32, around the model's layers."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
        from peft.tuners.tuners_utils import cast_adapter_dtype
    except ImportError as error:
        raise ModelError("an adapter needs the package 'peft': pip install 'hpd[adapters]'") from error
    config = LoraConfig(**lora_settings(adapter), task_type="CAUSAL_LM", inference_mode=True)
    try:
        inject_adapter_in_model(config, model)
        cast_adapter_dtype(model, "default")
    except (ValueError, RuntimeError, TypeError) as error:
        raise _misfit(adapter, model, _first_line(error)) from error
    _fill(model, adapter, weights)


def load_weights(model: Any, adapter: Adapter) -> None:
    """Puts the adapter's weights into the LoRA layers of `model`, a peft model, to be trained further.

    Raises:
        ModelError: a weight finds no layer, or a layer no weight; or it holds whole layers.
    """
    weights, whole = _read_weights(adapter)
    if whole:
        raise _refusal(
            adapter.id,
            f"it holds whole layers, such as {min(whole)}, which are not trained further; merge it into its model with "
            f"peft's merge_and_unload, and train that",
        )
    _fill(model, adapter, weights)


def _fill(model: Any, adapter: Adapter, weights: dict[str, Tensor]) -> None:
    from peft import set_peft_model_state_dict

    try:
        result: Any = set_peft_model_state_dict(model, weights)
    except (ValueError, RuntimeError, TypeError) as error:
        raise _misfit(adapter, model, _first_line(error)) from error
    if result.unexpected_keys:
        raise _misfit(
            adapter,
            model,
            f"{len(result.unexpected_keys)} of its {len(weights)} weights find no layer, such as "
            f"{result.unexpected_keys[0]}",
        )
    bare = [key for key in result.missing_keys if ".lora_" in key]
    if bare:
        raise _misfit(adapter, model, f"it targets layers without having weights for them, such as {bare[0]}")


def _read_weights(adapter: Adapter) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Of its low-rank matrices, as peft saves them, and of whole layers, by the model's names."""
    try:
        weights = load_file(adapter.folder / _WEIGHTS_NAME)
    except (SafetensorError, OSError) as error:
        raise _refusal(
            adapter.id, f"its {_WEIGHTS_NAME} cannot be read: {_first_line(error)}; copy or save it again"
        ) from error
    if not weights:
        raise _refusal(adapter.id, f"its {_WEIGHTS_NAME} is empty; save it again")
    for key, weight in weights.items():
        if not weight.isfinite().all():
            raise _refusal(adapter.id, f"its weight {key} is not finite; its training has diverged")
    names = whole_layers.names_of(weights, adapter.settings.get(_WHOLE_LAYERS) or [])
    whole = {_layer_of(name): weights.pop(key) for key, name in names.items()}
    lost = [name for name in adapter.settings.get(_WHOLE_LAYERS) or [] if not any(name in key for key in whole)]
    if lost:
        raise _refusal(adapter.id, f"it has no weights for the whole layer {lost[0]}; save it again with peft")
    return _as_peft_saves(adapter, weights), whole


def _as_peft_saves(adapter: Adapter, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights under the keys that peft's save_pretrained gives them, whatever wrote the file."""
    found: dict[str, Tensor] = {}
    names = {_adapter_name(adapter, key): None for key in weights}
    if len(names) > 1:
        listed = ", ".join(name or "(without a name)" for name in names)
        raise _refusal(
            adapter.id,
            f"it holds several adapters: {listed}; save one alone, with save_pretrained(selected_adapters=[...])",
        )
    for key, weight in weights.items():
        plain = _plain_key(key)
        if plain in found:
            raise _refusal(adapter.id, f"it holds {plain} twice; save it again with peft's save_pretrained")
        found[plain] = weight
    return found


def _adapter_name(adapter: Adapter, key: str) -> str:
    """What the adapter was called in training, if the key says so."""
    match = _LORA_KEY.fullmatch(key)
    if match is None:
        raise _refusal(adapter.id, _foreign(key))
    return match["name"] or match["embedding_name"] or match["magnitude_name"] or ""


def _plain_key(key: str) -> str:
    match = _LORA_KEY.fullmatch(key)
    assert match is not None
    matrix = match["embedding"] or match["magnitude"] or f"{match['linear']}.weight"
    return f"{_PREFIX}{_layer_of(match['layer'])}.{matrix}"


def _layer_of(name: str) -> str:
    """The model's own name of a layer, or of a weight, without what training has put around it."""
    inside = ".".join(part for part in name.split(".") if part not in _WRAPPERS)
    return _OUTSIDE.sub("", inside.removeprefix("module.")).removeprefix("module.")


def _foreign(key: str) -> str:
    """Why an adapter is refused that has a weight of this key."""
    for part, reason in _FOREIGN.items():
        if re.search(part, key):
            return f"{reason} (it holds {key})"
    return (
        f"it holds more than LoRA matrices, such as {key}; save it without whole layers or embeddings "
        f"(save_embedding_layers=False), or name them in modules_to_save"
    )


@torch.no_grad()
def _merge(model: Any, adapter: Adapter) -> None:
    """Adds the adapter to the weights it belongs to, and takes its layers out again."""
    from peft.tuners.lora import LoraLayer

    layers: list[tuple[str, Any]] = [pair for pair in model.named_modules() if isinstance(pair[1], LoraLayer)]
    for name, layer in layers:
        base = layer.get_base_layer()
        dtype = base.weight.dtype
        # A new parameter: one that is shared (tied embeddings) must not change in the other place.
        base.weight = nn.Parameter(base.weight.detach().to(torch.float32, copy=True), requires_grad=False)
        layer.merge()
        base.weight = nn.Parameter(base.weight.detach().to(dtype), requires_grad=False)
        if not base.weight.isfinite().all():
            raise _refusal(adapter.id, f"merged into {name} it is beyond the range of {dtype}; use another dtype")
        model.set_submodule(name, base)
    del model.peft_config


def _misfit(adapter: Adapter, model: Any, reason: str) -> ModelError:
    return _refusal(
        adapter.id,
        f"it does not fit this {model.config.model_type} model: {reason}; load the model that it was trained on",
    )


def _refusal(name: str, reason: str) -> ModelError:
    return ModelError(f"cannot use the adapter {name!r}: {reason}")


def _first_line(error: Exception) -> str:
    """The error in one line; of what torch says about a state dict, the first difference."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    differences = [line for line in lines if line.startswith("size mismatch")]
    return (differences or lines or [type(error).__name__])[0].rstrip(".")
