"""Writes varied training data: labelled products asked in other ways, retold, and with invented statements.

    python -m adapters.recipe.vary finetune.yaml OUT --epochs 2 --share 0.8 --seed 3

Reads the data sets of a fine-tuning and writes OUT/train.jsonl and OUT/schemas.yaml, in which each variant of a schema
is a category of its own: the prompt does not name the category. Train on them with `labels.unlabelled: untaught` and
one epoch.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from adapters.recipe.invented_texts import continue_text, may_hold_anything
from adapters.recipe.retold_texts import retell
from adapters.recipe.schema_variants import Variant, draw_variant
from hpd_core import CategorySchema, Record
from hpd_core.models.loading import load_tokenizer
from hpd_core.training.examples import ExampleBuilder
from pipelines.config.finetuning import FinetuneConfig
from pipelines.config.loading import load_config
from pipelines.normalising.stated_numbers import stated_numbers
from pipelines.quality.scoring import fold, words_pattern
from pipelines.training.labelled_products import Items, LabelledProduct, load_products

app = typer.Typer(add_completion=False)

PRODUCTS_PER_VARIANT = 24

Line = tuple[CategorySchema, Record, Mapping[str, Items]]
"""Schema that is asked, product as it is told, and its answers."""


def varied(products: Sequence[LabelledProduct], share: float, generator: random.Random) -> Iterator[Line]:
    """Vary the products of one schema, 24 at a time; `share` of these groups get a schema of their own."""
    values: dict[str, Counter[str]] = {}
    for product in products:
        for name, items in product.answers.items():
            values.setdefault(name, Counter()).update(items or ())
    known = words_pattern({fold(value) for counts in values.values() for value in counts})
    order = generator.sample(products, len(products))
    for start in range(0, len(order), PRODUCTS_PER_VARIANT):
        schema = order[0].schema
        variant = draw_variant(schema, values, generator) if generator.random() < share else None
        for product in order[start : start + PRODUCTS_PER_VARIANT]:
            labels = {**dict.fromkeys(product.assumed_absent), **product.answers}
            if variant is None:
                yield schema, product.record, labels
            else:
                record, told = retell(product.record, schema, labels, generator)
                yield variant.schema, *_asked(variant, record, told, known, generator)


def _asked(
    variant: Variant, record: Record, labels: Mapping[str, Items], known: re.Pattern[str], generator: random.Random
) -> tuple[Record, dict[str, Items]]:
    answers = variant.answers(labels)
    if not variant.specifications:
        return record, answers
    asked, unasked = variant.specifications, variant.unasked
    told, stated = continue_text(record, asked, unasked, known, generator, variant.language)
    if told is not record:
        # Known values are found in English alone.
        is_foreign = variant.language is not None
        open_names = {item.attribute.name for item in variant.questions if is_foreign or may_hold_anything(item.source)}
        answers = {name: items for name, items in answers.items() if items or name not in open_names}
    return told, answers | stated


@app.command()
def main(
    config: Annotated[Path, typer.Argument(help="YAML file of a fine-tuning")],
    out: Annotated[Path, typer.Argument(help="folder for train.jsonl and schemas.yaml")],
    epochs: Annotated[int, typer.Option(help="times that every product is told")] = 1,
    share: Annotated[float, typer.Option(help="share of the products that is varied")] = 0.8,
    seed: Annotated[int, typer.Option(help="seed of all that is drawn")] = 0,
) -> None:
    """Write the varied products and their schemas."""
    wanted = load_config(FinetuneConfig, str(config), [])
    builder = ExampleBuilder(load_tokenizer(wanted.model, wanted.engine), wanted.engine, wanted.layout, 1 << 20)
    products, _ = load_products(wanted.datasets, wanted.labels, builder)
    groups: dict[str, list[LabelledProduct]] = {}
    for product in products:
        groups.setdefault(product.schema.hash, []).append(product)
    schemas: dict[str, CategorySchema] = {}
    names: dict[str, str] = {}
    out.mkdir(parents=True, exist_ok=True)
    with (out / "train.jsonl").open("w", encoding="utf-8") as file:
        for epoch in range(epochs):
            generator = random.Random(f"{seed}/{epoch}")
            lines = [line for group in groups.values() for line in varied(group, share, generator)]
            for number, (schema, record, answers) in enumerate(lines):
                name = names.setdefault(schema.hash, f"{schema.category} {len(names)}")
                schemas[name] = schema.model_copy(update={"category": name})
                lists = {each.name for each in schema.attributes if each.multiple}
                stated = stated_numbers(record, schema)
                values: dict[str, Any] = {
                    key: items and ([[item] for item in items] if key in lists else list(items))
                    for key, items in answers.items()
                    # The engine chooses among stated numbers, so a converted label is not taught.
                    if not items or key not in stated or items[0] in stated[key]
                }
                line = {"product_id": f"{epoch}-{number}", "category": name, "values": values, "input": record.fields}
                file.write(json.dumps(line, ensure_ascii=False, default=dict) + "\n")
    plain = {name: each.model_dump(mode="json", exclude_defaults=True)["attributes"] for name, each in schemas.items()}
    (out / "schemas.yaml").write_text(yaml.safe_dump({"categories": plain}, allow_unicode=True), encoding="utf-8")


if __name__ == "__main__":
    app()
