#!/usr/bin/env python
"""Build the sample catalog from the sources in ``sample/source``.

Writes ``products.parquet``, ``schemas.yaml`` and ``gold.jsonl`` next to this file::

    python sample/build.py           # write the three files
    python sample/build.py --check   # exit 1 if the shipped files differ from the sources

The output depends on the sources alone. The Parquet file is compared by content in ``--check``,
because its bytes also hold the version of the library that wrote it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "source"
PARQUET_NAME = "products.parquet"
SCHEMAS_NAME = "schemas.yaml"
GOLD_NAME = "gold.jsonl"

ORDER_SEED = "hpd-sample-1"
TYPES = ("string", "number", "boolean", "enum")
ATTRIBUTE_KEYS = ("name", "description", "type", "values", "unit", "multiple")
PRODUCT_KEYS = frozenset({"id", "lang", "title", "bullets", "description", "gold", "printed"})
MEMBER_KEYS = frozenset({"label", "id"})
SCHEMAS_HEADER = "# Attributes of each category of the sample catalog. Written by sample/build.py.\n"

PARQUET_SCHEMA = pa.schema(
    [
        ("product_id", pa.string()),
        ("category", pa.string()),
        ("title", pa.string()),
        ("bullets", pa.list_(pa.string())),
        ("description", pa.string()),
    ]
)

GoldValue = list[str] | list[list[str]] | None


class SourceError(ValueError):
    """A source file that breaks a rule; the message names file, product and attribute."""


@dataclass(frozen=True)
class Product:
    """One product with its listing text and its gold answers.

    `printed` has, by attribute, numbers of the listing that are the gold in another unit.
    """

    product_id: str
    category: str
    lang: str
    title: str
    bullets: tuple[str, ...]
    description: str | None
    gold: dict[str, GoldValue]
    printed: dict[str, list[str]]

    @property
    def text(self) -> str:
        """Everything the listing says, one string."""
        return "\n".join([self.title, *self.bullets, self.description or ""])


@dataclass(frozen=True)
class Category:
    """One source file: a category, its attribute schema and its products."""

    name: str
    attributes: tuple[dict[str, Any], ...]
    products: tuple[Product, ...]


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML loader that refuses a mapping with the same key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.value in seen:
                line = key_node.start_mark.line + 1
                raise SourceError(f"line {line}: key {key_node.value!r} occurs twice")
            seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)


class _SchemaDumper(yaml.SafeDumper):
    """YAML dumper that indents lists and writes lists of plain values on one line."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _represent_list(dumper: yaml.SafeDumper, data: list[Any]) -> yaml.Node:
    flow = all(isinstance(item, str) for item in data)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=flow)


_SchemaDumper.add_representer(list, _represent_list)


def _where(*parts: str) -> str:
    return ": ".join(part for part in parts if part)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value == value.strip()


def _is_member(value: object) -> bool:
    if isinstance(value, dict):
        return set(value) == MEMBER_KEYS and all(map(_is_text, value.values()))
    return _is_text(value)


def _ids(attribute: dict[str, Any]) -> dict[str, str | None]:
    """The labels of an enum with the members' ids; None for a member that has none."""
    members = [each if isinstance(each, dict) else {"label": each, "id": None} for each in attribute["values"]]
    return {member["label"]: member["id"] for member in members}


def _load_attributes(file: str, raw: object) -> tuple[dict[str, Any], ...]:
    """Check the schema of one category and return it with its keys in a fixed order."""
    if not isinstance(raw, list) or not raw:
        raise SourceError(_where(file, "'attributes' must be a list that is not empty"))
    result: list[dict[str, Any]] = []
    names: set[str] = set()
    for position, entry in enumerate(raw, start=1):
        if not isinstance(entry, dict) or not _is_text(entry.get("name")):
            raise SourceError(_where(file, f"attribute {position}", "needs a 'name'"))
        name = entry["name"]
        where = _where(file, f"attribute {name!r}")
        if name in names:
            raise SourceError(_where(where, "defined twice"))
        names.add(name)
        unknown = set(entry) - set(ATTRIBUTE_KEYS)
        if unknown:
            raise SourceError(_where(where, f"unknown keys {sorted(unknown)}"))
        kind = entry.get("type", "string")
        if kind not in TYPES:
            raise SourceError(_where(where, f"type {kind!r} is not one of {', '.join(TYPES)}"))
        if (kind == "enum") != ("values" in entry):
            raise SourceError(_where(where, "'values' belongs to type enum, and only there"))
        if kind == "enum":
            values = entry["values"]
            if not isinstance(values, list) or not values or not all(_is_member(value) for value in values):
                raise SourceError(_where(where, "'values' must be a list of strings, or of mappings with label and id"))
            if len(set(_ids(entry))) != len(values):
                raise SourceError(_where(where, "'values' holds a value twice"))
        if "unit" in entry and kind != "number":
            raise SourceError(_where(where, "'unit' belongs to type number only"))
        for key in ("description", "unit"):
            if key in entry and not _is_text(entry[key]):
                raise SourceError(_where(where, f"{key!r} must be a string"))
        if entry.get("multiple", True) is not True:
            raise SourceError(_where(where, "'multiple' is either true or left out"))
        result.append({key: entry[key] for key in ATTRIBUTE_KEYS if key in entry})
    return tuple(result)


def _check_forms(where: str, forms: object, attribute: dict[str, Any]) -> None:
    """Check one list of accepted forms against the type of its attribute."""
    if not isinstance(forms, list) or not forms or not all(_is_text(form) for form in forms):
        raise SourceError(_where(where, "accepted forms must be a list of non-empty strings"))
    if len(set(forms)) != len(forms):
        raise SourceError(_where(where, "an accepted form occurs twice"))
    kind = attribute.get("type", "string")
    if kind == "number":
        for form in forms:
            try:
                finite = math.isfinite(float(form))
            except ValueError:
                finite = False
            if not finite:
                raise SourceError(_where(where, f"{form!r} is not a plain number"))
    elif kind == "enum" and (len(forms) != 1 or forms[0] not in _ids(attribute)):
        raise SourceError(_where(where, f"{forms} must be exactly one of {list(_ids(attribute))}"))
    elif kind == "boolean" and forms not in (["true"], ["false"]):
        raise SourceError(_where(where, f'{forms} must be ["true"] or ["false"]'))


def _check_gold(where: str, gold: object, attributes: Sequence[dict[str, Any]]) -> dict[str, GoldValue]:
    """Check the gold of one product and return it in schema order."""
    if not isinstance(gold, dict):
        raise SourceError(_where(where, "'gold' must be a mapping"))
    names = [attribute["name"] for attribute in attributes]
    for name in names:
        if name not in gold:
            raise SourceError(_where(where, f"attribute {name!r}", "missing from gold"))
    for name in gold:
        if name not in names:
            raise SourceError(_where(where, f"attribute {name!r}", "in gold but not in the schema"))
    for attribute in attributes:
        name = attribute["name"]
        value = gold[name]
        here = _where(where, f"attribute {name!r}")
        if value is None:
            continue
        if not attribute.get("multiple"):
            _check_forms(here, value, attribute)
            continue
        if not isinstance(value, list) or not value or not all(isinstance(item, list) for item in value):
            raise SourceError(_where(here, "a multiple attribute needs a list of lists"))
        for item in value:
            _check_forms(here, item, attribute)
    return {name: gold[name] for name in names}


def _check_printed(
    where: str, printed: object, gold: dict[str, GoldValue], attributes: Sequence[dict[str, Any]]
) -> dict[str, list[str]]:
    """Check the numbers of one product that are printed in another unit than the attribute's."""
    if not isinstance(printed, dict):
        raise SourceError(_where(where, "'printed' must be a mapping"))
    with_unit = {attribute["name"]: attribute for attribute in attributes if "unit" in attribute}
    for name, numbers in printed.items():
        here = _where(where, f"printed {name!r}")
        if name not in with_unit or gold[name] is None:
            raise SourceError(_where(here, "not a number with a unit that has gold"))
        _check_forms(here, numbers, with_unit[name])
    return printed


def _load_product(file: str, category: str, raw: object, attributes: Sequence[dict[str, Any]]) -> Product:
    if not isinstance(raw, dict) or not _is_text(raw.get("id")):
        raise SourceError(_where(file, "a product has no 'id' (quote an id made of digits)"))
    product_id = raw["id"]
    where = _where(file, f"product {product_id}")
    unknown = set(raw) - PRODUCT_KEYS
    if unknown:
        raise SourceError(_where(where, f"unknown keys {sorted(unknown)}"))
    if not _is_text(raw.get("title")):
        raise SourceError(_where(where, "needs a 'title'"))
    bullets = raw.get("bullets") or []
    if not isinstance(bullets, list) or not all(_is_text(bullet) for bullet in bullets):
        raise SourceError(_where(where, "'bullets' must be a list of strings"))
    description = raw.get("description") or None
    if description is not None and not _is_text(description):
        raise SourceError(_where(where, "'description' must be a string"))
    lang = raw.get("lang", "en")
    if not _is_text(lang):
        raise SourceError(_where(where, "'lang' must be a language code"))
    gold = _check_gold(where, raw.get("gold"), attributes)
    printed = _check_printed(where, raw.get("printed") or {}, gold, attributes)
    return Product(product_id, category, lang, raw["title"], tuple(bullets), description, gold, printed)


def load_sources(source: Path = SOURCE) -> list[Category]:
    """Read and validate every source file, in the order of the file names.

    Raises:
        SourceError: when a file breaks one of the rules in ``sample/README.md``.
    """
    categories: list[Category] = []
    ids: dict[str, str] = {}
    for path in sorted(source.glob("*.yaml")):
        try:
            raw = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)
        except (yaml.YAMLError, SourceError) as error:
            raise SourceError(_where(path.name, str(error))) from error
        if not isinstance(raw, dict) or set(raw) != {"category", "attributes", "products"}:
            raise SourceError(_where(path.name, "needs exactly 'category', 'attributes' and 'products'"))
        name = raw["category"]
        if not _is_text(name):
            raise SourceError(_where(path.name, "'category' must be a string"))
        if any(name == category.name for category in categories):
            raise SourceError(_where(path.name, f"category {name!r} has a second file"))
        attributes = _load_attributes(path.name, raw["attributes"])
        if not isinstance(raw["products"], list) or not raw["products"]:
            raise SourceError(_where(path.name, "'products' must be a list that is not empty"))
        products = tuple(_load_product(path.name, name, entry, attributes) for entry in raw["products"])
        for product in products:
            if product.product_id in ids:
                other = ids[product.product_id]
                raise SourceError(_where(path.name, f"product {product.product_id}", f"id also in {other}"))
            ids[product.product_id] = path.name
        categories.append(Category(name, attributes, products))
    if not categories:
        raise SourceError(f"no source files in {source.name}/")
    return categories


def ordered_products(categories: Sequence[Category]) -> list[Product]:
    """All products, the categories mixed, in an order that only the ids and the seed decide."""

    def key(product: Product) -> str:
        return hashlib.sha256(f"{ORDER_SEED}:{product.product_id}".encode()).hexdigest()

    return sorted((product for category in categories for product in category.products), key=key)


def render_schemas(categories: Sequence[Category]) -> str:
    """Text of ``schemas.yaml``."""
    data = {"categories": {category.name: list(category.attributes) for category in categories}}
    body = yaml.dump(
        data, Dumper=_SchemaDumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=110
    )
    return SCHEMAS_HEADER + str(body)


def render_gold(categories: Sequence[Category], products: Sequence[Product]) -> str:
    """Text of ``gold.jsonl``."""
    attributes = {category.name: category.attributes for category in categories}
    lines = []
    for product in products:
        row = {"product_id": product.product_id, "category": product.category, "values": product.gold}
        norm = normalised_gold(product, attributes[product.category])
        lines.append(json.dumps(row | {"norm": norm}, ensure_ascii=False) + "\n")
    return "".join(lines)


def normalised_gold(product: Product, attributes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What numbers and enums with ids are in the schema's units and ids; a list for an attribute of several values."""
    found: dict[str, Any] = {}
    for attribute in attributes:
        name = attribute["name"]
        value = product.gold[name]
        if value is None or not _has_norm(attribute):
            continue
        items: list[Any] = list(value) if attribute.get("multiple") else [value]
        norms = [_norm(attribute, forms[0], product.printed.get(name)) for forms in items]
        found[name] = norms if attribute.get("multiple") else norms[0]
    return found


def _has_norm(attribute: dict[str, Any]) -> bool:
    return attribute.get("type") == "number" or any(isinstance(each, dict) for each in attribute.get("values", ()))


def _norm(attribute: dict[str, Any], form: str, printed: list[str] | None) -> dict[str, Any]:
    if attribute["type"] == "enum":
        return {"id": _ids(attribute)[form]}
    unit = {"unit": attribute["unit"]} if "unit" in attribute else {}
    return {"num": float(form), **unit, **({"printed": printed} if printed else {})}


def product_rows(products: Sequence[Product]) -> list[dict[str, Any]]:
    """Rows of ``products.parquet``."""
    return [
        {
            "product_id": product.product_id,
            "category": product.category,
            "title": product.title,
            "bullets": list(product.bullets),
            "description": product.description,
        }
        for product in products
    ]


def build(target: Path = HERE) -> None:
    """Write the three shipped files into ``target``."""
    categories = load_sources()
    products = ordered_products(categories)
    table = pa.Table.from_pylist(product_rows(products), schema=PARQUET_SCHEMA)
    pq.write_table(table, target / PARQUET_NAME, compression="zstd")
    (target / SCHEMAS_NAME).write_text(render_schemas(categories), encoding="utf-8", newline="\n")
    (target / GOLD_NAME).write_text(render_gold(categories, products), encoding="utf-8", newline="\n")


def differences(target: Path = HERE) -> list[str]:
    """Names of the shipped files that are missing or differ from what the sources give."""
    categories = load_sources()
    products = ordered_products(categories)
    different: list[str] = []
    parquet = target / PARQUET_NAME
    if not parquet.is_file():
        different.append(PARQUET_NAME)
    else:
        table = pq.read_table(parquet)
        same_schema = table.schema.equals(PARQUET_SCHEMA)
        if not same_schema or table.to_pylist() != product_rows(products):
            different.append(PARQUET_NAME)
    for name, text in ((SCHEMAS_NAME, render_schemas(categories)), (GOLD_NAME, render_gold(categories, products))):
        path = target / name
        if not path.is_file() or path.read_bytes() != text.encode("utf-8"):
            different.append(name)
    return different


def summary(categories: Sequence[Category]) -> str:
    """One line with the counts that the README quotes."""
    products = [product for category in categories for product in category.products]
    cells = [value for product in products for value in product.gold.values()]
    nulls = sum(value is None for value in cells)
    languages: dict[str, int] = {}
    for product in products:
        languages[product.lang] = languages.get(product.lang, 0) + 1
    ranked = sorted(languages.items(), key=lambda item: (-item[1], item[0]))
    counts = f"{len(categories)} categories, {len(products)} products, {len(cells)} cells"
    by_language = ", ".join(f"{lang} {count}" for lang, count in ranked)
    return f"{counts}, {nulls} null ({nulls / len(cells):.1%}); {by_language}"


def main(argv: Sequence[str] | None = None) -> int:
    """Command line entry; returns the exit status."""
    parser = argparse.ArgumentParser(description="Build the sample catalog from sample/source.")
    help_check = "write nothing; exit 1 if the shipped files differ from the sources"
    parser.add_argument("--check", action="store_true", help=help_check)
    arguments = parser.parse_args(argv)
    try:
        if arguments.check:
            different = differences()
            for name in different:
                print(f"{name}: differs from the sources; run python sample/build.py", file=sys.stderr)
            return 1 if different else 0
        build()
        print(summary(load_sources()))
    except SourceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
