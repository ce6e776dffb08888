"""A gold file without its doubtful labels, which are kept apart in their lines."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from hpd_core.data.vocabulary import Place, dotted
from hpd_core.types import is_encodable
from pipelines.errors import UsageError
from pipelines.quality.doubtful_labels import DoubtfulLabel
from pipelines.quality.gold import GoldProduct


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
