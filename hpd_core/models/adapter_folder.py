"""Folder of an adapter: fetched from where it is, and refused if its settings ask for something unsupported."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import snapshot_download
from pydantic import BaseModel, ConfigDict, ValidationError

from hpd_core.config import DocumentAttention, EngineConfig
from hpd_core.errors import ModelError, first_line
from hpd_core.models.model_files import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    NO_ADAPTER_FOLDER,
    adapter_problem,
    files_digest,
    local_place,
)
from hpd_core.system.storage import open_filesystem

WHOLE_LAYERS = "modules_to_save"
RECORD_NAME = "hpd.json"
_FILES = (ADAPTER_CONFIG, ADAPTER_WEIGHTS, RECORD_NAME)
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")

# Settings that decide what the adapter computes.
SHAPE_SETTINGS = (
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
# Of the ways to begin a training those that leave the model's own weights as they are.
_HARMLESS_STARTS = (True, False, "gaussian", "orthogonal", "eva")


@dataclass(frozen=True, slots=True)
class Adapter:
    """Adapter whose files are local and were checked, except for what needs the model.

    Attributes:
        id: as the user named it.
        revision: the hub's commit, or a digest of settings and weights.
        folder: where the files are; valid while `open_adapter` holds it.
        settings: `adapter_config.json`.
        record: how it was trained; None unless our fine-tuning made it.
    """

    id: str
    revision: str
    folder: Path
    settings: Mapping[str, Any]
    record: AdapterRecord | None

    def notes(
        self,
        layout: str,
        prompt_hash: str,
        rendered_prompt_hash: str,
        max_value_tokens: int,
        document_attention: str = "causal",
    ) -> list[str]:
        """Return notes for a user whose run differs from the adapter's training: answers may be worse.

        The arguments are as in `AdapterRecord`, of the run.
        """
        if self.record is None:
            return []
        notes = []
        if self.record.layout != layout:
            notes.append(f"the adapter was trained for layout {self.record.layout!r}, this run uses {layout!r}")
        elif self.record.document_attention != document_attention:
            notes.append(
                f"the adapter was trained with document_attention {self.record.document_attention!r}, this run uses "
                f"{document_attention!r}"
            )
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
    """Open the adapter `name`: a local folder, a folder at any fsspec URI, or a hub id.

    Raises:
        ModelError: not found, not in safetensors, or of a kind that is not supported; in one line.
    """
    with _local_folder(name) as (folder, commit):
        if (problem := adapter_problem(folder)) is not None:
            raise refusal(name, problem)
        settings = _settings(name, folder / ADAPTER_CONFIG)
        revision = commit or files_digest([folder / ADAPTER_CONFIG, folder / ADAPTER_WEIGHTS])
        yield Adapter(name, revision, folder, settings, AdapterRecord.read(folder))


@contextmanager
def _local_folder(name: str) -> Iterator[tuple[Path, str | None]]:
    """Yield the folder with the adapter's files, and the hub's commit or None."""
    if (folder := local_place(name)) is not None:
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
            raise refusal(name, f"no such folder, and the hub does not give it: {first_line(error)}") from error
        yield snapshot, snapshot.name
    else:
        raise refusal(name, NO_ADAPTER_FOLDER)


def _download(uri: str, folder: Path) -> None:
    try:
        filesystem, path = open_filesystem(uri)
        for name in _FILES:
            source = f"{path.rstrip('/')}/{name}"
            if filesystem.exists(source):
                filesystem.get_file(source, str(folder / name))
    except OSError as error:
        raise refusal(uri, f"it cannot be downloaded: {first_line(error)}; check the URI and the access") from error


def _settings(name: str, path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_bytes())
    except ValueError as error:
        raise refusal(name, f"its {ADAPTER_CONFIG} is no JSON; save it again with peft") from error
    if not isinstance(settings, dict):
        raise refusal(name, f"its {ADAPTER_CONFIG} is no JSON object; save it again with peft")
    kind, task = settings.get("peft_type"), settings.get("task_type")
    if kind != "LORA":
        raise refusal(name, f"it is of type {kind!r}; train it as LORA")
    if task not in (None, "CAUSAL_LM"):
        raise refusal(name, f"it is for the task {task!r}; train it for CAUSAL_LM")
    known = (*SHAPE_SETTINGS, *_IDLE_SETTINGS, WHOLE_LAYERS)
    used = [key for key, value in settings.items() if key not in known and _is_on(value)]
    if used:
        raise refusal(name, f"it uses {', '.join(sorted(used))}, which is not supported; train it without")
    start = settings.get("init_lora_weights", True)
    if start not in _HARMLESS_STARTS:
        raise refusal(
            name,
            f"it was begun with init_lora_weights={start!r}, which changes the model's own weights as well; convert it "
            f"to plain LoRA with peft's save_pretrained(path_initial_model_for_weight_conversion=...)",
        )
    return settings


def _is_on(setting: Any) -> bool:
    return setting not in (None, False, "none", "", [], {})


def refusal(name: str, reason: str) -> ModelError:
    """Return the error for an adapter that cannot be used."""
    return ModelError(f"cannot use the adapter {name!r}: {reason}")


class AdapterRecord(BaseModel):
    """Record of an adapter's training; our fine-tuning writes it to the adapter's folder as `hpd.json`.

    `prompt_hash` is of the prompt's texts. `rendered_prompt_hash` is of everything around the documents: these texts,
    and the tokenizer's rendering of them. Older records have only the first. `keys` are those of the answers.
    `document_attention` is which tokens of a document see each other. `held_out` is a hash of the validation products,
    from which neither it nor the adapter it was continued from has learned, according to their records. It is None if
    the records say nothing, or otherwise. Fields of later versions are ignored.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Literal[1] = 1
    base_model: str
    base_revision: str | None
    layout: Literal["tree", "stacked", "ar"]
    prompt_hash: str
    rendered_prompt_hash: str | None = None
    keys: Literal["full", "short"] = "full"
    document_attention: DocumentAttention = "causal"
    max_value_tokens: int
    stack_size: int
    held_out: str | None = None

    def write(self, folder: Path) -> None:
        """Write `hpd.json` into the folder."""
        (folder / RECORD_NAME).write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> AdapterRecord | None:
        """Return the record in the folder, or None if it holds none.

        Raises:
            ModelError: the file is not in the format of `write`.
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


def as_trained(config: EngineConfig, record: AdapterRecord | None, layout: str | None = None) -> EngineConfig:
    """Return the settings with 'auto' replaced as the model was trained: keys, and how it reads documents.

    The defaults are full keys and causal documents; documents are causal in any other layout than 'tree'.

    Args:
        layout: layout of a training, if it differs from the settings'.
    """
    update: dict[str, Any] = {}
    if config.prompt.keys == "auto":
        keys = record.keys if record is not None else "full"
        update["prompt"] = config.prompt.model_copy(update={"keys": keys})
    if config.document_attention == "auto":
        recorded = record if (layout or config.layout) == "tree" else None
        update["document_attention"] = "causal" if recorded is None else recorded.document_attention
    return config.model_copy(update=update)
