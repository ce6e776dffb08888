"""A gold file cut in two: products to train on, and products for the test that a fine-tuning is judged by."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence

from pipelines.config.yaml_dumping import dump_flow
from pipelines.errors import UsageError
from pipelines.quality.fingerprints import fingerprint
from pipelines.quality.gold import GoldProduct, parse_gold, read_lines
from pipelines.store.folders import Folder


def split_gold(gold: str, share: float, folder: Folder) -> list[str]:
    """Writes the three files; lines that say what is in them. Raises `UsageError` before anything is written."""
    if not 0 < share < 1:
        raise UsageError(f"--share {share:g}: a number between 0 and 1 is needed")
    lines = read_lines(gold)
    products = parse_gold(lines, gold)
    texts = [_fields(product, gold) for product in products]
    is_test = [is_for_test(product.category, fields, share) for product, fields in zip(products, texts, strict=True)]
    if len(set(is_test)) < 2:
        raise UsageError(f"{gold}: {len(products)} products are too few for --share {share:g}: one side has none")
    train = [lines[product.row] for product, test in zip(products, is_test, strict=True) if not test]
    test = [lines[product.row] for product, test in zip(products, is_test, strict=True) if test]
    names = list(dict.fromkeys(field for fields in texts for field in fields))
    id_column, category_column = (_free(column, names) for column in ("product_id", "category"))
    catalog = [
        json.dumps(
            {id_column: product.product_id, category_column: product.category, **fields}, ensure_ascii=False
        ).encode()
        for product, fields, test in zip(products, texts, is_test, strict=True)
        if test
    ]
    stem = gold.rsplit("/", 1)[-1].removesuffix(".jsonl")
    files = {f"{stem}.test-products.jsonl": catalog, f"{stem}.test.jsonl": test, f"{stem}.train.jsonl": train}
    _write(folder, {name: b"".join(line + b"\n" for line in content) for name, content in files.items()})
    source = {
        "path": folder.describe(f"{stem}.test-products.jsonl"),
        "id": id_column,
        "category": category_column,
        "fields": names,
        "html": "never",  # as they were read when they were labelled
    }
    return [
        f"{len(train):,} products to train on: {folder.describe(f'{stem}.train.jsonl')}",
        f"{len(test):,} for the test: {folder.describe(f'{stem}.test.jsonl')}",
        "A job runs over these with",
        f"  --set {shlex.quote(f'input={dump_flow(source)}')}",
    ]


def _write(folder: Folder, contents: Mapping[str, bytes]) -> None:
    folder.require()
    missing = []
    for name, data in contents.items():
        if not folder.exists(name):
            missing.append(name)
        elif folder.read(name) != data:
            raise UsageError(
                f"{folder.describe(name)} is there and holds other lines: corrected ones, or those of another gold "
                f"file or --share. Name another folder with --out, or move it away"
            )
    for name in missing:
        folder.write(name, contents[name])


def is_for_test(category: str, fields: Mapping[str, str], share: float) -> bool:
    """Whether a product is for the test; drawn by another hash than validation is (`labelled_products.is_held_out`)."""
    return fingerprint(category, fields, draw="test") < int(share * 2**64)


def _free(column: str, fields: Sequence[str]) -> str:
    """The column's name, changed where a field has it."""
    while column in fields:
        column = f"_{column}"
    return column


def _fields(product: GoldProduct, gold: str) -> Mapping[str, str]:
    if product.fields is None or product.product_id is None:
        raise UsageError(
            f"{product.place_in(gold)}: no 'product_id', or no 'input' with the product's texts, by which the split is "
            'drawn; write them into each line: "input": {"title": "..."}'
        )
    return product.fields
