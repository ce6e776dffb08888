"""Baseline `ar` of the paper: the same answer, written token by token by transformers' generate.

It reads exactly the prompt of `tree` up to the opening brace, and must write keys, structure and values itself. Values
are parsed by the same rule as everywhere (text/values.py). K_max bounds the answer as a whole, as if every value took
it; a single value may be longer.

Batches of `generate` need padding before a prompt: it is checked that a model's answers do not depend on it.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList

from hpd_core.config import EngineConfig
from hpd_core.decoding.memory import Limits, activation_bytes, fitted, free_bytes
from hpd_core.decoding.prompt import Prompt
from hpd_core.errors import EngineError, ModelError
from hpd_core.extractor import Extractor
from hpd_core.models import description, steering
from hpd_core.models.loading import Weights
from hpd_core.requests.calls import (
    ExtractionFuture,
    ExtractionMetrics,
    Refusal,
    answer_in_turn,
    refuse_constrained,
    refused_result,
    schema_of,
)
from hpd_core.requests.prompt_builder import PromptBuilder
from hpd_core.text.tokenization import SegmentTokenizer
from hpd_core.text.values import decoded_choice, parse_value
from hpd_core.types import CategorySchema, ErrorCode, Record, RecordResult, Value

_KEY = re.compile(r'\s*("(?:[^"\\]|\\.)*")\s*:')

_NOT_VERBATIM = "'ar' writes what it likes: set it to 'free', or decode with 'hpd'"


class AutoregressiveBaseline(Extractor):
    """Plain batched autoregressive extraction; used like `Engine`.

    Closed answers are written token by token as all others (`Value.choice` is "greedy"). Log-probabilities are not
    reported, and so no probabilities.
    """

    decoding = layout = "ar"
    layers = "transformers"

    def __init__(self, model: Any, tokenizer: Any, config: EngineConfig | None = None) -> None:
        """Take a loaded model, for itself; it gets an attention of transformers' own.

        `layout` and `prompt.keys` of `config` are ignored.

        Raises:
            ModelError: documents are to be read both ways, strings to be verbatim, or answers to be judged by a
                threshold, which transformers' generation does not do.
        """
        started = time.perf_counter()
        self.config = (config or EngineConfig()).autoregressive()
        if self.config.reads_both_ways:
            raise ModelError(
                "engine.document_attention is 'bidirectional', and 'ar' reads documents in the order of their text: "
                "set it to 'causal', or decode with 'hpd'"
            )
        if self.config.strings != "free":
            raise ModelError("engine.strings is 'verbatim', and " + _NOT_VERBATIM)
        if self.config.answer_threshold is not None:
            raise ModelError("engine.answer_threshold is for decoding with 'hpd': 'ar' has no probabilities")
        self._weights = Weights.of(model)
        steering.use_own_attention(model)
        self.attention = str(model.config._attn_implementation)
        self._segments = SegmentTokenizer(tokenizer)
        self._max_positions = description.max_positions(model.config)
        num_rows = description.num_embedded(model)
        self._builder = PromptBuilder(tokenizer, self.config, self._max_positions, num_rows=num_rows)
        self._end_ids = description.end_of_text_ids(model)
        size = model.get_output_embeddings().weight.shape[0]
        tokens = tokenizer.convert_ids_to_tokens(list(range(min(size, len(tokenizer)))))
        self._has_brace = torch.zeros(size, dtype=torch.bool)
        self._has_brace[: len(tokens)] = torch.tensor([token is not None and "}" in token for token in tokens])
        shape = description.cache_shape(model)
        self._pads = takes_padding(model)
        self._limits = fitted(self.config, shape, free_bytes(model.device), activation_bytes(model, shape))
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hpd-ar")
        self.load_seconds = time.perf_counter() - started

    @property
    def limits(self) -> Limits:
        """Limits: `max_prompts_per_cohort` prompts are generated together, or fewer if they need more cache."""
        return self._limits

    def submit(
        self,
        records: Sequence[Record],
        schemas: Mapping[str, CategorySchema],
        document_ids: Sequence[Sequence[int]] | None = None,
        wanted: Sequence[Collection[str] | None] | None = None,
    ) -> ExtractionFuture:
        """Submit as `Extractor.submit`; submissions run one after the other."""
        if wanted is not None:
            raise ValueError("the baseline writes whole answers: all attributes or none")

        refuse_constrained(schemas, "is for decoding 'hpd': " + _NOT_VERBATIM)

        def work(metrics: ExtractionMetrics) -> list[RecordResult]:
            try:
                return self._extract(records, schemas, document_ids, metrics)
            except Exception as error:
                raise EngineError(f"generation failed: {type(error).__name__}: {error}") from error

        return answer_in_turn(self._executor, work, "the baseline")

    def close(self) -> None:
        """Wait for queued submissions and end the thread."""
        self._executor.shutdown()

    def _extract(
        self,
        records: Sequence[Record],
        schemas: Mapping[str, CategorySchema],
        document_ids: Sequence[Sequence[int]] | None,
        metrics: ExtractionMetrics,
    ) -> list[RecordResult]:
        built, refusals = self._builder.build(records, schemas, document_ids)
        prepared: list[Prompt] = []
        for item in built:
            # Keys and values stand in a row here, so that the answer needs more positions than in `tree`.
            needed = len(_trunk(item)) + _answer_limit([item])
            if self._max_positions is None or needed <= self._max_positions:
                prepared.append(item)
            else:
                refusal = Refusal(
                    ErrorCode.TOO_LONG,
                    f"prompt and answer may take {needed} tokens, the model has {self._max_positions} positions",
                )
                refusals.update(dict.fromkeys(item.trunks, refusal))
        prepared.sort(key=lambda item: len(_trunk(item)))
        results: dict[int, RecordResult] = {}
        for batch in self._batches(prepared):
            started = time.perf_counter()
            answers = self._generate([_trunk(item) for item in batch], _answer_limit(batch), metrics)
            seconds = time.perf_counter() - started
            metrics.busy_seconds += seconds
            for item, (ids, ended) in zip(batch, answers, strict=True):
                category = records[item.trunks[0]].category
                values = self._values(schemas[category], records[item.trunks[0]].fields, ids, ended)
                # A padded batch costs each of its rows as much.
                share = seconds / len(batch) / len(item.trunks)
                for number in item.trunks:
                    results[number] = RecordResult(records[number].id, category, values, engine_seconds=share)
                layout = item.layout
                metrics.prefix_tokens_computed += layout.num_prefix_tokens
                metrics.document_tokens += len(_trunk(item)) - layout.num_prefix_tokens
        for number, refusal in refusals.items():
            record = records[number]
            results[number] = refused_result(record, refusal, schema_of(record, schemas))
        metrics.num_records, metrics.num_errors = len(records), len(refusals)
        return [results[number] for number in range(len(records))]

    def _batches(self, prepared: Sequence[Prompt]) -> Iterator[list[Prompt]]:
        """Yield batches in order, which is by length. If padding does not change the model's answers, each prompt is
        padded to the last one's length; else the prompts of a batch have one length.
        """
        batch: list[Prompt] = []
        longest_answer = 0
        for item in prepared:
            longest_answer = max(longest_answer, _answer_limit([item]))
            slots = (len(batch) + 1) * (len(_trunk(item)) + longest_answer)
            full = len(batch) == self._limits.max_prompts_per_cohort or slots > self._limits.max_cached_tokens
            is_longer = bool(batch) and len(_trunk(item)) > len(_trunk(batch[0]))
            if batch and (full or (is_longer and not self._pads)):
                yield batch
                batch, longest_answer = [], _answer_limit([item])
            batch.append(item)
        if batch:
            yield batch

    @torch.inference_mode()
    def _generate(
        self, prompts: list[list[int]], max_new_tokens: int, metrics: ExtractionMetrics
    ) -> list[tuple[list[int], bool]]:
        """Return greedy answers as ids, and whether each ended by itself. Prompts are padded on the left."""
        width = max(len(ids) for ids in prompts)
        pad = self._end_ids[0] if self._end_ids else 0
        ids = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        stop = _ObjectClosed(self._segments, self._has_brace, width)
        model = self._weights.model
        with _without_wishes(model):
            output = model.generate(
                input_ids=ids.to(model.device),
                attention_mask=mask.to(model.device),
                do_sample=False,
                max_new_tokens=max_new_tokens,
                pad_token_id=pad,
                eos_token_id=self._end_ids or None,
                stopping_criteria=StoppingCriteriaList([stop]),
            )
        generated = output[:, width:].cpu().numpy()
        metrics.num_steps += generated.shape[1]
        answers = []
        for row, closed_at in zip(generated, stop.closed_at(len(prompts)), strict=True):
            length, ended = self._length(row, closed_at)
            metrics.value_tokens += length
            answers.append((row[:length].tolist(), ended))
        return answers

    def _length(self, row: npt.NDArray[np.int64], closed_at: int | None) -> tuple[int, bool]:
        """Return the number of the answer's tokens, and whether it ended by itself."""
        end = next((index for index, token in enumerate(row) if token in self._end_ids), None)
        ends = [stop for stop in (closed_at, None if end is None else end + 1) if stop is not None]
        return (min(ends), True) if ends else (len(row), False)

    def _values(
        self, schema: CategorySchema, fields: Mapping[str, str], ids: list[int], ended: bool
    ) -> dict[str, Value]:
        """Parse the answer line by line; an attribute that the model left out is invalid, not absent.

        A model that must write the keys itself rarely writes them exactly ("shoe_type" for "Shoe type"). If no line has
        the exact key, one that is equal when folded counts, if it is equal to one attribute only.
        """
        lines = self._segments.decode([ids])[0].split("\n")
        attributes = {attribute.name: attribute for attribute in schema.attributes}
        counts = Counter(_fold(name) for name in attributes)
        folded = {_fold(name): name for name in attributes if counts[_fold(name)] == 1}
        literal: dict[str, Value] = {}
        similar: dict[str, Value] = {}
        for index, line in enumerate(lines):
            match = _KEY.match(line)
            key = _decode_key(match.group(1)) if match else None
            if match is None or key is None:
                continue
            found, name = (literal, key) if key in attributes else (similar, folded.get(_fold(key)))
            if name is None or name in found:
                continue
            raw = line[match.end() :]
            closed = ended or index < len(lines) - 1
            value = parse_value(attributes[name], raw, closed=closed, fields=fields)
            found[name] = replace(value, num_tokens=len(self._segments.encode_text([raw])[0]))
        values = similar | literal
        return {
            name: replace(values.get(name) or Value(None, (), "invalid"), choice=decoded_choice(attribute))
            for name, attribute in attributes.items()
        }


class _ObjectClosed(StoppingCriteria):  # type: ignore[misc]
    """Stopping criterion: a row ends when a line of its answer starts with the closing brace."""

    def __init__(self, segments: SegmentTokenizer, has_brace: Tensor, prompt_length: int) -> None:
        self._segments = segments
        self._has_brace = has_brace
        self._prompt_length = prompt_length
        self._closed: dict[int, int] = {}

    def __call__(self, input_ids: Tensor, scores: Tensor, **kwargs: Any) -> Tensor:
        """Return which rows are done, bool [batch]."""
        candidates = self._has_brace[input_ids[:, -1].cpu()].nonzero()[:, 0].tolist()
        for row in candidates:
            answer = input_ids[row, self._prompt_length :].tolist()
            if row not in self._closed and "\n}" in "\n" + self._segments.decode([answer])[0]:
                self._closed[row] = len(answer)
        done = torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
        done[list(self._closed)] = True
        return done

    def closed_at(self, num_rows: int) -> list[int | None]:
        """Return, per row, the answer's length when its object closed, or None."""
        return [self._closed.get(row) for row in range(num_rows)]


def _trunk(item: Prompt) -> list[int]:
    """Return the prompt up to the first key."""
    ids: list[int] = item.layout.trunk.tolist()
    return ids


def _answer_limit(batch: Sequence[Prompt]) -> int:
    """Return the number of tokens for every key, every value at K_max, and the closing brace."""
    layouts = [item.layout for item in batch]
    return max(layout.num_key_tokens + int(layout.max_new_tokens.sum()) for layout in layouts) + 8


def _fold(key: str) -> str:
    return " ".join(re.split(r"[\W_]+", key.casefold())).strip()


def _decode_key(text: str) -> str | None:
    try:
        key = json.loads(text, strict=False)
    except ValueError:
        return None
    return key if isinstance(key, str) else None


@contextmanager
def _without_wishes(model: Any) -> Iterator[None]:
    """Hide the checkpoint's own settings for `generate`, such as a penalty for words of the prompt: they are for chats,
    not for greedy decoding.

    transformers falls back to them for anything that it is not told. They are restored afterwards: they say how answers
    end, and are saved with the model.
    """
    wishes = model.generation_config
    model.generation_config = GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = wishes


def takes_padding(model: Any) -> bool:
    """Return whether padding changes no answer, as for nearly all models: masks hide it, and positions are counted
    after it.

    Llama 4 scales queries by the number of tokens before them. MiniMax M3 picks blocks counted from the first token.
    """
    modules = list(model.modules())
    scales = any(getattr(each, "attn_temperature_tuning", False) for each in modules)
    return not scales and not any(hasattr(each, "build_block_mask") for each in modules)
