"""Implied values: the arithmetic of their choice, from completions that are proved elsewhere, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from pydantic import ValidationError

from hpd_core import Attribute, AutoregressiveBaseline, CategorySchema, Engine, OpenBranch, Record, Trunk
from hpd_core.text.template import Piece, render_frame, single_header
from hpd_core.text.value_kinds import OneOf

from .engines import config

LABELS = ("summer", "winter", "all year")
SEASON = Attribute.model_validate({"name": "Season", "type": "enum", "values": LABELS, "implied": True})
BRAND = Attribute(name="Brand")
SCHEMA = CategorySchema(category="Shoes", attributes=(BRAND, SEASON))
RECORDS = [
    Record(str(n), "Shoes", {"title": text}) for n, text in enumerate(["flip flops", "lined boots", "Velor red"])
]


def logprobs(engine: Engine, labels: tuple[str, ...], document: str) -> dict[str, float]:
    """Of each label after the document, in a prompt that lists them in this order."""
    season = Attribute.model_validate({"name": "Season", "type": "enum", "values": labels})
    schema = CategorySchema(category="Shoes", attributes=(BRAND, season))
    prefix, suffix = render_frame(engine.config.prompt, schema, engine._segments.tokenizer, stacked=False)
    trunk = Trunk(prefix, document, (*suffix, Piece(single_header(), True)))
    branches = [OpenBranch('"Season":', OneOf((label,))) for label in labels]
    (found,) = engine.complete([trunk], [branches]).result()
    pairs = zip(labels, found.branches, strict=True)
    return {label: each.num_tokens * (each.logprob_mean or math.nan) for label, each in pairs}


def test_what_the_text_adds_is_what_counts_in_both_orders(tiny_model_dir: Path) -> None:
    with Engine.from_pretrained(str(tiny_model_dir), config()) as engine:
        plain = CategorySchema(category="Shoes", attributes=(BRAND, SEASON.model_copy(update={"implied": False})))
        others = engine.extract(RECORDS, {"Shoes": plain})
        orders = LABELS, LABELS[::-1]
        empty = [logprobs(engine, order, "") for order in orders]
        for record, result, other in zip(RECORDS, engine.extract(RECORDS, {"Shoes": SCHEMA}), others, strict=True):
            own = [logprobs(engine, order, f"title: {record.fields['title']}") for order in orders]
            score = {label: sum(a[label] - b[label] for a, b in zip(own, empty, strict=True)) / 2 for label in LABELS}
            value = result.values["Season"]
            assert (value.text, value.status, value.choice) == (max(score, key=score.__getitem__), "value", "scored")
            assert value.probability == pytest.approx(
                1 / sum(math.exp(each - max(score.values())) for each in score.values()), abs=1e-4
            )
            assert value.margin == pytest.approx(max(score.values()) - sorted(score.values())[-2], abs=1e-3)
            assert result.values["Brand"] == other.values["Brand"]
        (alone,) = engine.submit(RECORDS[:1], {"Shoes": SCHEMA}, wanted=[["Brand"]]).result()
        assert [*alone.values] == ["Brand"]
        long = [Record("long", "Shoes", {"title": "word " * 5000}), Record("none", "Hats", {"title": "a"})]
        future = engine.submit([*long, RECORDS[0]], {"Shoes": SCHEMA})
        refused, unknown, taken = future.result()
        assert refused.error is not None
        assert unknown.error is not None
        assert taken.values["Season"].status == "value"
        assert (future.metrics.num_records, future.metrics.num_errors) == (3, 2)


def test_what_cannot_be_concluded_is_refused_by_name(tiny_model_dir: Path) -> None:
    for more in ({"type": "string", "values": None}, {"multiple": True}, {"values": [str(n) for n in range(65)]}):
        with pytest.raises(ValidationError, match="attribute 'Season' is 'implied', which is for an enum of one value"):
            Attribute.model_validate({**SEASON.model_dump(), **more})
    with (
        AutoregressiveBaseline.from_pretrained(str(tiny_model_dir), config()) as baseline,
        pytest.raises(ValueError, match="'Season' of category 'Shoes' is implied, which is for decoding 'hpd'"),
    ):
        baseline.extract(RECORDS, {"Shoes": SCHEMA})
