"""A workload: records, with the token length of every answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle, islice
from typing import Any, Self, TypeVar

import numpy as np

from hpd_core import CategorySchema, EngineConfig, Record
from hpd_core.decoding.prompt import Prompt, Slot
from hpd_core.layout import Layout
from hpd_core.models import description
from hpd_core.requests.prompt_builder import DocumentTokenizer, PromptBuilder
from hpd_core.text.template import render_answer_line
from hpd_core.text.tokenization import SegmentTokenizer
from pipelines.config.extraction import JobConfig
from pipelines.config.schema_file import load_schemas
from pipelines.errors import UsageError
from pipelines.quality.gold import GoldProduct, read_gold
from pipelines.training.labelled_products import read_records

T = TypeVar("T")
Answer = Sequence[str] | None
"""The items of one value; None is null."""


@dataclasses.dataclass(frozen=True, slots=True)
class ForcedRecord:
    """One record and how long each of its answers is.

    Attributes:
        layout: of the layout `tree`, each value's length fixed.
        answer_length: tokens that plain autoregressive decoding writes: whole keys, values and the closing brace.
    """

    layout: Layout
    answer_length: int

    @property
    def lengths(self) -> list[int]:
        """Return the tokens of each value that is decoded apart, the closing one included."""
        found: list[int] = self.layout.max_new_tokens.tolist()
        return found

    @property
    def trunk(self) -> list[int]:
        """Return the prompt up to the first key."""
        ids: list[int] = self.layout.trunk.tolist()
        return ids


def branch_prompts(layout: Layout) -> list[list[int]]:
    """Return a prompt for each attribute of a `tree`: the trunk and the attribute's key."""
    trunk: list[int] = layout.trunk.tolist()
    start, prompts = len(trunk), []
    for end in (layout.ends + 1).tolist():
        prompts.append(trunk + layout.token_ids[start:end].tolist())
        start = end
    return prompts


@dataclasses.dataclass(frozen=True)
class Workload:
    """Records, with the token length of every answer.

    Attributes:
        lengths: per record and attribute, tokens of the value's line, the closing one included.
        own_lengths: the same of those tokens that somebody writes who decodes values apart (hpd_core/text/endings.py).
        documents: per record, the token ids of its text.
    """

    tokenizer: Any
    schemas: Mapping[str, CategorySchema]
    records: Sequence[Record]
    lengths: Sequence[Sequence[int]]
    own_lengths: Sequence[Sequence[int]]
    documents: Sequence[Sequence[int]]

    @classmethod
    def of_answers(
        cls,
        tokenizer: Any,
        schemas: Mapping[str, CategorySchema],
        records: Sequence[Record],
        answers: Sequence[Sequence[Answer]],
    ) -> Self:
        """Make values as long as these answers (per record and attribute of its schema)."""
        segments = SegmentTokenizer(tokenizer)
        endings = segments.endings(len(tokenizer))
        lengths, own_lengths = [], []
        for record, items in zip(records, answers, strict=True):
            attributes = schemas[record.category].attributes
            pairs = zip(attributes, items, strict=True)
            encoded = segments.encode_text([render_answer_line(attribute, item) for attribute, item in pairs])
            lengths.append([len(ids) for ids in encoded])
            own_lengths.append(
                [
                    endings.length(ids, is_typed=not attribute.is_text)
                    for attribute, ids in zip(attributes, encoded, strict=True)
                ]
            )
        return cls(tokenizer, schemas, records, lengths, own_lengths, DocumentTokenizer(tokenizer).encode(records))

    @classmethod
    def of_gold(cls, tokenizer: Any, job: JobConfig, gold_path: str, limit: int | None) -> Self:
        """Take the job's records that a gold file has, each value as long as its answer there.

        Raises:
            UsageError: there is none.
        """
        schemas = load_schemas(job.schemas)
        gold = read_gold(gold_path, schemas)
        by_row = {product.row: product for product in gold if product.product_id is None}
        by_id = {product.product_id: product for product in gold if product.product_id is not None}
        records: list[Record] = []
        answers: list[list[Answer]] = []
        for number, product_id, record in read_records(job.input, schemas):
            if not isinstance(record, Record):
                continue
            product = by_id.get(product_id or "") or by_row.get(number)
            if product is not None and (limit is None or len(records) < limit):
                records.append(record)
                answers.append(_answers(product, schemas[record.category]))
        if not records:
            raise UsageError(f"no record of the job has an answer in {gold_path}")
        return cls.of_answers(tokenizer, schemas, records, answers)

    def prompts(self, model_config: Any, config: EngineConfig, *, natural: bool = False) -> list[Prompt]:
        """Return all prompts of one layout, each value's length fixed; `natural`: bounded by K_max instead."""
        builder = PromptBuilder(self.tokenizer, config, description.max_positions(model_config))
        prepared, refusals = builder.build(self.records, self.schemas, self.documents)
        if refusals:
            raise UsageError(f"record {min(refusals)} cannot be taken: {refusals[min(refusals)].message}")
        prepared = [each for item in prepared for each in _one_by_one(item)]
        for item in () if natural else prepared:
            of_values = self.own_lengths if config.layout == "tree" else self.lengths
            lengths = np.array([of_values[slot.trunk][slot.branch] for slot in item.slots])
            item.layout = dataclasses.replace(item.layout, max_new_tokens=lengths)
        return prepared

    def forced(self, model_config: Any, config: EngineConfig) -> list[ForcedRecord]:
        """Return the same records for the rivals, asked in the same words."""
        prepared = self.prompts(model_config, config.model_copy(update={"layout": "tree"}))
        return self._asked(prepared, config, [sum(self.lengths[item.slots[0].trunk]) for item in prepared])

    def unforced(self, prepared: Sequence[Prompt], config: EngineConfig) -> list[ForcedRecord]:
        """Return prompts of `tree` for the rivals, with answers as long as the prompts allow at most."""
        return self._asked(prepared, config, [int(item.layout.max_new_tokens.sum()) for item in prepared])

    def _asked(
        self, prepared: Sequence[Prompt], config: EngineConfig, num_value_tokens: Sequence[int]
    ) -> list[ForcedRecord]:
        builder = PromptBuilder(self.tokenizer, config.autoregressive(), None)
        records = []
        for item, count in zip(prepared, num_value_tokens, strict=True):
            keys = builder.category_tokens(self.schemas[self.records[item.slots[0].trunk].category]).branches
            length = sum(len(key.tokens) for key in keys) + count + 1
            records.append(ForcedRecord(item.layout, length))
        return records

    def refuse_unfit(self, model_config: Any, config: EngineConfig, contenders: Iterable[str]) -> None:
        """Find out before hours of work whether the layouts among the contenders take every record.

        Raises:
            UsageError: one of them does not.
        """
        for layout in {"stacked" if name.startswith("stacked") else "tree" for name in contenders}:
            self.prompts(model_config, config.model_copy(update={"layout": layout, "stack_size": 1}))

    # The same work, changed in one thing.

    def part(self, numbers: Sequence[int]) -> Self:
        """Keep only the records of these numbers."""
        return dataclasses.replace(
            self,
            records=[self.records[number] for number in numbers],
            lengths=[self.lengths[number] for number in numbers],
            own_lengths=[self.own_lengths[number] for number in numbers],
            documents=[self.documents[number] for number in numbers],
        )

    def with_attributes(self, count: int) -> Self:
        """Give every category so many attributes: the first ones, or all of them several times under new names."""
        schemas = {category: _with_attributes(schema, count) for category, schema in self.schemas.items()}
        return dataclasses.replace(
            self,
            schemas=schemas,
            lengths=[_stretched(lengths, count) for lengths in self.lengths],
            own_lengths=[_stretched(lengths, count) for lengths in self.own_lengths],
        )

    def with_values_of(self, num_tokens: int) -> Self:
        """Give every value so many tokens."""
        return self.with_lengths([[num_tokens] * len(lengths) for lengths in self.lengths])

    def with_lengths(self, lengths: Sequence[Sequence[int]]) -> Self:
        """Give values these lengths, whoever decodes them."""
        return dataclasses.replace(self, lengths=lengths, own_lengths=lengths)


def _one_by_one(prompt: Prompt) -> list[Prompt]:
    """Return a prompt for each record. The engine decodes identical texts once; rivals of given lengths do not."""
    twins = [[Slot(twin, slot.branch) for slot in prompt.slots] for twin in prompt.twins]
    return [Prompt(prompt.layout, prompt.prefix_key, slots) for slots in (prompt.slots, *twins)]


def _stretched(items: Sequence[T], count: int) -> list[T]:
    return list(islice(cycle(items), count))


def _with_attributes(schema: CategorySchema, count: int) -> CategorySchema:
    attributes = []
    for number, attribute in enumerate(islice(cycle(schema.attributes), count)):
        turn = number // len(schema.attributes)
        name = f"{attribute.name} ({turn + 1})" if turn else attribute.name
        attributes.append(attribute.model_copy(update={"name": name}))
    return CategorySchema(category=schema.category, attributes=tuple(attributes))


def _answers(product: GoldProduct, schema: CategorySchema) -> list[Answer]:
    """Return what a model that knows the answers would say; an attribute without a label is null."""
    values = [product.values.get(attribute.name) for attribute in schema.attributes]
    return [[forms[0] for forms in value.items] if value and not value.is_absent else None for value in values]
