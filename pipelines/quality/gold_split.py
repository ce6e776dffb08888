"""Split of a gold file in two: products to train on, and test products to judge a fine-tuning.

Variants of one product (sizes, colours) are on one side, because a test product whose sibling was trained on tests
little.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from hpd_core.plain_data import Place, dotted
from hpd_core.types import is_encodable
from pipelines.config.yaml_files import dump_flow
from pipelines.errors import UsageError
from pipelines.quality.doubtful_labels import DoubtfulLabel
from pipelines.quality.gold import GoldProduct, parse_gold, read_lines
from pipelines.quality.scoring import fold
from pipelines.store.folders import Folder

_SIZE = re.compile(r"\b(?:size|gr(?:ö|oe)(?:ß|ss)e|taille|talla|taglia)\s*\S+|\b(?:\d*x{0,4}[sl]|m|one size)\b")
_TITLE_BREAK = re.compile(r"[,(|/]|\s[-–]\s")
_LEAST_WORDS = 3
"""Number of words after which further parts of a title are ignored, because they tell variants apart."""


def split_gold(gold: str, share: float, folder: Folder, group: str | None = None) -> list[str]:
    """Write the three files, and return lines that say what is in them. Raises `UsageError` before it writes.

    Args:
        group: key of the line, or of its input, that variants of one product share; None: they have near-equal titles.
    """
    if not 0 < share < 1:
        raise UsageError(f"--split-share {share:g}: a number between 0 and 1 is needed")
    lines = read_lines(gold)
    products = parse_gold(lines, gold)
    texts = [_fields(product, gold) for product in products]
    families = defaultdict(list)
    for product, fields in zip(products, texts, strict=True):
        families[_family(product, fields, lines[product.row], group, gold)].append((product, fields))
    # One member decides for its family, by another draw, or larger families would more often be for the test.
    for_test: dict[int, bool] = {}
    for family in families.values():
        chosen, fields = min(family, key=lambda each: fingerprint(each[0].category, each[1], draw="family"))
        is_chosen = is_for_test(chosen.category, fields, share)
        for_test |= {product.row: is_chosen for product, _ in family}
    is_test = [for_test[product.row] for product in products]
    alike = (
        f"with one {group!r}"
        if group
        else "as far as their titles tell (--split-group names a column that variants share)"
    )
    num_siblings = sum(len(family) for family in families.values() if len(family) > 1)
    if len(set(is_test)) < 2:
        raise UsageError(f"{gold}: {len(products)} products are too few for --split-share {share:g}: one side has none")
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
        f"{num_siblings:,} have siblings, {alike}: they are on one side",
        "A job runs over these with",
        f"  --set {shlex.quote(f'input={dump_flow(source)}')}",
    ]


def _family(
    product: GoldProduct, fields: Mapping[str, str], line: bytes, group: str | None, gold: str
) -> tuple[str, str]:
    """Return the category and the text that the variants of one product share."""
    if group is not None:
        if (value := fields.get(group, json.loads(line).get(group))) in (None, ""):
            raise UsageError(f"{product.place_in(gold)}: no {group!r} (--split-group) in the line or its 'input'")
        return "", str(value)
    titles = [name for name in fields if name.casefold() in ("title", "name", "product_name", "product name")]
    title = fields[titles[0]] if titles else ""
    words: list[str] = []
    for part in _TITLE_BREAK.split(_SIZE.sub(" ", title.casefold())):
        if len(words) < _LEAST_WORDS:
            words += re.findall(r"\w+", part)
    return product.category, " ".join(words) or json.dumps(fields)


def _write(folder: Folder, contents: Mapping[str, bytes]) -> None:
    folder.require()
    missing = []
    for name, data in contents.items():
        if not folder.exists(name):
            missing.append(name)
        elif folder.read(name) != data:
            raise UsageError(
                f"{folder.describe(name)} is there and holds other lines: corrected ones, or those of another gold "
                f"file or --split-share. Name another folder with --split-out, or move it away"
            )
    for name in missing:
        folder.write(name, contents[name])


def is_for_test(category: str, fields: Mapping[str, str], share: float) -> bool:
    """Return whether a product is for the test; uses another hash than validation (`labelled_products.is_held_out`)."""
    return fingerprint(category, fields, draw="test") < int(share * 2**64)


def _free(column: str, fields: Sequence[str]) -> str:
    """Return the column's name, prefixed with underscores until no field has it."""
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


def fingerprint(category: str, fields: Mapping[str, str], draw: str | None = None) -> int:
    """Return a number below 2**64 from a product's category and folded text; `draw` changes it."""
    text = json.dumps([*([draw] if draw else []), category, [fold(text) for text in fields.values()]])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def without_doubtful(lines: Sequence[bytes], doubtful: Iterable[DoubtfulLabel], gold: str) -> list[bytes]:
    """Return the lines of the gold file without these labels.

    Each removed label is kept in its line under "doubtful", so that a training does not take it for absent. All else is
    unchanged, including line numbers, which identify products without ids.

    Raises `UsageError` for a line that cannot be written so.
    """
    by_row: defaultdict[int, list[DoubtfulLabel]] = defaultdict(list)
    for each in doubtful:
        by_row[each.product.row].append(each)
    return [
        _without(line, by_row[row], by_row[row][0].product.place_in(gold)) if row in by_row else line
        for row, line in enumerate(lines)
    ]


def _without(line: bytes, doubtful: Sequence[DoubtfulLabel], place: str) -> bytes:
    entry = json.loads(line)
    product = doubtful[0].product
    gone = {each.attribute for each in doubtful}
    called = gone | {name for name, asked in product.renamed.items() if asked in gone}
    if "target_scores" in entry:
        entry["target_scores"] = {name: each for name, each in entry["target_scores"].items() if name not in called}
    elif "attributes" in entry:
        entry["attributes"] = [each for each in entry["attributes"] if each["key"] not in called]
    else:
        entry["values"] = _left(entry["values"], (), called, _names_in_file(product))
        if product.corrected is not None:
            entry["review"]["corrected"] = [name for name in entry["review"].get("corrected", []) if name not in called]
    earlier = entry.get("doubtful", {})
    if not isinstance(earlier, dict):
        raise UsageError(f"{place}: 'doubtful' is no object, and is where labels would be put; call it something else")
    entry["doubtful"] = earlier | {each.attribute: _note(each) for each in doubtful}
    try:
        text = json.dumps(entry, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise UsageError(f"{place}: holds a number that JSON cannot say ({error}); write it as text") from error
    if not is_encodable(text):
        text = json.dumps(entry)  # half a surrogate pair, as it may be written in JSON
    return text.encode() + (b"\r" if line.endswith(b"\r") else b"")


def _names_in_file(product: GoldProduct) -> set[str]:
    """Return the names of the line's labels as in the file; for attributes of null objects, their own names."""
    written = {name for names in product.contradicted.values() for name in names}
    return written | {*product.values, *product.renamed}


def _left(values: Mapping[str, Any], outer: Place, gone: Set[str], labels: Set[str]) -> dict[str, Any]:
    """Return the labels of an object that remain without those in `gone`."""
    left: dict[str, Any] = {}
    for key, label in values.items():
        name = dotted((*outer, key))
        inside = {each for each in labels if each.startswith(f"{name}.")}
        if name in labels:
            if name not in gone:
                left[key] = label
        elif isinstance(label, dict):
            if inner := _left(label, (*outer, key), gone, labels):
                left[key] = inner
        elif not inside & gone:
            left[key] = label
        elif kept := sorted(inside - gone):
            # The object is null for all that is in it: for some of that it is no more.
            left[key] = dict.fromkeys(each.removeprefix(f"{name}.") for each in kept)
    return left


def _note(each: DoubtfulLabel) -> dict[str, Any]:
    label = [list(forms) for forms in each.gold.items]
    written = None if each.gold.is_absent else label[0] if len(label) == 1 else label
    return {"label": written, "answer": list(each.answer.items) or None, "sureness": each.sureness}
