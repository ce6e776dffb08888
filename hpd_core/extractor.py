"""Base of the engine and the baselines: loading, names, results of refused records.

Description of an engine, to trace how an answer came about.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, ClassVar, Self, TypedDict

from hpd_core.config import EngineConfig
from hpd_core.decoding.memory import Limits
from hpd_core.errors import ModelError
from hpd_core.layers.fp8 import is_fp8
from hpd_core.models import description, loading
from hpd_core.models.loading import Weights
from hpd_core.requests.calls import ExtractionFuture
from hpd_core.requests.prompt_builder import PromptBuilder
from hpd_core.system.device import in_passing_thread
from hpd_core.types import CategorySchema, Record, RecordResult

logger = logging.getLogger(__name__)


class Extractor(ABC):
    """Extractor of attribute values with a language model. Use as a context manager, or `close` it.

    Attributes:
        layout: layout of prompts and answers.
        attention: attention implementation in use; if set to 'auto', the one chosen on this machine.
        layers: code that runs the model's layers.
        cached_bytes: bytes of a token in the KV cache, over all layers and GPUs; 0 if the cache is transformers' own.
        max_scored_tokens: maximum number of tokens forwarded to score a closed answer; 0: none is scored.
        overlaps_steps: whether the device runs one step while the host works on another.
    """

    decoding: ClassVar[str]
    config: EngineConfig
    load_seconds: float
    layout: str
    attention: str
    layers: str
    cached_bytes = 0
    max_scored_tokens = 0
    overlaps_steps = False
    _weights: Weights
    _builder: PromptBuilder

    @abstractmethod
    def __init__(self, model: Any, tokenizer: Any, config: EngineConfig | None = None) -> None: ...

    @classmethod
    def from_pretrained(cls, model: str, config: EngineConfig | None = None, adapter: str | None = None) -> Self:
        """Load `model`: a hub id, a local folder, or an embedded name ("smollm2").

        Args:
            adapter: a LoRA adapter in peft's format to put into it: a local folder, an fsspec URI or a hub id.

        Raises:
            ModelError: one of them cannot be found, loaded or used; the message says why.
        """
        started = time.perf_counter()
        extractor = in_passing_thread(lambda: cls._load(model, config or EngineConfig(), adapter))
        extractor.load_seconds = time.perf_counter() - started
        for note in extractor.notes:
            logger.warning("%s: %s", adapter, note)
        return extractor

    @classmethod
    def _load(cls, model: str, config: EngineConfig, adapter: str | None) -> Self:
        if config.tensor_parallel > 1:
            raise ModelError(f"tensor_parallel is for the engine, not for {cls.decoding!r}; set it to 1")
        tokenizer = loading.load_tokenizer(model, config)
        weights = Weights.load(model, config, adapter)
        extractor = cls(weights.model, tokenizer, weights.settings(config, cls.decoding))
        extractor._weights = weights
        return extractor

    @property
    def model_id(self) -> str:
        """Model as the user named it."""
        return self._weights.model_id

    @property
    def limits(self) -> Limits | None:
        """Current limits of what is decoded at a time; None if nothing is decoded."""
        return None

    @property
    def prompt_hash(self) -> str:
        """Hash of all that the model reads around a document, except the schema."""
        return self._builder.prompt_hash

    @property
    def notes(self) -> list[str]:
        """Notes for the user about this combination of settings."""
        adapter = self._weights.adapter
        if adapter is None:
            return []
        config = self.config
        attention = config.document_attention
        return adapter.notes(self.layout, config.prompt.hash, self.prompt_hash, config.max_value_tokens, attention)

    def extract(
        self,
        records: Sequence[Record],
        schemas: Mapping[str, CategorySchema],
        document_ids: Sequence[Sequence[int]] | None = None,
        wanted: Sequence[Collection[str] | None] | None = None,
    ) -> list[RecordResult]:
        """Return one result per record, in input order. A refused record has `error` set. Arguments as `submit`.

        Raises:
            EngineError: decoding itself failed; the cause is attached.
        """
        return self.submit(records, schemas, document_ids, wanted).result()

    @abstractmethod
    def submit(
        self,
        records: Sequence[Record],
        schemas: Mapping[str, CategorySchema],
        document_ids: Sequence[Sequence[int]] | None = None,
        wanted: Sequence[Collection[str] | None] | None = None,
    ) -> ExtractionFuture:
        """Queue the records and return at once.

        Args:
            records: records to extract from; ids need not be unique.
            schemas: category -> schema.
            document_ids: token ids of the documents, from `DocumentTokenizer.encode`, if already known.
            wanted: names of the attributes to answer, by record; None for all. Answers are the same as if all were
                asked. For the layout `tree` only: in others answers depend on each other.

        Raises:
            ValueError: `document_ids` or `wanted` do not fit the records, their schemas or the layout; or an attribute
                is verbatim where that is not supported.
        """

    @abstractmethod
    def close(self) -> None:
        """End its thread."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def describe(self) -> EngineDescription:
        """Describe the engine for a manifest: all that answers and speed depend on."""
        model, adapter, limits = self._weights.model, self._weights.adapter, self.limits
        return {
            "model_id": self.model_id,
            "model_revision": self._weights.revision,
            "adapter_id": adapter.id if adapter else None,
            "adapter_revision": adapter.revision if adapter else None,
            "decoding": self.decoding,
            "layout": self.layout,
            "dtype": str(model.dtype).removeprefix("torch."),
            "attention": self.attention,
            "layers": self.layers,
            "quantization": "fp8" if is_fp8(model) else self.config.quantization,
            "max_scored_tokens": self.max_scored_tokens,
            "strings": self.config.strings,
            "numbers": "stated" if self.decoding == "hpd" and self.config.chooses_numbers else "free",
            "answer_threshold": self.config.answer_threshold,
            "limits": None if limits is None else asdict(limits),
            "overlap_steps": self.overlaps_steps,
            "model_size": (self._weights.whole_size or description.size(model)) | {"cached_bytes": self.cached_bytes},
            "tensor_parallel": self.config.tensor_parallel,
            "device": str(model.device),
            "device_name": description.device_name(model.device),
            "keys": "short" if self.config.prompt.keys == "short" else "full",
            "document_attention": "bidirectional" if self.config.reads_both_ways else "causal",
            "prompt_hash": self.prompt_hash,
            "notes": self.notes,
            "versions": versions(),
        }


class EngineDescription(TypedDict):
    """Description of an engine in `manifest.json` under `engine`: all that answers and speed depend on.

    A setting that is 'auto' is given as resolved; a value that does not apply is null.
    """

    model_id: Annotated[str, "the model, as the user named it"]
    model_revision: Annotated[str | None, "what names exactly its weights: the hub's commit, or a digest of its files"]
    adapter_id: Annotated[str | None, "the adapter, likewise"]
    adapter_revision: Annotated[str | None, "what names exactly its weights"]
    decoding: Annotated[str, "'hpd', 'ar' or 'made-up'"]
    layout: Annotated[str, "of prompts and answers"]
    dtype: Annotated[str | None, "in which it computes"]
    attention: Annotated[str, "how it attends; with 'ar' by transformers' name"]
    layers: Annotated[str, "whose code runs the model's layers"]
    quantization: Annotated[str | None, "of the weights"]
    max_scored_tokens: Annotated[int, "of the setting; 0 where closed answers are decoded token by token"]
    strings: Annotated[str | None, "of the setting: 'free' or 'verbatim'"]
    numbers: Annotated[str, "what numbers with a unit may be: 'free' or 'stated'"]
    answer_threshold: Annotated[float | None, "of the setting"]
    limits: Annotated[
        dict[str, int] | None,
        "how much is decoded at a time, when it has been loaded: max_tokens_per_step, max_prompts_per_cohort, "
        "max_cached_tokens, max_cached_prefixes. Where memory is missing later, it goes on with less",
    ]
    overlap_steps: Annotated[bool, "whether two steps are under way at a time"]
    model_size: Annotated[
        dict[str, int] | None,
        "layer_parameters, which a token goes through; head_parameters, which make logits; weight_bytes; of layers "
        "beside attention state_operations for a token, state_bytes of a prompt and column_bytes of a value's token; "
        "cached_bytes of a token in the KV cache",
    ]
    tensor_parallel: Annotated[int, "GPUs that share every layer"]
    device: Annotated[str, "cpu, or the GPU's number"]
    device_name: Annotated[str | None, "the GPU's name, or the number of CPU cores"]
    keys: Annotated[str | None, "how keys are written, 'full' or 'short'"]
    document_attention: Annotated[str | None, "what a document's tokens see of each other, as set"]
    prompt_hash: Annotated[str, "a hash of all that the model reads around a document, the schema apart"]
    notes: Annotated[list[str], "what a user should know about this combination of settings"]
    versions: Annotated[dict[str, str], "of hpd, torch and transformers"]


def versions() -> dict[str, str]:
    """Return the versions of the packages that compute the answers; "source" if one is not installed."""
    found = {}
    for name, package in (("hpd", "hyper-parallel-decoding"), ("torch", "torch"), ("transformers", "transformers")):
        try:
            found[name] = version(package)
        except PackageNotFoundError:
            found[name] = "source"
    return found
