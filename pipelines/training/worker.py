"""Training loop of a Ray Train worker: forward, backward, step; at times a validation and a checkpoint.

All random draws are seeded by (seed, epoch), and a checkpoint holds the optimizer's state and the number of the
next step. A stopped run resumes exactly where it was. A killed run loses at most `checkpoint_minutes`.
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

from hpd_core import ModelError, PromptError
from hpd_core.models import description
from hpd_core.training.loss import attach_training, collate, forward_loss
from pipelines.config.finetuning import FinetuneConfig
from pipelines.errors import RunError, UsageError
from pipelines.store.folders import Folder
from pipelines.training.course import Course, Meter, ValidationScore, draw_curve, progress_line, validate
from pipelines.training.labelled_products import LabelledProduct
from pipelines.training.step_planner import TrainingStep
from pipelines.training.trained_weights import MasterWeights, load_state, save_state
from pipelines.training.worker_messages import Begins, StopWatch, TrainingRuns

LOG_FILE = "log.jsonl"
CURVE_FILE = "curve.svg"
RESULT_FILE = "result.json"
MODEL_FOLDER = "model"


def train_worker(settings: dict[str, Any]) -> None:
    """Run a worker (entry point).

    `settings`: the resolved configuration, the output folder, torch threads (None: torch's choice), the queue of
    messages to the driver, and the board with the driver's stop request.
    """
    if settings["num_threads"]:
        torch.set_num_threads(settings["num_threads"])
    config: FinetuneConfig = settings["config"]
    watch = StopWatch(settings["board"])
    if watch.is_stopped():
        return  # a group that was started again; what there is to keep was kept
    try:
        with tempfile.TemporaryDirectory() as scratch:
            Trainer(config, Folder(settings["output"]), Path(scratch), settings["lines"].put, watch).run()
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
    """Worker's part of a run. Rank 0 also validates, logs and saves."""

    def __init__(
        self, config: FinetuneConfig, output: Folder, scratch: Path, say: Callable[[Any], None], watch: StopWatch
    ) -> None:
        context = ray.train.get_context()
        self._rank, self._num_workers = context.get_world_rank(), context.get_world_size()
        self._output, self._scratch, self._best = output, scratch, scratch / "best"
        self._say, self._watch = say if self._rank == 0 else lambda _: None, watch
        if config.engine.device == "auto":
            # The workers of a node see all its GPUs; Ray Train says which one is whose.
            device = str(ray.train.torch.get_device())
            config = config.model_copy(update={"engine": config.engine.model_copy(update={"device": device})})
        self._course = Course.load(config, lambda what: self._say(Begins(what)))
        self._config, self._num_steps = self._course.config, self._course.num_steps
        self._trained = self._course.trained
        self._stepper = Stepper(self._course, self._rank, self._num_workers)
        self._progress: dict[str, Any] = {
            "step": 0,
            "best_f1": -1.0,
            "best_step": 0,
            "bad": 0,
            "log": [],
            "seconds": 0.0,
            "is_evaluated": True,
            "revision": self._trained.revision,
            "dtype": str(self._trained.model.dtype).removeprefix("torch."),
        }
        self._resume()
        for line in self._course.describe(description.device_name(self._trained.model.device)):
            self._say(line)
        if self._progress["step"]:
            self._say(f"continues at step {self._progress['step']} of {self._num_steps}")

    def run(self) -> None:
        """Train from the current step to the end, or until the run is stopped."""
        self._try_decoding()
        self._say(TrainingRuns())
        if not self._progress["is_evaluated"]:
            self._validate()
            self._checkpoint()
        meter, saved, is_stopped = Meter(self._config.log_seconds), time.monotonic(), self._is_stopped()
        epoch, steps = 0, self._course.first_epoch
        while self._progress["step"] < self._num_steps and not is_stopped and not self._is_hopeless():
            number = self._progress["step"]
            if (now := number // self._course.steps_per_epoch) != epoch:
                epoch, steps = now, self._course.planner.epoch(now)
            # Drawn lengths move the number of an epoch's steps a little; the schedule counts the first epoch's.
            self._step(steps[number % self._course.steps_per_epoch % len(steps)], number, meter)
            number += 1
            is_last = number == self._num_steps
            is_stopped = self._is_stopped()
            if number % self._course.steps_between_evaluations == 0 or is_last:
                self._validate()
                saved = self._checkpoint()
                meter.restart()
                is_stopped = self._is_stopped()  # it may have been given up
            elif is_stopped or self._all_agree(time.monotonic() - saved > 60 * self._config.checkpoint_minutes):
                saved = self._checkpoint()
        if not self._is_stopped():
            self._finish()

    def _step(self, step: TrainingStep, number: int, meter: Meter) -> None:
        started = time.perf_counter()
        meter.add(step, *self._stepper.take(step, number))
        self._progress["seconds"] += time.perf_counter() - started
        self._progress["step"] = number + 1
        if self._rank == 0 and (meter.is_due or number + 1 == self._num_steps):
            self._log(meter.take() | {"lr": self._stepper.weights.learning_rate(number)})

    def _try_decoding(self) -> None:
        """Decode a validation product, so that faults are found before an epoch is trained.

        Raises `UsageError` if no validation product can be decoded.
        """
        if self._rank != 0 or not self._course.scored or self._progress["step"] > 0:
            return
        self._say(Begins("decoding a validation product for a try"))
        refusals: Sequence[str] = ()
        for product in self._course.scored:
            score = self._score([product])
            refusals = score.refusals if score is not None else ()
            if not refusals:
                return
        raise UsageError(f"no validation product can be decoded, the last one: {refusals[0]}")

    def _score(self, products: Sequence[LabelledProduct]) -> ValidationScore | None:
        """Decode and score products; return None if decoding was aborted because training is to stop."""
        return validate(self._trained.model, self._trained.tokenizer, products, self._config, self._watch.is_stopped)

    def _validate(self) -> None:
        """Validate on rank 0; the other workers wait for it at the next checkpoint. An aborted validation is repeated
        first after a resume.
        """
        self._progress["is_evaluated"] = False
        if self._rank != 0:
            return
        if not self._course.scored:
            self._progress |= {"best_step": self._progress["step"], "is_evaluated": True}
            self._trained.save(self._best, self._course.held_out)
            return
        score = self._score(self._course.scored)
        if score is None:
            return
        self._progress["is_evaluated"] = True
        self._log({"validation": score.as_metrics()})
        if score.f1 > self._progress["best_f1"]:
            self._progress |= {"best_f1": score.f1, "best_step": self._progress["step"], "bad": 0}
            self._trained.save(self._best, self._course.held_out)
        else:
            self._progress["bad"] += 1

    def _is_hopeless(self) -> bool:
        """Return whether the last `validation.patience` validations brought no improvement."""
        patience = self._config.validation.patience
        return self._all_agree(patience is not None and self._progress["bad"] >= patience)

    def _is_stopped(self) -> bool:
        """Return whether training is to stop here, as rank 0 decides."""
        return self._all_agree(self._watch.is_stopped())

    def _all_agree(self, decision: bool) -> bool:
        """Return rank 0's decision on every worker."""
        if self._num_workers == 1:
            return decision
        flag = torch.tensor([int(decision)], device=self._trained.model.device)
        torch.distributed.broadcast(flag, src=0)
        return bool(flag.item())

    def _checkpoint(self) -> float:
        """Report to Ray Train, on rank 0 with a checkpoint, and return the monotonic time in seconds.

        Report nothing if the run is to stop at once.
        """
        if self._all_agree(self._watch.wish() == "at once"):
            return time.monotonic()
        metrics = {"step": self._progress["step"], "best_f1": self._progress["best_f1"]}
        if self._rank != 0:
            ray.train.report(metrics)
            return time.monotonic()
        with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
            save_state(Path(folder), self._stepper.weights, self._progress, self._best)
            ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder))
        self._publish_log()
        return time.monotonic()

    def _resume(self) -> None:
        checkpoint = ray.train.get_checkpoint()
        if checkpoint is None:
            return
        revision, dtype = self._progress["revision"], self._progress["dtype"]
        with checkpoint.as_directory() as folder:
            # Keys that a run of an earlier version did not record keep their values of this run.
            self._progress |= load_state(Path(folder), self._stepper.weights, self._best)
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
        """Write the best weights, the log and the result to the output folder (rank 0)."""
        if self._rank == 0:
            for path in sorted(self._best.rglob("*")):
                if path.is_file():
                    self._output.write(f"{MODEL_FOLDER}/{path.relative_to(self._best)}", path.read_bytes())
            self._publish_log()
            result = {key: self._progress[key] for key in ("step", "best_f1", "best_step", "seconds", "dtype")}
            result |= {"num_steps": self._num_steps}
            self._output.write(RESULT_FILE, json.dumps(result).encode())
        ray.train.report({"step": self._progress["step"], "best_f1": self._progress["best_f1"]})

    def _publish_log(self) -> None:
        lines = "".join(json.dumps(entry) + "\n" for entry in self._progress["log"])
        self._output.write(LOG_FILE, lines.encode())
        self._output.write(CURVE_FILE, draw_curve(self._progress["log"]))

    def _log(self, entry: dict[str, Any]) -> None:
        step = self._progress["step"]
        entry = {"step": step, "epoch": round(step / self._course.steps_per_epoch, 3)} | entry
        self._progress["log"].append(entry)
        self._say(progress_line(entry, self._num_steps, self._progress["seconds"]))


# oneDNN prepares its kernels anew for every shape, which takes longer than a forward.
_PADDING_MULTIPLE = 128


class Stepper:
    """Optimizer steps of worker `rank` of `num_workers`."""

    def __init__(self, course: Course, rank: int, num_workers: int) -> None:
        self._config = course.config
        self._rank, self._num_workers = rank, num_workers
        model = course.trained.model
        attach_training(model)
        self._device = model.device
        self._wrapped: Any = model
        if num_workers > 1:
            devices = [model.device] if model.device.type == "cuda" else None
            self._wrapped = DistributedDataParallel(model, device_ids=devices)
        self.weights = MasterWeights(course.trained.parameters, self._config.optimizer, course.num_steps)

    def take(self, step: TrainingStep, number: int) -> tuple[float, int, float]:
        """Take step `number` (from 0). Return this worker's summed loss and right predictions, and the gradient's norm.

        Raises `UsageError` if the norm is not finite.
        """
        # Dropout of a step is the same, however often the run was stopped before.
        torch.manual_seed(hash((self._config.seed, number, self._rank)))
        packs = step.packs[self._rank]
        total_loss, num_right = 0.0, 0
        for index, pack in enumerate(packs):
            is_last = index == len(packs) - 1
            wait = contextlib.nullcontext() if is_last or self._num_workers == 1 else self._wrapped.no_sync()
            with wait:
                # A worker without a pack forwards another one's with no weight: all must meet in the last backward.
                batch = collate(pack or step.packs[0][0], self._device, _PADDING_MULTIPLE)
                loss, right = forward_loss(self._wrapped, batch, self._config.optimizer.label_smoothing)
                # Workers' gradients are averaged, the loss is a mean over all of them.
                (loss * (self._num_workers / step.num_targets if pack else 0.0)).backward()  # type: ignore[no-untyped-call]
            if pack:
                total_loss += float(loss.detach())
                num_right += int(right)
        norm = self.weights.step(number)
        if not math.isfinite(norm):
            raise UsageError(
                f"the gradient is not finite at step {number}: the training has diverged. Lower "
                f"optimizer.learning_rate, in another output"
            )
        return total_loss, num_right, norm
