"""Writer of people's verdicts as a gold file, for evaluation, calibration or training."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hpd_core import CategorySchema
from pipelines.errors import UsageError
from pipelines.job.run import Run
from pipelines.job.source_texts import Key, Wanted, read_texts
from pipelines.quality.gold import parse_gold
from pipelines.reviewing.candidates import draw_sample
from pipelines.store.corrections import Correction
from pipelines.store.folders import file_at
from pipelines.store.layer import Layer
from pipelines.store.verdicts import plain_number

_TEXTS_AT_ONCE = 500


@dataclass(slots=True)
class GoldFile:
    """Counts of what was written and what was left out.

    Attributes:
        products, answers: numbers of lines, and of answers in them. `corrected`: the model was wrong; `disputed`:
            reviewers disagree (the last verdict counts).
        without_text: lines without the product's text, because it can no longer be read; good only for evaluation.
        doubled_ids: products whose id is also on another line.
        refused: answers that the gold reader rejects.
        left_out: verdicts on other texts or answers than the run now has, or on rows that it lacks.
    """

    products: int = 0
    answers: int = 0
    corrected: int = 0
    disputed: int = 0
    without_text: int = 0
    doubled_ids: int = 0
    refused: int = 0
    left_out: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return plain data for JSON."""
        return asdict(self)


def write_gold(
    run: Run, schemas: Mapping[str, CategorySchema], path: str, sample: int | None = None, seed: int = 0
) -> GoldFile:
    """Write the gold file at `path`.

    Args:
        sample, seed: write only verdicts on the products of this draw, so that the file is unbiased.

    Raises `UsageError` if nothing was reviewed, or something cannot be read or written.
    """
    found = GoldFile()
    layer = Layer.open(run.folder, schemas)
    found.left_out = len(layer.left_out)
    by_product = _by_product(run, layer, sample, seed)
    if not by_product:
        raise UsageError(f"nothing of {run.folder.uri} is reviewed yet: hpd review {run.folder.uri}")
    lines = list(_lines(run, schemas, by_product, found))
    folder, name = file_at(path, "--gold")
    try:
        folder.write(name, b"".join(lines))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error}") from error
    return found


def _by_product(run: Run, layer: Layer, sample: int | None, seed: int) -> dict[Key, list[Correction]]:
    wanted: set[Key] | None = None
    if sample is not None:
        drawn = draw_sample(run.parts, sample, seed)
        wanted = {(each.key.source_file, each.key.source_row) for line in drawn.lines for each in line}
    found: dict[Key, list[Correction]] = defaultdict(list)
    for key, correction in sorted(layer.corrections.items()):
        place = key.source_file, key.source_row
        if wanted is None or place in wanted:
            found[place].append(correction)
    return found


def _lines(
    run: Run, schemas: Mapping[str, CategorySchema], by_product: Mapping[Key, list[Correction]], found: GoldFile
) -> Iterator[bytes]:
    seen: set[str] = set()
    places = list(by_product)
    for start in range(0, len(places), _TEXTS_AT_ONCE):
        here = places[start : start + _TEXTS_AT_ONCE]
        firsts = {place: by_product[place][0].verdict for place in here}
        wanted = [Wanted(*place, first.category, first.input_hash) for place, first in firsts.items()]
        texts, _ = read_texts(run.plan, run.input_settings, wanted)
        for place in here:
            name = firsts[place].product_id or f"{place[0]}:{place[1]}"
            if name in seen:
                found.doubled_ids += 1
                continue
            fields = {field: text.text for field, text in texts[place].items()} if place in texts else None
            line = _line(run, name, place, fields, by_product[place], schemas, found)
            if line is not None:
                seen.add(name)
                yield line


def _line(
    run: Run,
    name: str,
    place: Key,
    fields: Mapping[str, str] | None,
    answers: list[Correction],
    schemas: Mapping[str, CategorySchema],
    found: GoldFile,
) -> bytes | None:
    category = answers[0].verdict.category
    head: dict[str, Any] = {"product_id": name, "category": category}
    if fields is not None:
        head["input"] = fields
    kept = [each for each in answers if _is_readable(head, each, schemas)]
    found.refused += len(answers) - len(kept)
    if not kept:
        return None
    found.products += 1
    found.answers += len(kept)
    found.without_text += fields is None
    found.corrected += sum(each.is_corrected for each in kept)
    found.disputed += sum(each.is_disputed for each in kept)
    origin = {
        "run_id": run.plan.run_id,
        "source_file": place[0],
        "source_row": place[1],
        "reviewers": sorted({each.verdict.reviewer for each in kept}),
        "corrected": [each.key.attribute for each in kept if each.is_corrected],
    }
    values = {each.key.attribute: _forms(each, schemas) for each in kept}
    return json.dumps(head | {"values": values, "review": origin}, ensure_ascii=False).encode() + b"\n"


def _forms(answer: Correction, schemas: Mapping[str, CategorySchema]) -> list[list[str]] | list[str] | None:
    """Return null, the forms of one value, or the forms of each, as in a gold file. Numbers are as in the text."""
    if not answer.items:
        return None
    asked = schemas[answer.verdict.category].attributes if answer.verdict.category in schemas else ()
    is_number = any(each.name == answer.key.attribute and each.type == "number" for each in asked)
    items = [plain_number(item) if is_number else item for item in answer.items]
    return items if len(items) == 1 else [[item] for item in items]


def _is_readable(head: Mapping[str, Any], answer: Correction, schemas: Mapping[str, CategorySchema]) -> bool:
    """Return whether the gold reader accepts the answer. An accepted word for nothing is not readable."""
    try:
        line = json.dumps({**head, "values": {answer.key.attribute: _forms(answer, schemas)}}).encode()
        parse_gold([line], "review", [schemas])
    except UsageError:
        return False
    return True
