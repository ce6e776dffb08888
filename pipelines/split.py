"""Keeps products of a gold file apart for the test that a fine-tuning is judged by.

    python pipelines/split.py labels/catalog.jsonl
    python pipelines/split.py labels/catalog.jsonl --share 0.05 --out labels

Writes, beside the gold file or into --out, its lines as they are into NAME.train.jsonl and NAME.test.jsonl, and the
products of the latter as a catalog, NAME.test-products.jsonl, for a job to run over. Which product is for the test
depends on its text alone: texts that read alike are on one side, and whatever was for the test stays so when the gold
file grows. Exit code: 0 written (or there already), 2 usage (no gold file, files with other lines in their place).
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer

from pipelines.command import EXIT_CLEAN, run_command
from pipelines.errors import UsageError
from pipelines.folders import Folder
from pipelines.gold import GoldProduct, read_gold, read_lines
from pipelines.scoring import fold

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_ID, _CATEGORY = "product_id", "category"


@app.command(help=__doc__.split("\n\n", maxsplit=1)[0] if __doc__ else None)
def split(
    gold: Annotated[str, typer.Argument(help="a gold file with its products' texts: what pipelines/label.py writes")],
    share: Annotated[float, typer.Option(help="of the products that is for the test, between 0 and 1")] = 0.1,
    out: Annotated[str | None, typer.Option(help="folder for the three files; default: the gold file's own")] = None,
) -> None:
    """Splits the file and exits with the code."""

    def work() -> int:
        name = gold.rsplit("/", 1)[-1]
        written = split_gold(gold, share, Folder(out or gold.removesuffix(name) or "."), name.removesuffix(".jsonl"))
        for line in written:
            typer.echo(line)
        return EXIT_CLEAN

    run_command(work)


def split_gold(gold: str, share: float, folder: Folder, name: str) -> list[str]:
    """Writes the three files; lines that say what is in them. Raises `UsageError` before anything is written."""
    if not 0 < share < 1:
        raise UsageError(f"--share {share:g}: a number between 0 and 1 is needed")
    products = read_gold(gold)
    lines = read_lines(gold)
    texts = [_fields(product, gold) for product in products]
    is_test = [is_for_test(product.category, fields, share) for product, fields in zip(products, texts, strict=True)]
    train = [lines[product.row] for product, test in zip(products, is_test, strict=True) if not test]
    test = [lines[product.row] for product, test in zip(products, is_test, strict=True) if test]
    if not train or not test:
        raise UsageError(f"{gold}: {len(products)} products are too few for --share {share:g}: one side has none")
    rows = [
        {_ID: product.product_id, _CATEGORY: product.category, **fields}
        for product, fields, test in zip(products, texts, is_test, strict=True)
        if test
    ]
    contents = {
        f"{name}.train.jsonl": train,
        f"{name}.test.jsonl": test,
        f"{name}.test-products.jsonl": [json.dumps(row, ensure_ascii=False).encode() for row in rows],
    }
    folder.require()
    changed = {file: b"".join(line + b"\n" for line in content) for file, content in contents.items()}
    for file, data in list(changed.items()):
        if folder.exists(file):
            if folder.read(file) != data:
                raise UsageError(
                    f"{folder.describe(file)} is there and holds other lines, perhaps corrected ones: name another "
                    f"folder with --out, or move it away"
                )
            del changed[file]
    for file, data in changed.items():
        folder.write(file, data)
    names = list(dict.fromkeys(field for fields in texts for field in fields))
    catalog = folder.describe(f"{name}.test-products.jsonl")
    return [
        f"{len(train):,} products to train on: {folder.describe(f'{name}.train.jsonl')}",
        f"{len(test):,} for the test: {folder.describe(f'{name}.test.jsonl')}",
        "A job runs over these with",
        f"  --set 'input={{path: {catalog}, id: {_ID}, category: {_CATEGORY}, fields: [{', '.join(names)}]}}'",
    ]


def is_for_test(category: str, fields: Mapping[str, str], share: float) -> bool:
    """Whether a product is for the test; drawn by another hash than validation is (`training.data.is_held_out`)."""
    text = json.dumps(["test", category, [fold(text) for text in fields.values()]])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") < int(share * 2**64)


def _fields(product: GoldProduct, gold: str) -> Mapping[str, str]:
    if product.fields is None or product.product_id is None:
        raise UsageError(f"{product.place_in(gold)}: no 'product_id' and 'input' with the product's fields")
    if clash := {_ID, _CATEGORY}.intersection(product.fields):
        raise UsageError(
            f"{product.place_in(gold)}: 'input' > {min(clash)!r} is what a column of the catalog will be called; name "
            f"the field otherwise, in the labelling and in the job"
        )
    return product.fields


if __name__ == "__main__":
    app()
