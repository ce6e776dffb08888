"""Trains a model to write several tokens of an answer at once: for the rivals of rivals/confident_tokens.py.

    python bench/train_confident.py DATA --from MODEL --out OUT --objective lexical-units --minutes 10
    python bench/train_confident.py DATA --from MODEL --out OUT --objective block-diffusion --minutes 20

DATA holds {oa-mine,ae-110k}.train.jsonl as published by ExtractGPT. MODEL is a folder of a model that was fine-tuned
for `ar` on the same titles (pipelines/finetune.py, layout=ar). All weights are trained, by the optimizer of
configs/finetune-extractgpt.yaml, in smaller steps; the learning rate follows the time that was computed, and ends where
it does. What the examples look like is said in rivals/confident_examples.py. OUT is a model's folder afterwards;
printed are the loss a learned token, and how many tokens were learned and forwarded.
"""

from __future__ import annotations

import copy
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
import typer

from bench.rivals.confident_examples import block_diffusion, lexical_units, unit_starts, with_all_labels
from bench.rivals.confident_tokens import mask_of, write_record
from hpd_core import HPDError
from hpd_core.training.examples import Example
from hpd_core.training.loss import attach_training, collate, forward_logits, forward_loss
from pipelines.config.finetuning import FinetuneConfig
from pipelines.config.loading import load_config
from pipelines.config.schema_file import dump_schemas
from pipelines.errors import UsageError
from pipelines.profiling.from_gold import schemas_from_gold
from pipelines.quality.gold import read_gold
from pipelines.training.course import Course
from pipelines.training.step_planner import TrainingStep
from pipelines.training.trained_weights import MasterWeights

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

Objective = Literal["lexical-units", "block-diffusion"]
MakePack = Callable[[Sequence[Example]], list[Example]]

_CONFIG = Path(__file__).resolve().parent.parent / "configs" / "finetune-extractgpt.yaml"
_COURSE_STEPS = 1000  # of the learning rate, over the whole time
_PADDING_MULTIPLE = 128  # few shapes, for which libraries prepare kernels
_DOCUMENTS_PER_STEP = 4  # many small steps: these trainings are short
_TOKENS_PER_PACK = 768  # of the examples of `ar`; masks make two to four times as many of them


class UnitPacks:
    """Examples of lexical units, as the model that training begins with finds them."""

    def __init__(self, model: Any, num_masks: int, mask_id: int, alpha: float, seed: int) -> None:
        self._teacher = copy.deepcopy(model).eval()
        attach_training(self._teacher)
        self._num_masks, self._mask_id, self._alpha = num_masks, mask_id, alpha
        self._generator = random.Random(seed)
        self._shares: dict[bytes, list[float]] = {}  # an example's tokens are the same in every epoch

    def __call__(self, pack: Sequence[Example]) -> list[Example]:
        """The pack's examples with masks."""
        new = [example for example in pack if example.filled.token_ids.tobytes() not in self._shares]
        if new:
            self._read(new)
        return [lexical_units(example, self._starts(example), self._num_masks, self._mask_id) for example in pack]

    def _starts(self, example: Example) -> list[int]:
        """Half of the units, drawn anew each time: an epoch takes less time."""
        shares = self._shares[example.filled.token_ids.tobytes()]
        starts = unit_starts(shares, self._alpha, self._num_masks + 1, self._generator)
        return [start for start in starts if self._generator.random() < 0.5]

    @torch.inference_mode()
    def _read(self, examples: Sequence[Example]) -> None:
        """What probability the teacher gives each token of the answers."""
        asked = [with_all_labels(example) for example in examples]
        batch = collate(asked, self._teacher.device, _PADDING_MULTIPLE)
        logits = forward_logits(self._teacher, batch).float()
        found = logits.log_softmax(dim=-1).gather(1, batch.targets.clamp(min=0)[:, None])[:, 0].exp().tolist()
        begin = 0
        for example in asked:
            self._shares[example.filled.token_ids.tobytes()] = found[begin : begin + example.num_targets]
            begin += example.num_targets


class BlockPacks:
    """Examples of block diffusion, drawn anew each time."""

    def __init__(self, size: int, mask_id: int, seed: int) -> None:
        self._size, self._mask_id, self._generator = size, mask_id, random.Random(seed)

    def __call__(self, pack: Sequence[Example]) -> list[Example]:
        """The pack's examples with masks."""
        return [block_diffusion(example, self._size, self._mask_id, self._generator) for example in pack]


class Training:
    """A model, its optimizer, and what was trained so far."""

    def __init__(self, course: Course, make_pack: MakePack) -> None:
        self._model, self._make_pack = course.trained.model, make_pack
        attach_training(self._model)
        self._weights = MasterWeights(course.trained.parameters, course.config.optimizer, _COURSE_STEPS)
        self.num_targets = self.num_tokens = self.num_steps = 0

    def take(self, step: TrainingStep, share: float) -> float:
        """One step at this share of the whole training; the loss a learned token."""
        packs = [self._make_pack(pack) for pack in step.packs[0]]
        num_targets = sum(example.num_targets for pack in packs for example in pack)
        total = 0.0
        for pack in packs:
            batch = collate(pack, self._model.device, _PADDING_MULTIPLE)
            loss, _ = forward_loss(self._model, batch)
            (loss / num_targets).backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
            self.num_tokens += batch.num_tokens
        self._weights.step(int(share * _COURSE_STEPS))
        self.num_targets += num_targets
        self.num_steps += 1
        return total / num_targets


def load_course(data: Path, name: str, model: str, out: Path, seed: int, settings: Sequence[str] = ()) -> Course:
    """The titles of one set, their steps, and the model. Raises `HPDError` or `UsageError`."""
    gold, schemas = data / f"{name}.train.jsonl", out / f"{name}.yaml"
    schemas.write_text(dump_schemas(schemas_from_gold(read_gold(str(gold)))), encoding="utf-8")
    dataset = {"gold": str(gold), "schemas": str(schemas), "input": {"path": str(gold), "fields": {"title": "input"}}}
    wanted = [f"datasets={json.dumps([dataset])}", "layout=ar", f"model={model}", f"output={out}", f"seed={seed}"]
    wanted.append(f"optimizer.max_tokens_per_pack={_TOKENS_PER_PACK}")
    wanted.append(f"optimizer.documents_per_step={_DOCUMENTS_PER_STEP}")
    config = load_config(FinetuneConfig, str(_CONFIG), [*wanted, *settings])
    return Course.load(config, lambda what: typer.echo(what, err=True))


@app.command()
def main(
    data: Annotated[Path, typer.Argument(help="Folder with the set's .train.jsonl.")],
    objective: Annotated[Objective, typer.Option(help="What is learned.")],
    start: Annotated[str, typer.Option("--from", metavar="MODEL", help="A model that was fine-tuned for 'ar'.")],
    out: Annotated[Path, typer.Option(help="Folder of the trained model.")],
    minutes: Annotated[float, typer.Option(min=0, help="Of training, which waiting for a core is no part of.")],
    name: Annotated[str, typer.Option("--name", help="Of which data set.")] = "oa-mine",
    masks: Annotated[int, typer.Option(min=1, help="Behind what is certain; of block diffusion, a block.")] = 8,
    alpha: Annotated[float, typer.Option(min=0, max=1, help="Probability of a lexical unit's tokens.")] = 0.9,
    rate: Annotated[float, typer.Option(help="Learning rate at its highest.")] = 2e-4,
    seed: Annotated[int, typer.Option(help="Of order, masks and units.")] = 0,
) -> None:
    """Train a model to write several tokens of an answer at once."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        course = load_course(data, name, start, out, seed, [f"optimizer.learning_rate={rate}"])
        mask_id = mask_of(course.trained.tokenizer)
    except (HPDError, UsageError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from None
    make_pack: MakePack = BlockPacks(masks, mask_id, seed)
    if objective == "lexical-units":
        make_pack = UnitPacks(course.trained.model, masks, mask_id, alpha, seed)
    training = Training(course, make_pack)
    epochs = _train(training, course, 60 * minutes)
    course.trained.save(out, course.held_out)
    write_record(out, objective, masks, mask_id)
    typer.echo(
        f"{objective}: {minutes:g} min, {epochs:.1f} epochs, {training.num_steps} steps; "
        f"{training.num_targets:,} tokens learned, {training.num_tokens:,} forwarded"
    )


def _train(training: Training, course: Course, seconds: float) -> float:
    """Epochs that were trained, in so many seconds of this thread: other work on the machine takes nothing away."""
    started = said = time.thread_time()
    epoch, losses = 0, list[float]()
    while True:
        steps = course.first_epoch if epoch == 0 else course.planner.epoch(epoch)
        for number, step in enumerate(steps):
            share = (time.thread_time() - started) / seconds if seconds else 1.0
            if share >= 1:
                return epoch + number / len(steps)
            losses.append(training.take(step, share))
            if time.thread_time() - said > course.config.log_seconds:
                typer.echo(f"{share:.0%}, epoch {epoch}: loss a token {sum(losses) / len(losses):.4f}", err=True)
                said, losses = time.thread_time(), []
        epoch += 1


if __name__ == "__main__":
    app()
