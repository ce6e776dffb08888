"""Settings for few labels: keys that the user has not set are chosen by the number of labelled products."""

from __future__ import annotations

import json
import shlex
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from hpd_core import HPDError, Record
from hpd_core.models import description
from hpd_core.models.adapter_folder import AdapterRecord
from hpd_core.plain_data import Section
from pipelines.config.catalog_input import shipped_file
from pipelines.config.finetuning import FinetuneConfig, LoraSettings
from pipelines.config.schema_file import load_schemas
from pipelines.console.progress import format_seconds
from pipelines.errors import UsageError
from pipelines.store.folders import Folder
from pipelines.store.ledger import named_damage
from pipelines.training.course import Course, validate
from pipelines.training.labelled_products import DataReport, gold_records, is_held_out
from pipelines.training.step_planner import TrainingStep
from pipelines.training.worker import LOG_FILE, Stepper


class _Row(NamedTuple):
    """Settings for at most `at_most` labelled products."""

    at_most: int
    epochs: float
    validation_share: float


_ROWS = (
    _Row(at_most=49, epochs=6, validation_share=0.0),
    _Row(at_most=300, epochs=6, validation_share=0.1),
    _Row(at_most=1_000, epochs=4, validation_share=0.1),
)
_PATIENCE = 2
_LEARNING_RATES = {"a continued adapter": 5e-4, "a new adapter": 1e-3, "all weights": 2e-4}
_KEYS = (
    "adapter",
    "optimizer.epochs",
    "optimizer.learning_rate",
    "validation.share",
    "validation.patience",
)
_ADAPTER = "adapters/smollm2-generalist"


class SettingChoice(NamedTuple):
    """Setting for few labels. `key` is dotted."""

    key: str
    value: Any
    why: str

    def __str__(self) -> str:
        """Return it as an argument of `--set`, quoted for a shell."""
        return shlex.quote(f"{self.key}={self.value}")


def with_few_labels(config: FinetuneConfig, console: Console) -> FinetuneConfig:
    """Set the keys that the user has not set to values for few labels, and print them.

    With more than a thousand products return the configuration unchanged.

    Raises `UsageError` if the data cannot be read.
    """
    records = _read_records(config)
    found = choices(config, records)
    if found is None:
        console.print(
            f"{len(records):,} labelled products are not few: --few chooses nothing, what you have not set is as "
            f"without it. Keys to look at: {', '.join(_KEYS)}"
        )
        return config
    missing = [choice for choice in found if not is_set(config, choice.key)]
    for line in _lines(config, len(records), found, missing):
        console.print(line)
    for choice in missing:
        config = _with(config, choice.key.split("."), choice.value)
    return config


def choices(config: FinetuneConfig, records: Sequence[Record]) -> list[SettingChoice] | None:
    """Return the choices for these labelled products, also for keys that the user has set; None if they are not few."""
    count = len(records)
    row = next((row for row in _ROWS if count <= row.at_most), None)
    if row is None:
        return None
    found = []
    if _can_start_from_shipped(config):
        found.append(
            SettingChoice("adapter", shipped_file(_ADAPTER), "the shipped adapter as the start: it answers already")
        )
    start = "a continued adapter" if config.adapter or found else "a new adapter"
    if config.method == "full":
        start = "all weights"
    found += [
        SettingChoice("optimizer.epochs", row.epochs, "times that every product is seen"),
        SettingChoice("optimizer.learning_rate", _LEARNING_RATES[start], f"for {start}"),
    ]
    return found + _validation(config, records, row)


def _validation(config: FinetuneConfig, records: Sequence[Record], row: _Row) -> list[SettingChoice]:
    share = row.validation_share
    held_out = sum(is_held_out(record, share) for record in records)
    # By chance a share may hold out nothing, which is refused where a user asks for it.
    why = f"{held_out:,} products are not trained on, and decoded to choose the best weights"
    if not held_out:
        share, why = 0.0, "a share of so few is too few to choose by: all are trained on"
    found = [SettingChoice("validation.share", share, why)]
    if config.validation.share if is_set(config, "validation.share") else share:
        found.append(SettingChoice("validation.patience", _PATIENCE, "evaluations without a better F1, then it stops"))
    return found


def _can_start_from_shipped(config: FinetuneConfig) -> bool:
    """Return whether training can start from the shipped adapter.

    It must belong to this model and match its layout, keys and attention. The user must not have set `adapter`,
    `method: full` or LoRA settings other than the dropout.
    """
    if is_set(config, "adapter") or config.method != "lora":
        return False
    record = AdapterRecord.read(Path(shipped_file(_ADAPTER)))
    is_as_trained = record is not None and (
        config.model == record.base_model
        and config.layout == record.layout
        and config.engine.prompt.keys in ("auto", record.keys)
        and config.engine.document_attention in ("auto", record.document_attention)
    )
    return is_as_trained and config.lora.model_copy(update={"dropout": 0.0}) == LoraSettings()


def is_set(section: Section, key: str) -> bool:
    """Return whether the user has set this dotted key, in the file or by `--set`."""
    first, _, rest = key.partition(".")
    return first in section.model_fields_set and (not rest or is_set(getattr(section, first), rest))


def _with(section: Any, key: Sequence[str], value: Any) -> Any:
    first, *rest = key
    return section.model_copy(update={first: _with(getattr(section, first), rest, value) if rest else value})


def _value(section: Any, key: str) -> Any:
    for name in key.split("."):
        section = getattr(section, name)
    return section


def _lines(
    config: FinetuneConfig, count: int, found: Sequence[SettingChoice], missing: Sequence[SettingChoice]
) -> Iterator[str]:
    """Yield the choices with their reasons, then the keys that the user has set to other values."""
    yield f"{count:,} labelled products; what is not set is chosen for so few" + (":" if missing else ": nothing")
    width = max((len(str(choice)) for choice in missing), default=0)
    for choice in missing:
        yield f"  --set {choice!s:{width}}  {choice.why}"
    for choice in found:
        if choice not in missing and (own := _value(config, choice.key)) != choice.value:
            yield f"  {choice.key} stays {own}, as you have set it; here it would be {choice.value}"


def _read_records(config: FinetuneConfig) -> list[Record]:
    """Read the labelled products of all data sets. Raises `UsageError` if there are none."""
    report = DataReport()  # the driver, which reads all again to check it, tells what is left out
    records = [
        record
        for dataset in config.datasets
        for record, _ in gold_records(dataset, load_schemas(dataset.schemas), report)
    ]
    if not records:
        raise UsageError(report.nothing_to_train_on())
    return records


DAMAGED_WAY_OUT = "Put the file back, or train into another output"
_MEASURED_SECONDS = 20.0
_MEASURED_PRODUCTS = 8


@dataclass(frozen=True, slots=True)
class TrainingPace:
    """Speed of training and validation.

    Attributes:
        documents_per_second: documents trained per second by all workers together.
        products_per_second: products decoded per second in a validation; None if not measured.
        source: sentence on where these numbers come from.
    """

    documents_per_second: float
    products_per_second: float | None
    source: str


def forecast_lines(config: FinetuneConfig, output: Folder, begins: Callable[[str], None]) -> Iterator[str]:
    """Yield lines for the user on what the whole training takes. Loads the model; measuring steps are discarded.

    Raises `UsageError` if the training could not begin.
    """
    try:
        course = Course.load(config, begins)
        pace = earlier_pace(output) or _measured_pace(course, begins)
    except HPDError as error:
        raise UsageError(str(error)) from error
    forwarded, learned = (_mean([count(step) for step in course.first_epoch]) for count in (_forwarded, _learned))
    steps, documents = course.num_steps, _mean([step.num_documents for step in course.first_epoch])
    yield (
        f"{steps:,} steps ({course.steps_per_epoch:,} an epoch), {steps * documents:,.0f} products forwarded: "
        f"{steps * forwarded:,.0f} tokens, {steps * learned:,.0f} of them learned from"
    )
    training = steps * documents / pace.documents_per_second
    decoded = course.num_evaluations * len(course.scored)
    validating = decoded / pace.products_per_second if pace.products_per_second else 0.0
    yield (
        f"about {format_seconds(training + validating)}: {format_seconds(training)} training, "
        f"{format_seconds(validating)} for {course.num_evaluations} validations of {len(course.scored)} products; "
        f"loading comes before. {pace.source}"
    )


def earlier_pace(output: Folder) -> TrainingPace | None:
    """Return the median pace in this run's log, or None if it has not begun. Raises `UsageError` if it is damaged."""
    with named_damage(output, LOG_FILE, DAMAGED_WAY_OUT):
        try:
            entries = [json.loads(line) for line in output.read(LOG_FILE).splitlines()]
        except FileNotFoundError:
            return None
        trained = _known(entries, "documents_per_second")
        decoded = _known([entry["validation"] for entry in entries if "validation" in entry], "products_per_second")
    if not trained:
        return None
    source = f"By the pace of this run so far ({output.describe(LOG_FILE)})."
    return TrainingPace(statistics.median(trained), statistics.median(decoded) if decoded else None, source)


def _known(entries: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [entry[name] for entry in entries if entry.get(name)]


def _measured_pace(course: Course, begins: Callable[[str], None]) -> TrainingPace:
    """Measure the pace by real steps of this process, which does the part of one worker."""
    begins("taking a few steps, to measure")
    stepper = Stepper(course, rank=0, num_workers=1)
    first, *rest = course.first_epoch
    stepper.take(first, 0)  # it prepares kernels, which later steps find
    started, documents, count = time.perf_counter(), 0, 0
    for number, step in enumerate(rest or [first], start=1):
        stepper.take(step, number)
        documents, count = documents + step.num_documents, count + 1
        if time.perf_counter() - started > _MEASURED_SECONDS:
            break
    seconds = time.perf_counter() - started
    decoded = None
    if course.scored:
        begins("decoding a few validation products, to measure")
        score = validate(
            course.trained.model, course.trained.tokenizer, course.scored[:_MEASURED_PRODUCTS], course.config
        )
        decoded = score.products_per_second if score is not None else None
    workers = course.config.scaling.num_workers
    others = f", each of {workers} workers as fast" if workers > 1 else ""
    device = description.device_name(course.trained.model.device)
    source = f"Measured here, on {device}: {count} step{'s' if count > 1 else ''} in {seconds:.1f} s{others}."
    return TrainingPace(documents / seconds, decoded, source)


def _forwarded(step: TrainingStep) -> int:
    """Count the forwarded tokens of a step, with each pack's prefix once."""
    return sum(
        sum(example.num_own_tokens for example in pack) + pack[0].num_prefix_tokens
        for packs in step.packs
        for pack in packs
        if pack
    )


def _learned(step: TrainingStep) -> int:
    return step.num_targets


def _mean(counts: Sequence[int]) -> float:
    return sum(counts) / len(counts)
