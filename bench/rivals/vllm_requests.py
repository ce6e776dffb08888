"""The ways in which vLLM is asked, as plain data for the process that has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.workloads.workload import ForcedRecord, Workload, branch_prompts
from hpd_core import EngineConfig
from hpd_core.layout import Layout
from hpd_core.text.template import single_header
from hpd_core.text.tokenization import SegmentTokenizer
from pipelines.labelling.teacher_answers import json_schema as answer_schema


@dataclass(frozen=True, slots=True)
class Requests:
    """What is asked together. An answer is exactly as long as its limit, unless `stop_ids` or `schemas` end it.

    Attributes:
        prompts: token ids per request.
        limits: per request, the most tokens to write.
        stop_ids: tokens that end an answer, and stand in it as its last.
        schemas: JSON schemas.
        schema_of: per request, the number of the schema that its answer must fit; empty: none.
    """

    prompts: list[list[int]]
    limits: list[int]
    stop_ids: Sequence[int] = ()
    schemas: Sequence[dict[str, Any]] = ()
    schema_of: Sequence[int] = ()


def autoregressive(records: Sequence[ForcedRecord]) -> Requests:
    """One request for each record, which writes keys and values."""
    return Requests([record.trunk for record in records], [record.answer_length for record in records])


def fan_out(layouts: Sequence[Layout], stop_ids: Sequence[int] = ()) -> Requests:
    """One request for each attribute, a record's side by side, so that their prompt is found in the prefix cache."""
    return Requests(
        [prompt for layout in layouts for prompt in branch_prompts(layout)],
        [length for layout in layouts for length in layout.max_new_tokens.tolist()],
        stop_ids,
    )


def json_schema(workload: Workload, model_config: Any, config: EngineConfig) -> Requests:
    """One request for each record, whose answer must fit the category's JSON schema.

    Forced lengths and a schema exclude each other: the schema decides when an answer may end and when it must. So
    these answers end by themselves, at the latest when they are as long as all keys and the longest values (K_max)
    would be together. They are not the other contenders' answers, and may have more or fewer tokens.

    A schema's answer begins with the brace, which for everybody else stands at the prompt's end; it is taken from
    there. White space is free, as in vLLM's default, so that a model can write the lines that the prompt asks for.
    """
    opening = SegmentTokenizer(workload.tokenizer).encode_trusted(single_header())
    prepared = workload.prompts(model_config, config.model_copy(update={"layout": "tree"}), natural=True)
    categories = [workload.records[item.slots[0].trunk].category for item in prepared]
    numbers = {category: number for number, category in enumerate(dict.fromkeys(categories))}
    records = workload.unforced(prepared, config)
    return Requests(
        prompts=[record.trunk[: -len(opening)] for record in records],
        limits=[len(opening) + record.answer_length for record in records],
        schemas=[answer_schema(workload.schemas[category]) for category in numbers],
        schema_of=[numbers[category] for category in categories],
    )
