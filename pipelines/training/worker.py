"""What every Ray Train worker runs: forward, backward, step; now and then a validation and a checkpoint.

Everything that is drawn comes from (seed, epoch), and a checkpoint holds the optimizer's state and the number of the
next step. A run that was killed therefore continues as if nothing had happened, at most `checkpoint_minutes` back.
"""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ray.train
import ray.train.torch
import torch
from torch.nn.parallel import DistributedDataParallel

from hpd_core import DocumentTokenizer, ModelError, PromptError
from hpd_core.models import description
from hpd_core.training.examples import ExampleBuilder
from hpd_core.training.loss import attach_training, collate, forward_loss
from hpd_core.types import content_hash
from pipelines.config.finetuning import FinetuneConfig
from pipelines.errors import RunError, UsageError
from pipelines.store.folders import Folder
from pipelines.training.labelled_products import Product, load_products
from pipelines.training.loss_curve import draw_curve
from pipelines.training.step_planner import Step, StepPlanner
from pipelines.training.trained_weights import MasterWeights, TrainedModel, load_state, save_state
from pipelines.training.validation import choose, split_products, validate

LOG_FILE = "log.jsonl"
CURVE_FILE = "curve.svg"
RESULT_FILE = "result.json"
MODEL_FOLDER = "model"
# oneDNN prepares its kernels anew for every shape, which takes longer than a forward.
_PADDING_MULTIPLE = 128


def train_worker(settings: dict[str, Any]) -> None:
    """Entry point of a worker.

    `settings`: the resolved configuration, the output folder, torch threads (None: torch's choice) and the queue that
    takes lines for the user.
    """
    if settings["num_threads"]:
        torch.set_num_threads(settings["num_threads"])
    config: FinetuneConfig = settings["config"]
    try:
        with tempfile.TemporaryDirectory() as scratch:
            Trainer(config, Folder(settings["output"]), Path(scratch), settings["lines"].put).run()
    except (ModelError, PromptError, UsageError) as error:
        # It would be the same again. Alone, a worker ends without a failure, so that Ray Train does not start anew;
        # among others it must fail, or they would wait for it: the driver, which is told first, ends the training.
        settings["lines"].put(UsageError(str(error)))
        if ray.train.get_context().get_world_size() > 1:
            raise
    except torch.OutOfMemoryError as error:
        raise RunError(
            f"out of memory. If it happens again: lower optimizer.max_tokens_per_pack (now "
            f"{config.optimizer.max_tokens_per_pack}) or set optimizer.gradient_checkpointing, in another output"
        ) from error


class Trainer:
    """One worker's part of a run. Rank 0 also validates, logs and saves."""

    def __init__(self, config: FinetuneConfig, output: Folder, scratch: Path, say: Callable[[str], None]) -> None:
        self._output = output
        self._best = scratch / "best"
        self._scratch = scratch
        self._say = say
        context = ray.train.get_context()
        self._rank, self._num_workers = context.get_world_rank(), context.get_world_size()

        if config.engine.device == "auto":
            # The workers of a node see all its GPUs; Ray Train says which one is whose.
            device = str(ray.train.torch.get_device())
            config = config.model_copy(update={"engine": config.engine.model_copy(update={"device": device})})
        self._trained = TrainedModel(config)
        config = self._config = self._trained.config
        model = self._trained.model
        attach_training(model)
        self._wrapped = self._wrap(model)
        max_positions = description.max_positions(model.config)
        builder = ExampleBuilder(self._trained.tokenizer, config.engine, config.layout, max_positions)
        share = config.validation.share
        products, report = load_products(config.datasets, config.labels, builder, share)
        training, validation = split_products(products, share)
        self._validation = choose(validation, config.validation.max_products)
        fingerprints = sorted(product.fingerprint for product in validation)
        self._held_out = content_hash(fingerprints) if fingerprints else None
        documents = DocumentTokenizer(self._trained.tokenizer)
        self._planner = StepPlanner(training, documents, builder, config)
        self._steps_per_epoch = len(self._planner.epoch(0))
        if not self._steps_per_epoch:
            raise UsageError("nothing to train on: no product fits the model's positions")
        self._num_steps = max(1, round(config.optimizer.epochs * self._steps_per_epoch))
        self._weights = MasterWeights(self._trained.parameters, config.optimizer, self._num_steps)
        self._progress: dict[str, Any] = {
            "step": 0,
            "best_f1": -1.0,
            "best_step": 0,
            "bad": 0,
            "log": [],
            "seconds": 0.0,
            "revision": self._trained.revision,
            "dtype": str(model.dtype).removeprefix("torch."),
        }
        self._resume()
        self._say_start(training, len(validation), report.lines())

    def run(self) -> None:
        """Trains from where the run stands to its end."""
        self._try_decoding()
        evaluate_every = max(1, round(self._steps_per_epoch / self._config.validation.evaluations_per_epoch))
        meter = Meter(self._config.log_seconds)
        saved = time.monotonic()
        epoch, steps = -1, []
        while self._progress["step"] < self._num_steps and not self._is_stopped():
            number = self._progress["step"]
            if number // self._steps_per_epoch != epoch:
                epoch = number // self._steps_per_epoch
                steps = self._planner.epoch(epoch)
            # Drawn lengths move the number of an epoch's steps a little; the schedule counts the first epoch's.
            step = steps[number % self._steps_per_epoch % len(steps)]
            started = time.perf_counter()
            meter.add(step, *self._train(step, number))
            self._progress["seconds"] += time.perf_counter() - started
            number = self._progress["step"] = number + 1
            is_last = number == self._num_steps
            if self._rank == 0 and (meter.is_due or is_last):
                self._log(meter.take() | {"lr": self._weights.learning_rate(number - 1)})
            if number % evaluate_every == 0 or is_last:
                self._validate()
                saved = self._checkpoint()
                meter.restart()
            elif self._all_agree(time.monotonic() - saved > 60 * self._config.checkpoint_minutes):
                saved = self._checkpoint()
        self._finish()

    def _wrap(self, model: Any) -> Any:
        if self._num_workers == 1:
            return model
        devices = [model.device] if model.device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=devices)

    def _train(self, step: Step, number: int) -> tuple[float, int, float]:
        """One optimizer step. Returns this worker's summed loss and right predictions, and the gradient's norm."""
        device = self._trained.model.device
        # Dropout of a step is the same, however often the run was stopped before.
        torch.manual_seed(hash((self._config.seed, number, self._rank)))
        packs = step.packs[self._rank]
        total_loss, num_right = 0.0, 0
        for index, pack in enumerate(packs):
            is_last = index == len(packs) - 1
            wait = contextlib.nullcontext() if is_last or self._num_workers == 1 else self._wrapped.no_sync()
            with wait:
                # A worker without a pack forwards another one's with no weight: all must meet in the last backward.
                batch = collate(pack or step.packs[0][0], device, _PADDING_MULTIPLE)
                loss, right = forward_loss(self._wrapped, batch, self._config.optimizer.label_smoothing)
                # Workers' gradients are averaged, the loss is a mean over all of them.
                (loss * (self._num_workers / step.num_targets if pack else 0.0)).backward()  # type: ignore[no-untyped-call]
            if pack:
                total_loss += float(loss.detach())
                num_right += int(right)
        norm = self._weights.step(number)
        if not math.isfinite(norm):
            raise UsageError(
                f"the gradient is not finite at step {number}: the training has diverged. Lower "
                f"optimizer.learning_rate, in another output"
            )
        return total_loss, num_right, norm

    def _try_decoding(self) -> None:
        """What keeps a validation from running is found before an epoch is spent."""
        if self._rank != 0 or not self._validation or self._progress["step"] > 0:
            return
        for product in self._validation:
            score = validate(self._trained.model, self._trained.tokenizer, [product], self._config)
            if not score.refusals:
                return
        raise UsageError(f"no validation product can be decoded, the last one: {score.refusals[0]}")

    def _validate(self) -> None:
        """Rank 0 decodes; the others meet it at the next checkpoint."""
        if self._rank != 0:
            return
        if not self._validation:
            self._progress["best_step"] = self._progress["step"]
            self._trained.save(self._best, self._held_out)
            return
        score = validate(self._trained.model, self._trained.tokenizer, self._validation, self._config)
        self._log({"validation": score.as_metrics()})
        if score.f1 > self._progress["best_f1"]:
            self._progress |= {"best_f1": score.f1, "best_step": self._progress["step"], "bad": 0}
            self._trained.save(self._best, self._held_out)
        else:
            self._progress["bad"] += 1

    def _is_stopped(self) -> bool:
        patience = self._config.validation.patience
        return self._all_agree(patience is not None and self._progress["bad"] >= patience)

    def _all_agree(self, decision: bool) -> bool:
        """Rank 0's decision, on every worker."""
        if self._num_workers == 1:
            return decision
        flag = torch.tensor([int(decision)], device=self._trained.model.device)
        torch.distributed.broadcast(flag, src=0)
        return bool(flag.item())

    def _checkpoint(self) -> float:
        """Reports to Ray Train, rank 0 with a checkpoint. Returns the time."""
        metrics = {"step": self._progress["step"], "best_f1": self._progress["best_f1"]}
        if self._rank != 0:
            ray.train.report(metrics)
            return time.monotonic()
        with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
            save_state(Path(folder), self._weights, self._progress, self._best)
            ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder))
        self._publish_log()
        return time.monotonic()

    def _resume(self) -> None:
        checkpoint = ray.train.get_checkpoint()
        if checkpoint is None:
            return
        revision, dtype = self._progress["revision"], self._progress["dtype"]
        with checkpoint.as_directory() as folder:
            # What a run of an earlier version did not note is as it is here.
            self._progress = {"dtype": dtype} | load_state(Path(folder), self._weights, self._best)
        if self._progress["revision"] != revision:
            raise UsageError(
                f"the model has changed since this run began (revision {self._progress['revision']}, now {revision}); "
                f"choose another output"
            )
        if self._progress["dtype"] != dtype:
            # Left to 'auto', it is the machine's: the rest would be trained in another precision.
            raise UsageError(
                f"this run began in {self._progress['dtype']}, here the model is {dtype} (engine.dtype: "
                f"{self._config.engine.dtype}); continue it on a machine like the first, or choose another output"
            )

    def _finish(self) -> None:
        """Rank 0 puts the best weights and the log where the user looks for them."""
        if self._rank == 0:
            for path in sorted(self._best.rglob("*")):
                if path.is_file():
                    self._output.write(f"{MODEL_FOLDER}/{path.relative_to(self._best)}", path.read_bytes())
            self._publish_log()
            result = {key: self._progress[key] for key in ("step", "best_f1", "best_step", "seconds", "dtype")}
            self._output.write(RESULT_FILE, json.dumps(result | {"num_steps": self._num_steps}).encode())
        ray.train.report({"step": self._progress["step"], "best_f1": self._progress["best_f1"]})

    def _publish_log(self) -> None:
        lines = "".join(json.dumps(entry) + "\n" for entry in self._progress["log"])
        self._output.write(LOG_FILE, lines.encode())
        self._output.write(CURVE_FILE, draw_curve(self._progress["log"]))

    def _log(self, entry: dict[str, Any]) -> None:
        step = self._progress["step"]
        entry = {"step": step, "epoch": round(step / self._steps_per_epoch, 3)} | entry
        self._progress["log"].append(entry)
        self._say(self._line(entry))

    def _line(self, entry: dict[str, Any]) -> str:
        start = f"step {entry['step']}/{self._num_steps} (epoch {entry['epoch']:.2f})"
        if "validation" in entry:
            score = entry["validation"]
            rate = score["hallucination_rate"]
            return (
                f"{start}  validation: F1 {score['f1']:.3f}, precision {score['precision']:.3f}, recall "
                f"{score['recall']:.3f}, hallucination rate {'-' if rate is None else f'{rate:.3f}'}; "
                f"{score['num_answered']} of {score['num_unlabelled']} unlabelled attributes got a value"
                f"{_refused(score['refusals'])}"
            )
        left = (self._num_steps - entry["step"]) * self._progress["seconds"] / max(1, entry["step"]) / 60
        return (
            f"{start}  loss {entry['loss']:.4f}, tokens right {entry['accuracy']:.1%}, lr {entry['lr']:.2e}, "
            f"{entry['documents_per_second']:.1f} products/s, {left:.0f} min left"
        )

    def _say_start(self, training: Sequence[Product], num_validation: int, lines: Any) -> None:
        if self._rank != 0:
            return
        for line in lines:
            self._say(line)
        count = sum(parameter.numel() for parameter in self._trained.parameters)
        self._say(
            f"{len(training):,} products to train on, {num_validation:,} for validation ({len(self._validation)} of "
            f"them decoded each time); {self._steps_per_epoch} steps an epoch; {count / 1e6:.1f} million weights "
            f"({self._config.method}) on {self._num_workers} x {description.device_name(self._trained.model.device)}"
        )
        if self._validation and not self._trained.has_never_seen(self._held_out):
            self._say(
                f"Note: {self._config.adapter or self._config.model} was validated on other products, or does not say "
                f"on which: if it learned from these data, it may know some of those that are held out now: their "
                f"scores are too good"
            )
        if self._planner.num_too_long:
            self._say(f"left out, too long for the model's positions: {self._planner.num_too_long:,} products")
        if self._planner.num_unfitting:
            self._say(
                f"left out, longer than K_max in a variant's schema: {self._planner.num_unfitting:,} values of the "
                f"first epoch"
            )
        if self._progress["step"]:
            self._say(f"continues at step {self._progress['step']} of {self._num_steps}")


def _refused(refusals: Sequence[str]) -> str:
    return f"; {len(refusals)} of the products refused ({refusals[0]})" if refusals else ""


class Meter:
    """Sums between two progress lines."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.restart()

    def restart(self) -> None:
        """Forgets what was added; validation is no training."""
        self._started = time.monotonic()
        self._loss, self._right, self._targets, self._documents, self._norm = 0.0, 0, 0, 0, 0.0

    def add(self, step: Step, loss: float, num_right: int, norm: float) -> None:
        """One step, this worker's part of it."""
        self._loss += loss
        self._right += num_right
        self._norm = norm
        self._targets += sum(example.num_targets for pack in step.packs[0] for example in pack)
        self._documents += step.num_documents

    @property
    def is_due(self) -> bool:
        """Whether it is time for a line."""
        return time.monotonic() - self._started >= self._seconds

    def take(self) -> dict[str, float]:
        """The means since the last call."""
        seconds = time.monotonic() - self._started
        answer = {
            "loss": self._loss / max(1, self._targets),
            "accuracy": self._right / max(1, self._targets),
            "gradient_norm": self._norm,
            "documents_per_second": self._documents / seconds,
        }
        self.restart()
        return answer
