"""Keeps products of a gold file apart for the test that a fine-tuning is judged by.

    python pipelines/split.py labels/catalog.jsonl
    python pipelines/split.py labels/catalog.jsonl --share 0.05 --out labels

Writes, beside the gold file or into --out, its lines as they are into NAME.train.jsonl and NAME.test.jsonl, and the
products of the latter as a catalog, NAME.test-products.jsonl, for a job to run over. Which product is for the test
depends on its category and text alone: what reads alike is on one side, and what was for the test stays so when the
gold file grows, unless its text changes. Exit code: 0 written (or there already), 1 not written (disk, rights), 2 usage
(no gold file, files with other lines in their place).
"""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer
import yaml

from pipelines.console.exit_codes import EXIT_CLEAN, run_command
from pipelines.errors import UsageError
from pipelines.quality.fingerprints import fingerprint
from pipelines.quality.gold import GoldProduct, parse_gold, read_lines
from pipelines.store.folders import Folder

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(help=__doc__.split("\n\n", maxsplit=1)[0] if __doc__ else None)
def split(
    gold: Annotated[str, typer.Argument(help="a gold file with its products' texts: what pipelines/label.py writes")],
    share: Annotated[float, typer.Option(help="of the products that is for the test, between 0 and 1")] = 0.1,
    out: Annotated[str | None, typer.Option(help="folder for the three files; default: the gold file's own")] = None,
) -> None:
    """Splits the file and exits with the code."""

    def work() -> int:
        folder = out or gold.removesuffix(gold.rsplit("/", 1)[-1]) or "."
        for line in split_gold(gold, share, Folder(folder)):
            typer.echo(line)
        return EXIT_CLEAN

    run_command(work)


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
    }
    text = yaml.safe_dump(source, default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf)
    return [
        f"{len(train):,} products to train on: {folder.describe(f'{stem}.train.jsonl')}",
        f"{len(test):,} for the test: {folder.describe(f'{stem}.test.jsonl')}",
        "A job runs over these with",
        f"  --set {shlex.quote(f'input={text.strip()}')}",
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
    """Whether a product is for the test; drawn by another hash than validation is (`training.data.is_held_out`)."""
    return fingerprint(category, fields, draw="test") < int(share * 2**64)


def _free(column: str, fields: Sequence[str]) -> str:
    """The column's name, changed where a field has it."""
    while column in fields:
        column = f"_{column}"
    return column


def _fields(product: GoldProduct, gold: str) -> Mapping[str, str]:
    if product.fields is None or product.product_id is None:
        raise UsageError(f"{product.place_in(gold)}: no 'product_id' and 'input' with the product's fields")
    return product.fields


if __name__ == "__main__":
    app()
