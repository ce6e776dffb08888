"""Model, products and steps of a training. Workers and a dry run load the same."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from matplotlib.figure import Figure

from hpd_core import AutoregressiveBaseline, CategorySchema, DocumentTokenizer, Engine, Record, RecordResult
from hpd_core.extractor import Extractor
from hpd_core.models import description
from hpd_core.training.examples import ExampleBuilder
from hpd_core.training.loss import attach_training
from hpd_core.types import content_hash
from pipelines.config.finetuning import FinetuneConfig
from pipelines.errors import UsageError
from pipelines.normalising.stated_numbers import stated_numbers
from pipelines.quality.scoring import Answer, Counts, count, judge
from pipelines.training.labelled_products import LabelledProduct, is_held_out, load_products
from pipelines.training.step_planner import StepPlanner, TrainingStep
from pipelines.training.trained_weights import TrainedModel


@dataclass(frozen=True)
class Course:
    """Everything about a training that is known before its first step.

    Attributes:
        config: configuration adapted to this model (`as_trained`).
        validation: products that are not trained on.
        scored: validation products that are decoded in each validation.
        first_epoch: steps of the first epoch. Later epochs may have slightly more or fewer, because lengths are drawn.
        data_lines: lines of the data report, for the user.
    """

    config: FinetuneConfig
    trained: TrainedModel
    training: Sequence[LabelledProduct]
    validation: Sequence[LabelledProduct]
    scored: Sequence[LabelledProduct]
    planner: StepPlanner
    first_epoch: Sequence[TrainingStep]
    data_lines: Sequence[str]

    @classmethod
    def load(cls, config: FinetuneConfig, begins: Callable[[str], None]) -> Course:
        """Load the model and read the data.

        Args:
            begins: callback that is told which stage begins.

        Raises `HPDError` or `UsageError` for faults that the user can fix.
        """
        begins(f"loading the model {config.model}")
        trained = TrainedModel(config)
        config = trained.config
        begins("reading the data")
        builder = ExampleBuilder(
            trained.tokenizer, config.engine, config.layout, description.max_positions(trained.model.config)
        )
        products, report = load_products(config.datasets, config.labels, builder, config.validation.share)
        training, validation = split_products(products, config.validation.share)
        planner = StepPlanner(training, DocumentTokenizer(trained.tokenizer), builder, config)
        first_epoch = planner.epoch(0)
        if not first_epoch:
            raise UsageError(
                f"nothing to train on: of {len(training):,} products that are not held out, {planner.num_too_long:,} "
                f"are too long for the model's positions, and no other has an answer to teach"
            )
        scored = choose(validation, config.validation.max_products)
        return cls(config, trained, training, validation, scored, planner, first_epoch, tuple(report.lines()))

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps of the first epoch."""
        return len(self.first_epoch)

    @property
    def num_steps(self) -> int:
        """Number of steps of the whole training."""
        return max(1, round(self.config.optimizer.epochs * self.steps_per_epoch))

    @property
    def steps_between_evaluations(self) -> int:
        """Number of steps between two evaluations. The last step is always evaluated."""
        return max(1, round(self.steps_per_epoch / self.config.validation.evaluations_per_epoch))

    @property
    def num_evaluations(self) -> int:
        """Number of evaluations of the whole training, if it is not stopped early."""
        return -(-self.num_steps // self.steps_between_evaluations)

    @cached_property
    def held_out(self) -> str | None:
        """Hash of the products that are not trained on; None if all are."""
        fingerprints = sorted(product.fingerprint for product in self.validation)
        return content_hash(fingerprints) if fingerprints else None

    def describe(self, device: str) -> Iterator[str]:
        """Yield lines for the user that describe the training before its first step."""
        yield from self.data_lines
        count = sum(parameter.numel() for parameter in self.trained.parameters)
        yield (
            f"{len(self.training):,} products to train on, {len(self.validation):,} for validation "
            f"({len(self.scored)} of them decoded each time); {self.steps_per_epoch} steps an epoch; "
            f"{count / 1e6:.1f} million weights ({self.config.method}) on {self.config.scaling.num_workers} x {device}"
        )
        if self.scored and not self.trained.has_never_seen(self.held_out):
            yield (
                f"Note: {self.config.adapter or self.config.model} was validated on other products, or does not say "
                f"on which: if it learned from these data, it may know some of those that are held out now: their "
                f"scores are too good"
            )
        if self.planner.num_too_long:
            yield f"left out, too long for the model's positions: {self.planner.num_too_long:,} products"


class Meter:
    """Meter of loss, accuracy and speed between two progress lines."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.restart()

    def restart(self) -> None:
        """Reset the sums and the clock, so that validation time does not count as training."""
        self._started = time.monotonic()
        self._loss, self._right, self._targets, self._documents, self._norm = 0.0, 0, 0, 0, 0.0

    def add(self, step: TrainingStep, loss: float, num_right: int, norm: float) -> None:
        """Add this worker's part of one step."""
        self._loss += loss
        self._right += num_right
        self._norm = norm
        self._targets += sum(example.num_targets for pack in step.packs[0] for example in pack)
        self._documents += step.num_documents

    @property
    def is_due(self) -> bool:
        """Whether a progress line is due."""
        return time.monotonic() - self._started >= self._seconds

    def take(self) -> dict[str, float]:
        """Return the means since the last reset, and reset. The gradient norm is that of the last step."""
        seconds = time.monotonic() - self._started
        answer = {
            "loss": self._loss / max(1, self._targets),
            "accuracy": self._right / max(1, self._targets),
            "gradient_norm": self._norm,
            "documents_per_second": self._documents / seconds,
        }
        self.restart()
        return answer


def progress_line(entry: Mapping[str, Any], num_steps: int, seconds: float) -> str:
    """Format a log entry as a line. `seconds`: time of all steps so far."""
    start = f"step {entry['step']}/{num_steps} (epoch {entry['epoch']:.2f})"
    if "validation" in entry:
        score = entry["validation"]
        rate, refusals = score["hallucination_rate"], score["refusals"]
        refused = f"; {len(refusals)} of the products refused ({refusals[0]})" if refusals else ""
        return (
            f"{start}  validation: F1 {score['f1']:.3f}, precision {score['precision']:.3f}, recall "
            f"{score['recall']:.3f}, hallucination rate {'-' if rate is None else f'{rate:.3f}'}; "
            f"{score['num_answered']} of {score['num_unlabelled']} unlabelled attributes got a value{refused}"
        )
    left = (num_steps - entry["step"]) * seconds / max(1, entry["step"]) / 60
    return (
        f"{start}  loss {entry['loss']:.4f}, tokens right {entry['accuracy']:.1%}, lr {entry['lr']:.2e}, "
        f"{entry['documents_per_second']:.1f} products/s, {left:.0f} min left"
    )


def draw_curve(log: Sequence[Mapping[str, Any]]) -> bytes:
    """Draw an SVG of a run's log: loss (left axis) and F1 scores, if any (right axis), by epoch."""
    losses = [(entry["epoch"], entry["loss"]) for entry in log if "loss" in entry]
    scores = [(entry["epoch"], entry["validation"]["f1"]) for entry in log if "validation" in entry]
    figure = Figure(figsize=(8, 4), layout="constrained")
    left = figure.add_subplot()
    left.set_xlabel("epoch")
    left.set_ylabel("training loss per token")
    if losses:
        left.plot(*zip(*losses, strict=True), color="tab:blue", label="training loss")
        left.set_ylim(bottom=0)
    if scores:
        right = left.twinx()
        right.plot(*zip(*scores, strict=True), color="tab:orange", marker="o", label="validation F1")
        right.set_ylabel("validation F1")
        right.set_ylim(0, 1)
    figure.legend(loc="outside upper center", ncols=2)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


_VALIDATION_SECONDS_BETWEEN_LOOKS = 0.2
_PRODUCTS_AT_ONCE = 16  # of the baseline


@dataclass(frozen=True, slots=True)
class ValidationScore:
    """Scores over the validation products (see quality/scoring.py).

    `num_answered`: unlabelled attributes that got a value, which is suspicious, but not always wrong.
    `refusals`: reasons why the engine refused products, such as one that is too long.
    """

    precision: float
    recall: float
    f1: float
    hallucination_rate: float | None
    num_products: int
    num_unlabelled: int
    num_answered: int
    products_per_second: float
    refusals: tuple[str, ...]

    def as_metrics(self) -> dict[str, Any]:
        """Return plain data for the log."""
        return asdict(self)


def split_products(
    products: Sequence[LabelledProduct], share: float
) -> tuple[list[LabelledProduct], list[LabelledProduct]]:
    """Return (for training, for validation). Equal texts are on one side, and a product's side never changes."""
    held_out = [is_held_out(product.record, share) for product in products]
    training = [product for product, held in zip(products, held_out, strict=True) if not held]
    return training, [product for product, held in zip(products, held_out, strict=True) if held]


def choose(products: Sequence[LabelledProduct], limit: int) -> list[LabelledProduct]:
    """Return at most `limit` products, always the same ones, ordered by fingerprint."""
    return sorted(products, key=lambda product: product.fingerprint)[:limit]


def _extract(
    engine: Extractor, records: Sequence[Record], schemas: Mapping[str, CategorySchema], is_stopped: Callable[[], bool]
) -> list[RecordResult] | None:
    """Extract and return the results; None if stopped. Pending requests end when the engine is closed."""
    # The engine gives up at its next step what it was given; the baseline ends it.
    size = len(records) if isinstance(engine, Engine) else _PRODUCTS_AT_ONCE
    results: list[RecordResult] = []
    for start in range(0, len(records), size):
        future = engine.submit(records[start : start + size], schemas)
        while not future.done():
            if is_stopped():
                return None
            wait([future], _VALIDATION_SECONDS_BETWEEN_LOOKS)
        results += future.result()
    return results


def validate(
    model: Any,
    tokenizer: Any,
    products: Sequence[LabelledProduct],
    config: FinetuneConfig,
    is_stopped: Callable[[], bool] = lambda: False,
) -> ValidationScore | None:
    """Decode and score the products with the current model, and put it back into training mode.

    A product that the engine refuses, because it is too long, counts as wrong.

    Args:
        is_stopped: polled while decoding; once it returns true, decoding is aborted and None is returned.
    """
    model.eval()
    # Two datasets may call two categories alike: here a category's name is its schema's hash.
    schemas = {product.schema.hash: product.schema for product in products}
    records = [
        replace(each.record, category=each.schema.hash, numbers=stated_numbers(each.record, each.schema))
        for each in products
    ]
    started = time.perf_counter()
    counts = Counts()
    num_unlabelled = num_answered = 0
    layout = "stacked" if config.layout == "stacked" else "tree"
    engine_config = config.engine.model_copy(update={"layout": layout})
    kind = AutoregressiveBaseline if config.layout == "ar" else Engine
    try:
        with kind(model, tokenizer, engine_config) as engine:
            results = _extract(engine, records, schemas, is_stopped)
        if results is None:
            return None
        refusals = [result.error for result in results if result.error is not None]
        for product, result in zip(products, results, strict=True):
            answers = {name: Answer(value.status, value.items) for name, value in result.values.items()}
            missing = Answer("not_asked")
            asked = {attribute.name: attribute for attribute in product.schema.attributes}
            counts += count(
                judge(gold, answers.get(name, missing), attribute=asked.get(name), fields=product.record.fields)
                for name, gold in product.gold.values.items()
            )
            others = [answer for name, answer in answers.items() if name not in product.gold.values]
            num_unlabelled += len(others)
            num_answered += sum(answer.status == "value" for answer in others)
    finally:
        attach_training(model)
        model.train()
    seconds = time.perf_counter() - started
    rates = counts.rates
    return ValidationScore(
        rates.precision,
        rates.recall,
        rates.f1,
        counts.hallucination_rate,
        len(products),
        num_unlabelled,
        num_answered,
        len(products) / seconds,
        tuple(refusals),
    )
