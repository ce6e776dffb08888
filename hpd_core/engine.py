"""Engine: records in, values out. Prompts are built in the caller's thread; one engine thread decodes."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

from pydantic import BaseModel

from hpd_core.config import EngineConfig
from hpd_core.decoding.decoder import Decoder
from hpd_core.decoding.memory import Limits
from hpd_core.decoding.run_tries import RunTries
from hpd_core.errors import ModelError
from hpd_core.extractor import Extractor
from hpd_core.families.table import refuse_both_ways
from hpd_core.json_schema.answers import JsonFuture, JsonResult
from hpd_core.json_schema.extraction import submit_json
from hpd_core.json_schema.form import render_frame
from hpd_core.json_schema.schema_reader import SchemaLimits, as_mapping, read_schema
from hpd_core.models import description, loading, steering
from hpd_core.models.loading import Weights
from hpd_core.parallel.group import Group
from hpd_core.requests.calls import CompletionFuture, ExtractionFuture, OpenBranch, Trunk, refuse_constrained
from hpd_core.requests.exclusive_rounds import ExclusiveRounds
from hpd_core.requests.implied_choice import add_implied
from hpd_core.requests.prompt_builder import PromptBuilder, TextLeft
from hpd_core.requests.request_queue import Request, RequestQueue
from hpd_core.requests.results import Completions, RecordResults
from hpd_core.text.member_tries import KindTables
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.types import CategorySchema, Record


class Engine(Extractor):
    """Extractor of attribute values with a language model.

    `extract` waits; `submit` returns a future, and the work of several callers shares the same steps. Both may be
    called from any thread. Use as a context manager, or `close` it, to end its thread.
    """

    decoding = "hpd"

    def __init__(
        self, model: Any, tokenizer: Any, config: EngineConfig | None = None, group: Group | None = None
    ) -> None:
        """Take over an already loaded transformers model.

        Its attention implementation is replaced, and on a GPU weights that are multiplied together are laid side by
        side. To replace weights later, create a new engine.

        Args:
            group: processes that hold the other parts of the model, with this `config`; started by `from_pretrained`.

        Raises:
            ModelError: the model cannot work with HPD; the message says why.
            PromptError: the tokenizer's chat template does not take the configured messages.
        """
        started = time.perf_counter()
        self.config = config or EngineConfig()
        self._group = group
        if self.config.tensor_parallel > 1 and group is None:
            raise ModelError("tensor_parallel needs several processes, which Engine.from_pretrained starts")
        steering.attach(model)
        if self.config.reads_both_ways:
            refuse_both_ways(model.config)
        self._weights = Weights.of(model)
        self._segments = SegmentTokenizer(tokenizer)
        description.refuse_unknown_tokens(model, self._segments)
        vocab_size = model.get_output_embeddings().weight.shape[0]
        self.endings = endings = description.endings(model, self._segments)
        tables = KindTables(tokenizer, vocab_size, endings, self.config.max_scored_tokens)
        held_to = tables if self.config.constrain_values else None
        self._runs = RunTries(self._segments, endings, tables) if held_to is not None else None
        max_positions = description.max_positions(model.config)
        self._builder = PromptBuilder(
            tokenizer,
            self.config,
            max_positions,
            held_to,
            self._runs,
            num_rows=description.num_embedded(model),
        )
        self._decoder: Decoder
        if group is not None:
            self._decoder = group.decoder(tokenizer, endings, tables.states, tables.tries)
        else:
            shape = description.cache_shape(model)
            self._decoder = Decoder(model, endings, self.config, shape, tables.states, tables.tries)
            steering.verify(model, tokenizer, self._decoder)
            self._decoder.fit()

        self.layout, self.attention, self.layers = self.config.layout, self._decoder.way, self._decoder.layers
        cache = self._decoder.pool.shape
        self.cached_bytes = cache.numbers_per_token * cache.dtype.itemsize * self.config.tensor_parallel
        # Where values see others, or are not constrained, none is scored.
        is_scored = self.layout == "tree" and self.config.constrain_values
        self.max_scored_tokens = self.config.max_scored_tokens if is_scored else 0
        self.overlaps_steps = self._decoder.overlaps_steps
        self._queue = RequestQueue(self._decoder, self._runs)
        self._completions = Completions(self._builder, self._queue, self._segments, self._runs)
        self.load_seconds = time.perf_counter() - started

    @classmethod
    def _load(cls, model: str, config: EngineConfig, adapter: str | None) -> Self:
        if config.tensor_parallel == 1:
            return super()._load(model, config, adapter)
        group = Group(model, config, adapter)
        try:
            tokenizer = loading.load_tokenizer(model, config)
            group.load(tokenizer)
            engine = cls(group.weights.model, tokenizer, group.weights.settings(config), group)
        except BaseException as error:
            # One process fails because of another as a rule; the first one knows why.
            reason = group.end_after(error)
            if reason is None:
                raise
            raise reason from error
        engine._weights = group.weights
        return engine

    @property
    def limits(self) -> Limits:
        """Current limits of what is decoded at a time; lower than at first if memory ran out."""
        return self._decoder.limits

    def submit(
        self,
        records: Sequence[Record],
        schemas: Mapping[str, CategorySchema],
        document_ids: Sequence[Sequence[int]] | None = None,
        wanted: Sequence[Collection[str] | None] | None = None,
    ) -> ExtractionFuture:
        """Queue the records; see `Extractor.submit`. A callback of the future must not wait for the engine."""
        if (problem := self.config.why_not_verbatim) is not None:
            refuse_constrained(schemas, problem)
        # A job has thousands of others.
        of_records = {record.category for record in records if isinstance(record.category, str)} & schemas.keys()
        if any(schemas[category].rivals for category in of_records):
            future = ExclusiveRounds(self._ask, records, schemas, document_ids, wanted).start()
        else:
            future = self._ask(records, schemas, document_ids, wanted)
        if any(schemas[category].has_implied for category in of_records):
            future = add_implied(future, records, schemas, wanted, self._builder.open_trunk, self.complete)
        return future

    def _ask(
        self,
        records: Sequence[Record],
        schemas: Mapping[str, CategorySchema],
        document_ids: Sequence[Sequence[int]] | None,
        wanted: Sequence[Collection[str] | None] | None,
        left: Sequence[TextLeft] | None = None,
    ) -> ExtractionFuture:
        prompts, refusals = self._builder.build(records, schemas, document_ids, wanted, left)
        threshold = self.config.answer_threshold
        results = RecordResults(list(records), dict(schemas), refusals, self._segments, self._runs, threshold)
        future = ExtractionFuture()
        self._queue.add([Request(prompts, future, results.of)])
        return future

    def complete(self, trunks: Sequence[Trunk], branches: Sequence[Sequence[OpenBranch]]) -> CompletionFuture:
        """Queue branches that grow from trunks, and return at once: the layer below records and their attributes.

        A trunk that cannot be taken (too long for the model, say) comes back with `error` set.

        Args:
            branches: for each trunk, the branches that grow from it.

        Raises:
            PatternError: the regular expression of a kind cannot be decoded.
            ValueError: not as many lists of branches as trunks, or a Verbatim kind although nothing is constrained.
        """
        return self._completions.submit([(trunks, branches)])[0]

    def submit_json(
        self,
        documents: Sequence[str],
        schema: Mapping[str, Any] | type[BaseModel],
        *,
        instruction: str | None = None,
        limits: SchemaLimits | None = None,
    ) -> JsonFuture:
        """Queue documents, each to be answered with JSON of a schema, and return at once.

        Args:
            schema: JSON Schema (2020-12) of an object, or a pydantic model; docs/json.md lists the supported subset.
            instruction: the task, for the model to read; by default, to fill in a form.
            limits: limits of the schema; by default `SchemaLimits()`.

        Raises:
            SchemaError: the schema is malformed, outside of the subset or too large.
            ValueError: a document is no text.
        """
        if isinstance(documents, str) or not all(isinstance(each, str) for each in documents):
            raise ValueError("documents are a list of texts")
        plain = as_mapping(schema)
        form = read_schema(plain, limits or SchemaLimits())
        frame = render_frame(form, self.config.prompt, self._segments.tokenizer, instruction)
        return submit_json(self._completions, documents, plain, form, frame)

    def extract_json(
        self,
        documents: Sequence[str],
        schema: Mapping[str, Any] | type[BaseModel],
        instruction: str | None = None,
    ) -> list[JsonResult]:
        """Return one result per document, in order; arguments and errors as `submit_json`.

        Raises:
            EngineError: decoding itself failed; the cause is attached.
        """
        return self.submit_json(documents, schema, instruction=instruction).result()

    def close(self) -> None:
        """End the engine's thread; unfinished work fails with EngineError."""
        self._queue.close()
        if self._group is not None:
            self._group.close()
