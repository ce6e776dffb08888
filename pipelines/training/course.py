"""Model, products and steps of a training. Workers and a dry run load the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from hpd_core import DocumentTokenizer
from hpd_core.models import description
from hpd_core.training.examples import ExampleBuilder
from hpd_core.types import content_hash
from pipelines.config.finetuning import FinetuneConfig
from pipelines.errors import UsageError
from pipelines.training.labelled_products import LabelledProduct, load_products
from pipelines.training.step_planner import StepPlanner, TrainingStep
from pipelines.training.trained_weights import TrainedModel
from pipelines.training.validation import choose, split_products


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
        if self.planner.num_unfitting:
            yield (
                f"left out, longer than K_max in a variant's schema: {self.planner.num_unfitting:,} values of the "
                f"first epoch"
            )
