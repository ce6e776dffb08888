"""Forecast of a training: steps, tokens and time, from a few real steps or from the run's own log."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpd_core import HPDError
from hpd_core.models import description
from pipelines.config.finetuning import FinetuneConfig
from pipelines.console.progress import format_seconds
from pipelines.errors import UsageError
from pipelines.store.damaged import named_damage
from pipelines.store.folders import Folder
from pipelines.training.course import Course
from pipelines.training.optimizer_step import Stepper
from pipelines.training.step_planner import TrainingStep
from pipelines.training.validation import validate
from pipelines.training.worker import LOG_FILE

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
