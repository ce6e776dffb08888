"""The values that a model answers on sets with gold, each with whether it is right: decoded once, then read back.

ExtractGPT's sets by the settings of configs/extractgpt.yaml, the sample by those of configs/demo.yaml, with the engine
alone. Of a training set only the products that `hpd finetune` holds out are taken (5%).
"""

from __future__ import annotations

import glob
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from hpd_core import CategorySchema, Engine, Record
from pipelines.catalog.small_catalog import read_records
from pipelines.confidence.calibration_file import CalibratedModel
from pipelines.confidence.labelled_answer import LabelledAnswer
from pipelines.config.extraction import JobConfig
from pipelines.config.loading import load_config
from pipelines.config.shipped_files import shipped_file
from pipelines.errors import UsageError
from pipelines.job.answer_rows import answer_rows, find_places
from pipelines.normalising.normalise import normalisers
from pipelines.quality.gold import GoldProduct, read_gold
from pipelines.quality.labelled_answers import judged_answers
from pipelines.schemas.from_gold import schemas_from_gold
from pipelines.schemas.schema_file import load_schemas
from pipelines.training.labelled_products import is_held_out

SAMPLE = "sample"
_HELD_OUT = 0.05
_CONFIGS = Path(__file__).resolve().parent.parent / "configs"


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """A set's labelled values, and whose they are."""

    name: str
    model: CalibratedModel
    num_products: int
    answers: list[LabelledAnswer]


@dataclass(frozen=True, slots=True)
class _Source:
    """A set before it is decoded: its records with gold, by number."""

    config: JobConfig
    schemas: Mapping[str, CategorySchema]
    records: Mapping[int, Record]
    gold: Mapping[int, GoldProduct]


def labelled_set(name: str, data: Path, cache: Path, load: Any, limit: int | None = None) -> LabelledSet:
    """The set from its file in `cache`; decoded and written there if it is not yet.

    Args:
        name: `sample`, or such as `oa-mine.test` and `oa-mine.validation`.
        data: folder of ExtractGPT's files.
        load: gives the engine; called if there is something to decode.
        limit: only the first products.

    Raises `UsageError` or `RunError` for a file that is missing or unreadable.
    """
    path = cache / f"{name}.json"
    if not path.exists():
        source = _sample() if name == SAMPLE else _extractgpt(data, name)
        cache.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_decode(name, source, load(), limit)), encoding="utf-8")
    content = json.loads(path.read_text(encoding="utf-8"))
    answers = [LabelledAnswer.from_dict(each) for each in content["answers"]]
    return LabelledSet(name, CalibratedModel(**content["model"]), content["products"], answers)


def _sample() -> _Source:
    config = load_config(
        JobConfig, str(_CONFIGS / "demo.yaml"), [f"input.path={shipped_file('sample/products.parquet')}"]
    )
    schemas = load_schemas(shipped_file("sample/schemas.yaml"))
    rows = list(read_records(config.input, schemas))
    gold = {product.product_id: product for product in read_gold(shipped_file("sample/gold.jsonl"), schemas)}
    records = {row.number: row.record for row in rows if isinstance(row.record, Record)}
    labels = {row.number: gold[row.product_id] for row in rows if row.product_id in gold}
    return _Source(config, schemas, records, labels)


def _extractgpt(data: Path, name: str) -> _Source:
    stem, _, part = name.partition(".")
    if part not in ("test", "validation"):
        raise UsageError(f"there is no set {name!r}; name such as oa-mine.test, oa-mine.validation, {SAMPLE}")
    train = str(data / f"{stem}.train.jsonl")
    path = str(data / f"{stem}.test.jsonl") if part == "test" else train
    schemas = schemas_from_gold(read_gold(train))
    config = load_config(JobConfig, str(_CONFIGS / "extractgpt.yaml"), [f"input.path={json.dumps(glob.escape(path))}"])
    rows = {row.number: row.record for row in read_records(config.input, schemas)}
    records = {
        number: record
        for number, record in rows.items()
        if isinstance(record, Record) and (part == "test" or is_held_out(record, _HELD_OUT))
    }
    return _Source(config, schemas, records, {product.row: product for product in read_gold(path, schemas)})


def _decode(name: str, source: _Source, engine: Engine, limit: int | None) -> dict[str, Any]:
    records = dict(islice(sorted(source.records.items(), key=lambda pair: pair[1].category), limit))
    started = time.perf_counter()
    results = engine.extract(list(records.values()), source.schemas)
    seconds = time.perf_counter() - started
    answers: list[LabelledAnswer] = []
    for (number, record), result in zip(records.items(), results, strict=True):
        if result.error is None and number in source.gold:
            answers += _judged(f"{name}:{number}", record, result, source, number)
    return {
        "model": asdict(CalibratedModel.of(engine.describe())),
        "products": len(records),
        "seconds": seconds,
        "answers": [each.to_dict() for each in answers],
    }


def _judged(place: str, record: Record, result: Any, source: _Source, number: int) -> Iterator[LabelledAnswer]:
    schema = source.schemas[record.category]
    evidence = find_places(record, schema, result, source.config.input.html)
    normalising = normalisers(schema)
    answers = {
        attribute: [
            {"category": record.category, **row}
            for row in answer_rows(attribute, value, evidence.get(attribute, ()), normalising[attribute])
        ]
        for attribute, value in result.values.items()
    }
    return judged_answers(place, answers, {each.name: each for each in schema.attributes}, source.gold[number])
