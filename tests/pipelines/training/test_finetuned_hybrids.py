"""Models with layers beside attention are fine-tuned like others: their adapters learn, and the engine loads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpd_core import CategorySchema, Engine, EngineConfig, Record
from pipelines.config.schema_file import load_schemas
from pipelines.training.course import Course, validate
from pipelines.training.trained_weights import TrainedModel
from pipelines.training.worker import Stepper
from tests.core.mixers.hybrids import MOST_USED, build_hybrid
from tests.pipelines.training.trainings import Training
from tests.tables import table
from tests.tiny_model import build_tokenizer


def training_of(family: str, folder: Path) -> Training:
    tokenizer = build_tokenizer()
    model = folder / family
    build_hybrid(family, vocab_size=len(tokenizer)).save_pretrained(model)
    tokenizer.save_pretrained(model)
    return Training(folder, model)


def records_of(training: Training, numbers: range) -> list[Record]:
    return [Record(str(n), "Shoes", training.line(n)["input"]) for n in numbers]


def schemas_of(training: Training) -> dict[str, CategorySchema]:
    return load_schemas(str(training.folder / "schemas.yaml"))


def answers_of(training: Training, adapter: Path, numbers: range) -> list[str | None]:
    """By the adapter as a job loads it."""
    config = EngineConfig(**training.document["engine"])
    with Engine.from_pretrained(training.document["model"], config, adapter=str(adapter)) as engine:
        results = engine.extract(records_of(training, numbers), schemas_of(training))
        assert engine.notes == [], "it was trained for this"
    return [result.values["Colour"].raw for result in results]


@pytest.mark.parametrize(
    "family", [MOST_USED[0], *(pytest.param(name, marks=pytest.mark.full) for name in MOST_USED[1:])]
)
@pytest.mark.parametrize(
    ("layout", "method", "checkpointing"),
    [
        ("tree", "lora", False),
        pytest.param("tree", "full", True, marks=pytest.mark.full),
        pytest.param("ar", "lora", False, marks=pytest.mark.full),
    ],
)
def test_it_learns(family: str, layout: str, method: str, checkpointing: bool, tmp_path: Path) -> None:
    """Without Ray: two epochs of one worker."""
    training = training_of(family, tmp_path)
    training.document["optimizer"] |= {"gradient_checkpointing": checkpointing, "epochs": 2}
    course = Course.load(training.config(layout=layout, method=method), lambda _: None)
    stepper = Stepper(course, 0, 1)
    losses = []
    for number in range(course.num_steps):
        step = course.first_epoch[number % course.steps_per_epoch]
        losses.append(stepper.take(step, number)[0] / step.num_targets)
    assert losses[-1] < losses[0] / 2
    score = validate(course.trained.model, course.trained.tokenizer, course.scored, course.config)
    assert score is not None
    assert score.refusals == ()
    stepper.take(course.first_epoch[0], 0)  # behind a validation, it can be trained on
    course.trained.save(tmp_path / "trained", None)
    if (layout, method) == ("tree", "lora"):
        numbers = range(200, 206)
        with Engine(course.trained.model, course.trained.tokenizer, course.config.engine) as engine:
            results = engine.extract(records_of(training, numbers), schemas_of(training))
        found = [result.values["Colour"].raw for result in results]
        assert answers_of(training, tmp_path / "trained", numbers) == found


@table("family", ["falcon_h1", "mamba2", "granitemoehybrid", "mamba", "jamba"])
def test_what_fused_kernels_multiply_themselves_gets_no_adapter(family: str, tmp_path: Path) -> None:
    training = training_of(family, tmp_path)
    names = [name for name, _ in TrainedModel(training.config()).model.named_modules() if name.endswith("lora_A")]
    assert any(".in_proj." in name for name in names)
    assert not any(".out_proj." in name or ".dt_proj." in name for name in names)
