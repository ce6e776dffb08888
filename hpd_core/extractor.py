"""What the engine and the autoregressive baseline have in common: loading, names, results of refused records."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypedDict

from hpd_core.config import EngineConfig
from hpd_core.decoding.memory import Limits
from hpd_core.errors import EngineError, ModelError
from hpd_core.layers.fp8 import is_fp8
from hpd_core.models import description, loading
from hpd_core.models.adapter_folder import Adapter, open_adapter
from hpd_core.models.adapter_record import AdapterRecord, as_trained
from hpd_core.models.adapters import add_adapter
from hpd_core.prompt_builder import PromptBuilder, Refusal
from hpd_core.system.threads import in_passing_thread
from hpd_core.text.values import error_value
from hpd_core.types import CategorySchema, Record, RecordResult

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ExtractionMetrics:
    """What one submission cost. Tokens are counted where they were forwarded.

    `document_tokens_shared` were not: others begin with the same text, which was forwarded once for all.
    Of `draft_tokens`, `rejected_tokens` were wrong; the others are among the `value_tokens`. `scored_tokens` were
    forwarded to choose closed answers, and are no part of one.
    `busy_seconds` is the engine's time, each step's split over the submissions in it by tokens forwarded; of it,
    `prefix_seconds` went into categories' prefixes and shared text, the rest is the sum of the results'
    `engine_seconds`.
    """

    num_records: int = 0
    num_errors: int = 0
    prefix_tokens_computed: int = 0
    prefix_tokens_reused: int = 0
    document_tokens: int = 0
    document_tokens_shared: int = 0
    key_tokens: int = 0
    value_tokens: int = 0
    draft_tokens: int = 0
    rejected_tokens: int = 0
    scored_tokens: int = 0
    num_steps: int = 0
    busy_seconds: float = 0.0
    prefix_seconds: float = 0.0


class ExtractionFuture(Future[list[RecordResult]]):
    """The results of one `submit`, in input order; `metrics` is complete once they are there."""

    def __init__(self) -> None:
        super().__init__()
        self.metrics = ExtractionMetrics()


def answer_in_turn(
    executor: Executor, work: Callable[[ExtractionMetrics], list[RecordResult]], name: str
) -> ExtractionFuture:
    """Queues `work` behind what the executor has to do; it fills in the future's metrics, its error is the future's.

    Raises `EngineError`, saying that what has this `name` is closed, if the executor is shut down.
    """
    future = ExtractionFuture()
    # It cannot be called back.
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work(future.metrics))
        except Exception as error:
            future.set_exception(error)

    try:
        executor.submit(run)
    except RuntimeError as error:
        raise EngineError(f"{name} is closed") from error
    return future


@dataclass(eq=False)
class Weights:
    """A loaded model and what names it.

    Attributes:
        source: the folder or hub id it came from.
        adapter: what was put into it; its files may be gone.
        whole_size: `description.size` of all of it, where this process has a part.
    """

    model: Any
    model_id: str
    source: str
    adapter: Adapter | None = None
    whole_size: dict[str, int] | None = None

    @classmethod
    def of(cls, model: Any) -> Weights:
        """The names of a model that somebody else has loaded."""
        name = str(getattr(model.config, "_name_or_path", "") or "")
        return cls(model, name, name)

    @classmethod
    def load(cls, model: str, config: EngineConfig, adapter: str | None) -> Weights:
        """Loads `model` and puts `adapter` into it. Raises ModelError."""
        with ExitStack() as stack:
            # Before the weights: what is wrong with an adapter's files is said within seconds.
            opened = None if adapter is None else stack.enter_context(open_adapter(adapter))
            weights = cls(loading.load_weights(model, config), model, loading.resolve_source(model), opened)
            if opened is not None:
                add_adapter(weights.model, opened, weights.revision)
            loading.finish(weights.model, config)
        return weights

    def settings(self, config: EngineConfig, decoding: str = "hpd") -> EngineConfig:
        """The settings as they are for these weights: with what is 'auto' as it was trained (`as_trained`).

        Args:
            decoding: of who asks; 'ar' reads documents causally, however they were read in training.

        Raises:
            ModelError: the record in the model's folder cannot be read.
        """
        record = self.adapter.record if self.adapter is not None else AdapterRecord.read(Path(self.source))
        return as_trained(config, record, "ar" if decoding == "ar" else None)

    @cached_property
    def revision(self) -> str | None:
        """What names exactly the model, without the adapter."""
        return description.model_revision(self.model, self.source)


class EngineDescription(TypedDict):
    """What an engine says of itself, in `manifest.json` under `engine`: what answers and speed depend on.

    For a setting that is 'auto' it says what that has led to; null, where there is no such thing.
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


class Extractor(ABC):
    """Extracts attribute values with a language model. Use as a context manager, or `close` it."""

    decoding: ClassVar[str]
    config: EngineConfig
    load_seconds: float
    _weights: Weights
    _builder: PromptBuilder

    @abstractmethod
    def __init__(self, model: Any, tokenizer: Any, config: EngineConfig | None = None) -> None: ...

    @classmethod
    def from_pretrained(cls, model: str, config: EngineConfig | None = None, adapter: str | None = None) -> Self:
        """Loads `model`: a hub id, a local folder, or an embedded name ("smollm2").

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
        """The model as the user named it."""
        return self._weights.model_id

    @property
    @abstractmethod
    def layout(self) -> str:
        """The layout of prompts and answers."""

    @property
    @abstractmethod
    def attention(self) -> str:
        """How it attends."""

    @property
    @abstractmethod
    def layers(self) -> str:
        """Whose code runs the model's layers."""

    @property
    @abstractmethod
    def limits(self) -> Limits | None:
        """How much is decoded at a time now; None where nothing is decoded."""

    @property
    def cached_bytes(self) -> int:
        """Of a token in the KV cache, of all layers; 0 where the cache is transformers'."""
        return 0

    @property
    def max_scored_tokens(self) -> int:
        """Of each closed answer, the most tokens that are forwarded to score it; 0: none is scored."""
        return 0

    @property
    def overlaps_steps(self) -> bool:
        """Whether there are two steps at a time."""
        return False

    @property
    def prompt_hash(self) -> str:
        """A hash of all that the model reads around a document, the schema apart."""
        return self._builder.prompt_hash

    @property
    def notes(self) -> list[str]:
        """What a user should know about this combination of settings."""
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
        """One result per record, in input order. A record that cannot be taken has `error` set. Arguments as `submit`.

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
        """Queues the records and returns at once.

        Args:
            records: what to extract from; ids need not be unique.
            schemas: category -> schema.
            document_ids: token ids of the documents, from `DocumentTokenizer.encode`, if already known.
            wanted: names of the attributes to answer, by record; None for all. Their answers are those they would have
                among all. For the layout `tree` only: elsewhere answers depend on each other.

        Raises:
            ValueError: `document_ids` or `wanted` do not fit the records, their schemas or the layout; or an attribute
                is verbatim where that cannot be.
        """

    @abstractmethod
    def close(self) -> None:
        """Ends its thread."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def describe(self) -> EngineDescription:
        """For a manifest: what answers and speed depend on."""
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


def refused_result(record: Record, refusal: Refusal, schema: CategorySchema | None) -> RecordResult:
    """What comes back for a record that was not decoded: every attribute with the status "error"."""
    values = {attribute.name: error_value() for attribute in schema.attributes} if schema else {}
    return RecordResult(record.id, record.category, values, refusal.message, refusal.code)


def versions() -> dict[str, str]:
    """Versions of what computes the answers."""
    found = {}
    for package in ("hpd", "torch", "transformers"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "source"
    return found
