"""What is taken from a row: the forms, their refusals, and that plain ones are what they were."""

from __future__ import annotations

from typing import Any

from hpd_core import Attribute, CategorySchema, Record
from pipelines.catalog.rows import RowRefusal, to_record
from pipelines.config.catalog_input import InputConfig
from pipelines.config.extraction import JobConfig, config_hash, result_config

SCHEMAS = {"Bags": CategorySchema(category="Bags", attributes=(Attribute(name="Brand"),))}


def config(**given: Any) -> InputConfig:
    return InputConfig.model_validate({"path": "c.csv", "category": {"text": "Bags"}, "fields": ["title"]} | given)


def job(**given: Any) -> JobConfig:
    return JobConfig.model_validate(
        {"input": {"path": "c.csv", "id": "id", "fields": ["title"]} | given, "schemas": "s.yaml", "output": "o"}
    )


def test_a_plain_configuration_is_hashed_as_before() -> None:
    data = result_config(job())["input"]
    assert data == {
        "path": ["c.csv"],
        "format": "auto",
        "id": "id",
        "category": "category",
        "fields": [["title", "title"]],
        "list_separator": "\n",
        "html": "auto",
    }
    assert config_hash(job()) == config_hash(job(anonymous=True))
    assert len({config_hash(job(**each)) for each in ({}, {"encoding": "cp1252"}, {"language": {"text": "de"}})}) == 3
    assert config_hash(job(encoding="CP1252")) == config_hash(job(encoding="windows-1252"))


def test_texts_are_columns_joined_ones_and_fixed_ones() -> None:
    given = config(
        id={"join": ["sku", "lang"], "separator": "-"},
        language="lang",
        fields={"name": {"join": ["brand", "title", "size[0]"]}, "brand": "details.Brand", "shop": {"text": "Acme"}},
    )
    assert given.columns == ("sku", "lang", "brand", "title", "size[0]", "details.Brand")
    row = {"sku": 7, "lang": "de", "brand": "", "title": "Tasche", "size": ["M"], "details": {"Brand": "Bee"}}
    record = to_record(row, "1", given, SCHEMAS)
    assert isinstance(record, Record)
    assert (record.id, list(record.fields.items())) == (
        "7-de",
        [("language", "de"), ("name", "Tasche M"), ("brand", "Bee"), ("shop", "Acme")],
    )
    empty = to_record(row | {"sku": None}, "1", given, SCHEMAS)
    assert isinstance(empty, RowRefusal)
    assert empty.message == "column 'sku + lang' is empty"
    broken = to_record(row | {"details": "x"}, "1", given, SCHEMAS)
    assert isinstance(broken, RowRefusal)
    assert broken.message.startswith("column 'details.Brand': an object with 'Brand' is needed there")
    # What is the same in every row makes no product of a row without a text.
    nothing = to_record({"title": ""}, "1", config(language={"text": "German"}), SCHEMAS)
    assert isinstance(nothing, RowRefusal)
    assert nothing.code == "no_text"
