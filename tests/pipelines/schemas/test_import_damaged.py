"""Sources with anything in place of one of their parts: a schema file that loads, or a refusal, never a crash."""

from __future__ import annotations

import copy
import json
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipelines.config.yaml_files import parse_yaml
from pipelines.errors import UsageError
from pipelines.schemas.importing import akeneo, json_schema, magento, shopify
from pipelines.schemas.importing.imported import Imported, each_once
from pipelines.schemas.importing.schema_text import schema_text
from pipelines.schemas.importing.sources import Document
from pipelines.schemas.schema_file import parse_schemas
from tests.pipelines.schemas import test_import_magento, test_import_shopify
from tests.pipelines.schemas.test_import_json_schema import SCHEMA

AKENEO = [
    {"code": "color", "type": "pim_catalog_simpleselect", "labels": {"en_US": "Color"}, "guidelines": {"en_US": "x"}},
    {"code": "width", "type": "pim_catalog_metric", "metric_family": "Length", "default_metric_unit": "METER"},
    {"code": "red", "attribute": "color", "sort_order": 1, "labels": {"en_US": "Red", "fr_FR": "Rouge"}},
    {"code": "bags", "attributes": ["color", "width"], "labels": {}},
]
MAGENTO = {
    "items": [{"attribute_set_id": 1, "attribute_set_name": "Bag", "attributes": test_import_magento.ATTRIBUTES}]
}
DATA = [
    yaml.load(textwrap.dedent(text), Loader=yaml.BaseLoader)
    for text in (test_import_shopify.CATEGORIES, test_import_shopify.ATTRIBUTES, test_import_shopify.VALUES)
]
Reader = Callable[[list[Document]], Imported]
SOURCES: dict[str, tuple[list[Any], Reader, Callable[[Document], bool]]] = {
    "published taxonomy": ([test_import_shopify.published()], shopify.read, shopify.recognises),
    "taxonomy's data": (DATA, shopify.read, shopify.recognises),
    "Akeneo": ([AKENEO], akeneo.read, akeneo.recognises),
    "Magento": ([MAGENTO], magento.read, magento.recognises),
    "JSON Schema": ([SCHEMA], json_schema.read, json_schema.recognises),
}
SCALARS = [None, True, 0, -1.5, "", " ", "x", "a > b", "gid://x", "\ud83d", "é\n\x00", "y" * 1500, "no", "1e3"]
HOLDERS = [[], {}, [1], [None], ["color"], [[]], {"a": 1}, {"id": None}, [{"name": "n"}]]
REFERENCES = [{"$ref": "#"}, {"$ref": "#/nowhere"}, {"$ref": 1}]
ODD = st.sampled_from([*SCALARS, *HOLDERS, *REFERENCES])


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every part of a document, as what holds it and under which key."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield value, key
        yield from places(inner)


@pytest.mark.parametrize("source", SOURCES)
@given(data=st.data())
def test_a_part_that_is_something_else(source: str, data: st.DataObject) -> None:
    contents, read, recognises = SOURCES[source]
    contents = copy.deepcopy(contents)
    found = list(places(contents))
    for _ in range(data.draw(st.integers(1, 2))):
        holder, key = found[data.draw(st.integers(0, len(found) - 1))]
        holder[key] = data.draw(ODD)
    documents = [Document(f"{number}.json", json.dumps(each)) for number, each in enumerate(contents)]
    documents = [document for document in documents if document.data is not None and recognises(document)]
    try:
        imported = each_once(read(documents)).finished() if documents else None
    except UsageError:
        return
    if imported is not None:
        text = schema_text(imported, "out.yaml")
        assert len(parse_schemas(parse_yaml(text, "out.yaml"), "out.yaml")) == len(imported.categories)
        text.encode()
