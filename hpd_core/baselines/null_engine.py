"""Engine without a model: its answers are made up, at once. It shows the throughput of everything around an engine."""

from __future__ import annotations

import json
import math
import re
import time
import zlib
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Self, cast

from hpd_core.config import EngineConfig
from hpd_core.extractor import EngineDescription, Extractor, versions
from hpd_core.models import loading
from hpd_core.requests.calls import (
    ExtractionFuture,
    ExtractionMetrics,
    Refusal,
    answer_in_turn,
    asked_attributes,
    not_text,
    refused_result,
    schema_of,
)
from hpd_core.requests.prompt_builder import DocumentTokenizer
from hpd_core.text.near_names import near_names
from hpd_core.text.values import decoded_choice, parse_value
from hpd_core.types import Attribute, CategorySchema, ErrorCode, Record, RecordResult, Value

NOTE = "The answers are made up: decoding is 'made-up', which loads no model. They are only good to measure a job with."

_NULLS = 0.45  # share of answers that are null; the rest are values
_UPPER_CASE = 0.06  # of the texts: as no text has them, so that looking for them takes more than one try
_MAX_WORDS = 3
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
# `json.dumps` would make an encoder for every answer.
_encode = json.JSONEncoder(ensure_ascii=False).encode


class NullEngine(Extractor):
    """Stand-in used like `Engine`; every answer follows from a hash of the record and the attribute.

    A text or a number is cut out of the record. An enum's or boolean's value is one of those that it may have. Many are
    null. The answers are written as a model would write them and parsed by the same rule.
    """

    decoding = layout = attention = layers = "made-up"
    limits = None

    def __init__(self, model: Any, tokenizer: Any, config: EngineConfig | None = None) -> None:
        """Take a tokenizer; `model` is ignored and may be None."""
        started = time.perf_counter()
        self.config = config or EngineConfig()
        self._model_name = "model"
        self._documents = DocumentTokenizer(tokenizer)
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hpd-null")
        self.load_seconds = time.perf_counter() - started

    @classmethod
    def from_pretrained(cls, model: str, config: EngineConfig | None = None, adapter: str | None = None) -> Self:
        """Load only the tokenizer of `model`. An adapter is ignored. Raise ModelError as `Engine`."""
        config = config or EngineConfig()
        started = time.perf_counter()
        extractor = cls(None, loading.load_tokenizer(model, config), config)
        extractor._model_name = model
        extractor.load_seconds = time.perf_counter() - started
        return extractor

    @property
    def model_id(self) -> str:
        """Name that is not a model's, so that the answers are not mistaken for those of one."""
        return f"made-up (tokenizer of {self._model_name})"

    @property
    def notes(self) -> list[str]:
        """Note that the answers are made up."""
        return [NOTE]

    def describe(self) -> EngineDescription:
        """Describe as `Extractor.describe`; anything that belongs to a model is None."""
        known = {
            "model_id": self.model_id,
            "decoding": self.decoding,
            "layout": self.layout,
            "attention": self.attention,
            "layers": self.layers,
            "max_scored_tokens": self.max_scored_tokens,
            "overlap_steps": self.overlaps_steps,
            "tensor_parallel": 1,
            "device": "cpu",
            "prompt_hash": self.config.prompt.hash,
            "notes": self.notes,
            "versions": versions(),
        }
        return cast(EngineDescription, dict.fromkeys(EngineDescription.__annotations__) | known)

    def submit(
        self,
        records: Sequence[Record],
        schemas: Mapping[str, CategorySchema],
        document_ids: Sequence[Sequence[int]] | None = None,
        wanted: Sequence[Collection[str] | None] | None = None,
    ) -> ExtractionFuture:
        """Submit as `Extractor.submit`; submissions are answered one after the other, in a thread of the engine's
        own.
        """
        for name, given in (("document_ids", document_ids), ("wanted", wanted)):
            if given is not None and len(given) != len(records):
                raise ValueError(f"{len(given)} {name} for {len(records)} records")
        return answer_in_turn(
            self._executor,
            lambda metrics: self._answer(list(records), schemas, document_ids, wanted, metrics),
            "the engine",
        )

    def close(self) -> None:
        """End its thread."""
        self._executor.shutdown()

    def _answer(
        self,
        records: Sequence[Record],
        schemas: Mapping[str, CategorySchema],
        document_ids: Sequence[Sequence[int]] | None,
        wanted: Sequence[Collection[str] | None] | None,
        metrics: ExtractionMetrics,
    ) -> list[RecordResult]:
        started = time.perf_counter()
        results = []
        for number, record in enumerate(records):
            schema, problem = schema_of(record, schemas), not_text(record)
            if problem is None and schema is None:
                problem = Refusal(ErrorCode.NO_SCHEMA, near_names(schemas).missing(record.category))
            if problem is not None or schema is None:
                assert problem is not None
                results.append(refused_result(record, problem, schema))
                metrics.num_errors += 1
                continue
            attributes: Sequence[Attribute] = schema.attributes
            if wanted is not None and wanted[number] is not None:
                attributes = [attributes[index] for index in asked_attributes(schema, wanted[number])]
            values = _made_up(record, attributes)
            results.append(RecordResult(record.id, record.category, values))
            metrics.value_tokens += sum(value.num_tokens for value in values.values())
        if document_ids is None:
            document_ids = self._documents.encode([record for record in records if not_text(record) is None])
        metrics.num_records = len(records)
        metrics.document_tokens = sum(map(len, document_ids))
        metrics.num_steps = 1
        metrics.busy_seconds = time.perf_counter() - started
        return results


def _made_up(record: Record, attributes: Sequence[Attribute]) -> dict[str, Value]:
    texts = [text for text in record.fields.values() if text.strip()]
    seed = zlib.crc32("\n".join(texts).encode())
    answers = {}
    for attribute in attributes:
        draw = _Draw(zlib.crc32(attribute.name.encode(), seed))
        raw = f" {_literal(attribute, texts, draw)},\n"
        logprob = -draw.share()
        tokens = 1 + len(raw) // 4
        answers[attribute.name] = replace(
            parse_value(attribute, raw, closed=True, fields=record.fields),
            num_tokens=tokens,
            logprob_mean=logprob / tokens,
            logprob_min=logprob,
            choice="scored" if attribute.is_closed else decoded_choice(attribute),
            probability=math.exp(logprob),
            margin=-logprob if attribute.is_closed else None,
        )
    return answers


class _Draw:
    """Numbers that follow from a seed and look random."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def share(self) -> float:
        """Return a number in [0, 1)."""
        # The multiplier and the increment of Knuth's MMIX.
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._state >> 11) / 2**53

    def below(self, count: int) -> int:
        """Return an integer in [0, count)."""
        return int(self.share() * count)


def _literal(attribute: Attribute, texts: Sequence[str], draw: _Draw) -> str:
    """Return an answer as a model would write it: JSON."""
    if draw.share() < _NULLS or not texts:
        return "null"
    if attribute.multiple:
        return "[" + ", ".join(_item(attribute, texts, draw) for _ in range(1 + draw.below(_MAX_WORDS))) + "]"
    return _item(attribute, texts, draw)


def _item(attribute: Attribute, texts: Sequence[str], draw: _Draw) -> str:
    if labels := attribute.labels:
        return _encode(labels[draw.below(len(labels))])
    if attribute.type == "boolean":
        return ("true", "false")[draw.below(2)]
    text = texts[draw.below(len(texts))]
    if attribute.type == "number":
        numbers = _NUMBER.findall(text)
        return numbers[draw.below(len(numbers))] if numbers else "null"
    words = text.split()
    first = draw.below(len(words))
    # Within one line and without what a list is separated by, a stretch of the text stands there letter for letter.
    span = " ".join(words[first : first + 1 + draw.below(_MAX_WORDS)]).strip(".,;:")
    if draw.share() < _UPPER_CASE:
        span = span.upper()
    return _encode(span) if span else "null"
