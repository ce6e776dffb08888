"""Planners of steps over labelled products, as a training makes them, and what their epochs hold."""

from __future__ import annotations

from typing import Any

from hpd_core import DocumentTokenizer
from hpd_core.training.examples import Example, ExampleBuilder
from pipelines.config.finetuning import FinetuneConfig
from pipelines.training.labelled_products import LabelledProduct
from pipelines.training.step_planner import StepPlanner
from tests.tiny_model import build_tokenizer

TOKENIZER = build_tokenizer()


def make_planner(products: list[LabelledProduct], max_positions: int = 4096, **options: Any) -> StepPlanner:
    document = {"datasets": [{"gold": "g", "schemas": "s"}], "output": "o", "engine": {"stack_size": 4}} | options
    config = FinetuneConfig.model_validate(document)
    builder = ExampleBuilder(TOKENIZER, config.engine, config.layout, max_positions)
    return StepPlanner(products, DocumentTokenizer(TOKENIZER), builder, config)


def examples_of(planner: StepPlanner, epoch: int) -> list[Example]:
    return [e for step in planner.epoch(epoch) for packs in step.packs for pack in packs for e in pack]
