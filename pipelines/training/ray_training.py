"""Fine-tuning on Ray Train: its workers, their messages, and how they are stopped."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.util.queue import Empty, Queue
from rich.console import Console

from hpd_core.system.device import num_cpus
from pipelines.config.finetuning import FinetuneConfig
from pipelines.console.progress import format_seconds
from pipelines.console.terminal import print_beginning
from pipelines.errors import UsageError
from pipelines.job.ray_cluster import explain, ray_cluster
from pipelines.store.folders import Folder
from pipelines.store.lease import RunLease
from pipelines.training.worker import train_worker
from pipelines.training.worker_messages import Begins, StopBoard, TrainingRuns

_CHECKPOINTS = "_checkpoints"
_SECONDS_BETWEEN_LOOKS = 5.0
_SECONDS_BETWEEN_WAITS = 15.0


def train(
    config: FinetuneConfig,
    output: Folder,
    console: Console,
    lease: RunLease,
    has_ended: Callable[[], bool],
) -> None:
    """Train until the run has ended.

    Args:
        has_ended: returns whether there is a result.

    Raises `UsageError` for faults that the user can fix, `RunError` for other failures, `KeyboardInterrupt` after a
    signal. A checkpoint is kept, unless it was the second signal or no step was taken.
    """
    scaling, heard = config.scaling, _Listener(console)
    heard.begin("starting Ray")
    try:
        with ray_cluster(scaling.num_workers * scaling.num_cpus):
            use_gpu = _decide_device(config, console)
            threads = scaling.num_threads or max(1, num_cpus() // scaling.num_workers)
            with heard.queue() as lines:
                heard.begin(f"waiting for {_workers(config, use_gpu)}")
                board: Any = StopBoard.remote()  # type: ignore[attr-defined]
                trainer = TorchTrainer(
                    train_worker,
                    train_loop_config={
                        "config": config,
                        "output": output.absolute_uri,
                        "num_threads": None if use_gpu else threads,
                        "lines": lines,
                        "board": board,
                    },
                    scaling_config=ScalingConfig(
                        num_workers=scaling.num_workers,
                        use_gpu=use_gpu,
                        resources_per_worker={"CPU": scaling.num_cpus, **({"GPU": 1} if use_gpu else {})},
                    ),
                    run_config=RunConfig(
                        name=_CHECKPOINTS,
                        storage_path=output.absolute_uri,
                        checkpoint_config=CheckpointConfig(num_to_keep=1),
                        failure_config=FailureConfig(max_failures=scaling.max_failures),
                    ),
                )
                # Among others a worker fails with it, and Ray Train would start all of them again.
                is_over = lambda: lease.is_lost or (scaling.num_workers > 1 and bool(heard.failures))  # noqa: E731
                _fit(trainer, board, console, heard, is_over)
            if heard.failures and not has_ended():
                raise heard.failures[0]
    except KeyboardInterrupt:
        lease.check()
        raise
    except Exception as error:
        lease.check()
        if heard.failures:
            raise heard.failures[0] from error
        explained = _explain(error)
        if explained is None:
            raise
        raise explained from error
    lease.check()


def _fit(trainer: TorchTrainer, board: Any, console: Console, heard: _Listener, is_over: Callable[[], bool]) -> None:
    """Run Ray Train until it ends or is stopped.

    It runs in a thread, because in the main thread Ray Train would handle SIGINT itself and keep no checkpoint.
    """
    errors: list[BaseException] = []

    def fit() -> None:
        try:
            trainer.fit()
        except BaseException as error:  # the main thread's to handle
            errors.append(error)

    thread = threading.Thread(target=fit, name="ray-train", daemon=True)
    is_wished, next_look = False, time.monotonic() + _SECONDS_BETWEEN_LOOKS
    with _signals() as signals:
        thread.start()
        while thread.is_alive():
            thread.join(0.2)
            if signals and not is_wished:
                if not heard.is_running:
                    raise KeyboardInterrupt  # nothing would be lost
                is_wished = True
                ray.get(board.put.remote("checkpoint"))
                console.print("stopping: a checkpoint is kept first; once more ends it at once")
            if time.monotonic() > next_look:
                next_look = time.monotonic() + _SECONDS_BETWEEN_LOOKS
                if is_over():
                    ray.get(board.put.remote("at once"))
    if errors:
        raise errors[0]
    if is_wished:
        raise KeyboardInterrupt


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM during the block; the second one raises `KeyboardInterrupt`."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # nobody could be interrupted
        return

    def receive(number: int, _: Any) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt

    # A handler that was not set in Python is None here.
    before = {number: signal.signal(number, receive) or signal.SIG_DFL for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Listener:
    """Receiver of the workers' messages: it prints their lines, and the stage before the first step that lasts.

    Attributes:
        failures: faults that the user can fix, one per failed worker.
        is_running: whether training has begun, so that there is a state worth a checkpoint.
    """

    def __init__(self, console: Console) -> None:
        self.failures: list[UsageError] = []
        self.is_running = False
        self._console = console
        self._what, self._began, self._said = "", 0.0, 0.0

    def begin(self, what: str) -> None:
        """Begin the stage `what` and print it."""
        self._what, self._began, self._said = what, time.monotonic(), time.monotonic()
        print_beginning(self._console, what)

    @contextmanager
    def queue(self) -> Iterator[Queue]:
        """Open a queue for the workers' messages during the block."""
        queue = Queue(actor_options={"num_cpus": 0})
        done = threading.Event()
        thread = threading.Thread(target=self._listen, args=(queue, done), name="finetune-lines", daemon=True)
        thread.start()
        try:
            yield queue
        finally:
            try:
                done.set()
                thread.join()
            finally:
                queue.shutdown()

    def _listen(self, queue: Queue, done: threading.Event) -> None:
        while True:
            is_last = done.is_set()
            try:
                said = queue.get(timeout=0.5)
            except Empty:
                if is_last:
                    return
                now = time.monotonic()
                if self._what and now - self._said > _SECONDS_BETWEEN_WAITS:
                    self._said = now
                    print_beginning(self._console, f"still {self._what}, {format_seconds(now - self._began)}")
                continue
            if isinstance(said, UsageError):
                self.failures.append(said)
            elif isinstance(said, Begins):
                self.begin(said.what)
            elif isinstance(said, TrainingRuns):
                self._what, self.is_running = "", True
            else:
                self._console.print(said)


def _workers(config: FinetuneConfig, use_gpu: bool) -> str:
    """Describe the workers that Ray Train requests from the cluster."""
    scaling = config.scaling
    each = f"{scaling.num_cpus:g} CPU{'s' if scaling.num_cpus != 1 else ''}{' and a GPU' if use_gpu else ''}"
    return f"{scaling.num_workers} worker{'s' if scaling.num_workers != 1 else ''} with {each} each"


def _decide_device(config: FinetuneConfig, console: Console) -> bool:
    """Return whether each worker gets a GPU; print a note if the cluster is too small for them now."""
    scaling = config.scaling
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    num_gpus, workers = resources.get("GPU", 0), scaling.num_workers
    use_gpu = scaling.use_gpu
    if use_gpu is None:
        use_gpu = num_gpus >= workers and not config.engine.device.startswith("cpu")
    if not use_gpu and num_gpus and scaling.use_gpu is None and not config.engine.device.startswith("cpu"):
        console.print(f"Note: {num_gpus:g} GPUs for {workers} workers: training on CPUs. Lower scaling.num_workers.")
    short = (use_gpu and num_gpus < workers) or resources.get("CPU", 0) < workers * scaling.num_cpus
    if short:
        wanted = f"{scaling.num_cpus:g} CPUs{' and a GPU' if use_gpu else ''}"
        console.print(
            f"Note: {workers} workers want {wanted} each; the cluster has "
            f"{resources.get('CPU', 0):g} CPUs and {num_gpus:g} GPUs now. If it does not grow, this waits for ever."
        )
    return use_gpu


def _explain(error: BaseException) -> Exception | None:
    # Ray Train keeps the workers' own errors in a field of its own.
    for failure in getattr(error, "worker_failures", {}).values():
        if (found := explain(failure)) is not None:
            return found
    return explain(error)
