"""What the benchmark decodes: a job's records, with the token length of every answer."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from hpd_core import CategorySchema, EngineConfig, Record, models
from hpd_core.layout import Layout
from hpd_core.prepare import PreparedPrompt, PromptBuilder
from hpd_core.prompt import render_answer_line
from hpd_core.tokenization import SegmentTokenizer
from pipelines.config import JobConfig
from pipelines.errors import UsageError
from pipelines.gold import GoldProduct, read_gold
from pipelines.records import read_records
from pipelines.schemas import load_schemas


@dataclasses.dataclass(frozen=True, slots=True)
class ForcedRecord:
    """One record and how long each of its answers is.

    Attributes:
        layout: of the layout `tree`.
        lengths: tokens of each value, the closing one included.
    """

    layout: Layout
    lengths: list[int]

    @property
    def trunk(self) -> list[int]:
        """The prompt up to the first key."""
        ids: list[int] = self.layout.token_ids[: self.layout.num_tokens - self.layout.num_key_tokens].tolist()
        return ids

    @property
    def branch_prompts(self) -> list[list[int]]:
        """A prompt for each attribute: the trunk and the attribute's key."""
        trunk, start, prompts = self.trunk, len(self.trunk), []
        for end in (self.layout.ends + 1).tolist():
            prompts.append(trunk + self.layout.token_ids[start:end].tolist())
            start = end
        return prompts

    @property
    def answer_length(self) -> int:
        """Tokens that plain autoregressive decoding writes: keys, values and the closing brace."""
        return self.layout.num_key_tokens + sum(self.lengths) + 1


class Workload:
    """A job's records, with the token length of every answer."""

    def __init__(self, tokenizer: Any, job: JobConfig, gold_path: str, limit: int | None) -> None:
        self.tokenizer = tokenizer
        self.schemas = load_schemas(job.schemas)
        gold = read_gold(gold_path)
        by_row = {product.row: product for product in gold if product.product_id is None}
        by_id = {product.product_id: product for product in gold if product.product_id is not None}
        self.records: list[Record] = []
        self.lengths: list[list[int]] = []
        segments = SegmentTokenizer(tokenizer)
        for row, record in read_records(job.input, self.schemas):
            if not isinstance(record, Record):
                continue
            product = by_id.get(record.id) or by_row.get(row)
            if product is not None and (limit is None or len(self.records) < limit):
                lines = _answer_lines(product, self.schemas[record.category])
                self.records.append(record)
                self.lengths.append([len(ids) for ids in segments.encode_text(lines)])
        if not self.records:
            raise UsageError(f"no record of the job has an answer in {gold_path}")

    def prompts(self, model_config: Any, config: EngineConfig, *, natural: bool = False) -> list[PreparedPrompt]:
        """All prompts of one layout, each value's length fixed; `natural`: bounded by K_max instead."""
        builder = PromptBuilder(self.tokenizer, config, models.max_positions(model_config))
        prepared, refusals = builder.build(self.records, self.schemas)
        if refusals:
            raise UsageError(f"record {min(refusals)} cannot be taken: {refusals[min(refusals)].message}")
        for item in prepared if not natural else ():
            lengths = np.array([self.lengths[slot.record][slot.attribute] for slot in item.slots])
            item.prompt.layout = dataclasses.replace(item.prompt.layout, max_new_tokens=lengths)
        return prepared

    def forced(self, model_config: Any) -> list[ForcedRecord]:
        """The same records for the rivals."""
        prepared = self.prompts(model_config, EngineConfig())
        return [ForcedRecord(item.prompt.layout, item.prompt.layout.max_new_tokens.tolist()) for item in prepared]


def _answer_lines(product: GoldProduct, schema: CategorySchema) -> list[str]:
    """What a model that knows the answers would write; an attribute without a label is null."""
    lines = []
    for attribute in schema.attributes:
        value = product.values.get(attribute.name)
        items = [forms[0] for forms in value.items] if value and not value.is_absent else None
        lines.append(render_answer_line(attribute, items))
    return lines
