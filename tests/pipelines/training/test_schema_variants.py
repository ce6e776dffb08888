"""Schemas of training, varied; nothing here needs a model."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from adapters.recipe.schema_variants import draw_variant
from adapters.recipe.vary import app
from hpd_core import Attribute, CategorySchema, Unit
from hpd_core.models.loading import load_tokenizer
from hpd_core.training.examples import ExampleBuilder
from pipelines.training.labelled_products import load_products
from tests.pipelines.training.trainings import Training

SCHEMA = CategorySchema(
    category="Coffee",
    attributes=(Attribute(name="Roast"), Attribute(name="Weight"), Attribute(name="Flavour"), Attribute(name="Brand")),
)
LABELS: dict[str, Any] = {"Roast": ["dark"], "Weight": ["12 oz"], "Flavour": ["Mocha/Vanilla"], "Brand": None}
VALUES = {
    "Roast": Counter({"dark": 9, "light": 5, "medium": 4}),
    "Weight": Counter({"12 oz": 5, "2.5 oz": 3, "1 kg": 1}),
    "Flavour": Counter({"Mocha/Vanilla": 3}),
}


@given(st.integers(0, 2000))
def test_variants_ask_what_the_labels_answer(seed: int) -> None:
    variant = draw_variant(SCHEMA, VALUES, random.Random(seed))
    answers = variant.answers(LABELS)
    attributes = {attribute.name: attribute for attribute in variant.schema.attributes}
    asked = [item.attribute for item in (*variant.questions, *variant.specifications)]
    assert attributes.keys() == {attribute.name for attribute in asked}
    for attribute in asked:
        undescribed = attribute.model_copy(update={"description": None})
        assert attributes[attribute.name] in (attribute, undescribed)
    assert len(attributes) == len(asked)
    assert not attributes.keys() & {item.attribute.name for item in variant.unasked}
    for question in variant.questions:
        attribute, source = question.attribute, LABELS[question.source]
        answer = answers.get(attribute.name, "missing")
        if source is None:
            assert answer is None, "absent stays absent, however it is asked"
        elif attribute.type == "number":
            assert (attribute.unit, answer) == (Unit(want="oz"), ["12"])
        elif attribute.type == "boolean":
            assert answer == ["true"] if attribute.name == source[0] else answer in (["false"], "missing")
        elif attribute.type == "enum":
            assert answer == (source if source[0] in attribute.labels else "missing")
        elif attribute.multiple and question.source == "Flavour":
            assert answer == ["Mocha", "Vanilla"]
        else:
            assert answer == source


def test_varied_products_are_training_data(tmp_path: Path, tiny_model_dir: Path) -> None:
    """Read back whole what `vary` writes: each answer is one that its schema allows."""
    training = Training(tmp_path, tiny_model_dir)
    (tmp_path / "finetune.yaml").write_text(yaml.safe_dump(training.document))
    done = CliRunner().invoke(app, [str(tmp_path / "finetune.yaml"), str(tmp_path / "varied"), "--epochs", "2"])
    assert done.exit_code == 0, done.output
    varied = {"gold": str(tmp_path / "varied/train.jsonl"), "schemas": str(tmp_path / "varied/schemas.yaml")}
    config = training.config(datasets=[varied], labels={"unlabelled": "untaught"})
    tokenizer = load_tokenizer(config.model, config.engine)
    builder = ExampleBuilder(tokenizer, config.engine, config.layout, 4096)
    products, _ = load_products(config.datasets, config.labels, builder)
    assert len(products) == 160
    assert len({product.schema.hash for product in products}) > 2
