"""The section `cascade`: what it inherits, what it refuses, and what a resume may change of it."""

from __future__ import annotations

from typing import Any

from pipelines.config.extraction import JobConfig, result_config
from pipelines.config.loading import parse_config
from pipelines.quality.both_answers import larger_model


def parse(**changes: Any) -> JobConfig:
    document = {"input": {"path": "a", "fields": ["t"]}, "schemas": "s.yaml", "output": "o"} | changes
    return parse_config(JobConfig, document, "job.yaml")


CASCADE = {"model": "large", "adapter": "a", "below": 0.5}


def test_engine_and_actors_are_as_the_first_models_where_nothing_else_is_said() -> None:
    config = parse(
        engine={"max_value_tokens": 40, "dtype": "float32", "prompt": {"keys": "full"}},
        actors={"max": 4, "max_in_flight": 3},
        cascade=CASCADE | {"engine": {"dtype": "bfloat16"}, "actors": {"max": 2}},
    )
    larger = larger_model(config)
    assert (larger.model, larger.adapter, larger.cascade) == ("large", "a", None)
    assert (larger.engine.max_value_tokens, larger.engine.dtype, larger.engine.prompt.keys) == (40, "bfloat16", "full")
    assert (larger.actors.max, larger.actors.max_in_flight) == (2, 3)
    assert (config.engine.dtype, config.actors.max) == ("float32", 4)
    assert parse(cascade=CASCADE).cascade == parse(cascade=CASCADE | {"engine": {}, "actors": {}}).cascade
    # As it is stored in a manifest, and read back.
    assert JobConfig.model_validate(config.model_dump(mode="json")) == config


def test_a_resume_keeps_what_decides_results() -> None:
    assert "cascade" not in result_config(parse()), "runs from before there was one can be continued"
    before = result_config(parse(cascade=CASCADE))
    assert result_config(parse(cascade=CASCADE | {"actors": {"max": 9}})) == before
    assert result_config(parse(cascade=CASCADE | {"engine": {"max_tokens_per_step": 99}})) == before
    for change in ({"below": 0.6}, {"model": "other"}, {"adapter": None}, {"engine": {"max_value_tokens": 9}}):
        assert result_config(parse(cascade=CASCADE | change)) != before, change
