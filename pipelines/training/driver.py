"""The driver of a fine-tuning: checks everything that can be checked early, then hands over to Ray Train."""

from __future__ import annotations

import _thread
import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import ray
from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.util.queue import Empty, Queue
from rich.console import Console

from hpd_core import HPDError
from hpd_core.models import loading
from hpd_core.models.adapters import open_adapter
from hpd_core.training.examples import ExampleBuilder
from hpd_core.types import content_hash
from pipelines.config.extraction import InputConfig
from pipelines.config.finetuning import DatasetConfig, FinetuneConfig
from pipelines.config.loading import parse_config
from pipelines.errors import RunError, UsageError
from pipelines.job.ray_cluster import explain, num_cpus, ray_cluster
from pipelines.job.run_plan import differences
from pipelines.store.folders import Folder
from pipelines.store.lease import RunLease
from pipelines.training.labelled_products import load_products
from pipelines.training.validation import choose, split_products
from pipelines.training.worker import CURVE_FILE, MODEL_FOLDER, RESULT_FILE, train_worker

CONFIG_FILE = "config.json"
_CHECKPOINTS = "_checkpoints"
_LEASE_SECONDS = 60.0
_SECONDS_BETWEEN_LOOKS = 5.0


def run_finetuning(config: FinetuneConfig, console: Console, *, dry_run: bool = False) -> None:
    """Runs the fine-tuning to its end, or continues it.

    Raises `UsageError` for what the user can mend before it starts, `RunError` for what stopped it on the way.
    """
    config = _with_absolute_paths(config)
    output = Folder(config.output)
    output.require()
    hashes = _check_data(config, console if dry_run else None)
    _check_same_run(config, hashes, output)
    if dry_run:
        return
    if output.exists(RESULT_FILE):
        console.print("finished already; nothing to do")
    else:
        # Two drivers would train into one folder.
        with RunLease(output, _LEASE_SECONDS).hold(console) as lease:
            _check_same_run(config, hashes, output)  # the driver that held it before may have begun, or ended, the run
            if not output.exists(RESULT_FILE):
                if not output.exists(CONFIG_FILE):
                    record = hashes._asdict() | {"config": config.model_dump(mode="json")}
                    output.write(CONFIG_FILE, json.dumps(record, indent=1).encode())
                _train(config, output, console, lease)
    _print_result(config, output, console)


def _train(config: FinetuneConfig, output: Folder, console: Console, lease: RunLease) -> None:
    scaling = config.scaling
    failures: list[UsageError] = []
    try:
        with (
            ray_cluster(scaling.num_workers * scaling.num_cpus),
            _interrupted_once(lambda: lease.is_lost or (scaling.num_workers > 1 and bool(failures))),
        ):
            use_gpu = _decide_device(config, console)
            threads = scaling.num_threads or max(1, num_cpus() // scaling.num_workers)
            with _printed(console, failures) as lines:
                TorchTrainer(
                    train_worker,
                    train_loop_config={
                        "config": config,
                        "output": output.absolute_uri,
                        "num_threads": None if use_gpu else threads,
                        "lines": lines,
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
                ).fit()
            if failures and not output.exists(RESULT_FILE):
                raise failures[0]
    except (KeyboardInterrupt, SystemExit):
        # SystemExit is how Ray Train ends at an interrupt, and Ray at SIGTERM.
        lease.check()
        if failures:
            raise failures[0] from None
        raise KeyboardInterrupt from None
    except Exception as error:
        lease.check()
        if failures:
            raise failures[0] from error
        explained = _explain(error)
        if explained is None:
            raise
        raise explained from error


def _decide_device(config: FinetuneConfig, console: Console) -> bool:
    """Whether workers get a GPU each; a note where the cluster, as it is now, cannot hold them."""
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


@contextmanager
def _interrupted_once(is_over: Callable[[], bool]) -> Iterator[None]:
    """Interrupts the block once training makes no sense any more: another driver continues it, or a worker says why.

    Ray Train handles SIGINT for as long as the process lives; here that ends with the block, too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # nobody could be interrupted
        return
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_SECONDS_BETWEEN_LOOKS):
            if is_over():
                _thread.interrupt_main()  # again and again: at the first, Ray Train may not have begun to listen

    handler = signal.getsignal(signal.SIGINT)
    watcher = threading.Thread(target=watch, name="finetune-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        try:
            done.set()
            watcher.join()
        finally:
            # Whatever interrupts this very line.
            signal.signal(signal.SIGINT, signal.SIG_DFL if handler is None else handler)


@contextmanager
def _printed(console: Console, failures: list[UsageError]) -> Iterator[Queue]:
    """A queue whose lines are printed as they come, for as long as the block runs; errors in it go to `failures`."""
    queue = Queue(actor_options={"num_cpus": 0})
    done = threading.Event()

    def print_lines() -> None:
        while True:
            is_last = done.is_set()
            try:
                line = queue.get(timeout=0.5)
            except Empty:
                if is_last:
                    return
                continue
            if isinstance(line, UsageError):
                failures.append(line)
            else:
                console.print(line)

    thread = threading.Thread(target=print_lines, name="finetune-lines", daemon=True)
    thread.start()
    try:
        yield queue
    finally:
        try:
            done.set()
            thread.join()
        finally:
            queue.shutdown()


class _Hashes(NamedTuple):
    """Of what is taught, and of the answers that validation is scored by."""

    data_hash: str
    scored_hash: str


def _check_same_run(config: FinetuneConfig, hashes: _Hashes, output: Folder) -> None:
    record = output.read_json(CONFIG_FILE)
    if record is None:
        return
    # Read as a configuration: what is newer than the run has its default there, and is no change where it has it here.
    begun = record["config"]
    del begun["engine"]["layout"]  # written out, but never set: 'layout' decides it
    known = parse_config(FinetuneConfig, begun, output.describe(CONFIG_FILE))
    if changed := differences(known.deciding(), config.deciding()):
        raise UsageError(
            f"{config.output} holds a run of another configuration: {'; '.join(changed)}. Continue it with its own, "
            f"or choose another output"
        )
    if any(record.get(key, now) != now for key, now in hashes._asdict().items()):
        raise UsageError(
            f"the data have changed since the run in {config.output} began; choose another output to train on them"
        )


def _check_data(config: FinetuneConfig, console: Console | None) -> _Hashes:
    """Reads all data as the workers will; wrong data is found before a cluster is asked for anything."""
    try:
        tokenizer = loading.load_tokenizer(config.model, config.engine)
        builder = ExampleBuilder(tokenizer, config.engine, config.layout, None)
        products, report = load_products(config.datasets, config.labels, builder, config.validation.share)
        start = _adapter_revision(config)
    except HPDError as error:
        raise UsageError(str(error)) from error
    training, validation = split_products(products, config.validation.share)
    if not training:
        raise UsageError("no product is left to train on: validation.share takes them all")
    if config.validation.share and not validation:
        raise UsageError(
            f"{len(products)} products are too few for validation.share {config.validation.share:g}: none is held out. "
            f"Raise it, or set it to 0 to train without validation"
        )
    if console is not None:
        for line in report.lines():
            console.print(line)
        console.print(f"{len(training):,} products to train on, {len(validation):,} for validation")
    taught = [
        [list(product.record.fields.items()), product.schema.hash, dict(product.answers), list(product.assumed_absent)]
        for product in products
    ]
    scored = [
        {name: value.items for name, value in product.gold.values.items()}
        for product in choose(validation, config.validation.max_products)
    ]
    return _Hashes(content_hash([taught, start]), content_hash(scored))


def _adapter_revision(config: FinetuneConfig) -> str | None:
    if config.adapter is None:
        return None
    with open_adapter(config.adapter) as adapter:
        return adapter.revision


def _with_absolute_paths(config: FinetuneConfig) -> FinetuneConfig:
    """Workers run in folders of their own."""
    datasets = tuple(_absolute_dataset(dataset) for dataset in config.datasets)
    model = _absolute(config.model) if Path(config.model).expanduser().is_dir() else config.model
    adapter = (
        _absolute(config.adapter) if config.adapter and Path(config.adapter).expanduser().is_dir() else config.adapter
    )
    update = {"datasets": datasets, "output": _absolute(config.output), "model": model, "adapter": adapter}
    return config.model_copy(update=update)


def _absolute_dataset(dataset: DatasetConfig) -> DatasetConfig:
    catalog: InputConfig | None = dataset.input
    if catalog is not None:
        catalog = catalog.model_copy(update={"path": tuple(_absolute(path) for path in catalog.path)})
    update = {"gold": _absolute(dataset.gold), "schemas": _absolute(dataset.schemas), "input": catalog}
    return dataset.model_copy(update=update)


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).expanduser().absolute())


def _print_result(config: FinetuneConfig, output: Folder, console: Console) -> None:
    result = output.read_json(RESULT_FILE)
    if result is None:
        raise RunError("the run ended without a result")
    score = "" if result["best_f1"] < 0 else f"; validation F1 {result['best_f1']:.3f}"
    what = "adapter" if config.method == "lora" else "model"
    console.print(f"best weights: step {result['best_step']} of {result['num_steps']}{score}")
    console.print(f"  {what:11}{output.describe(MODEL_FOLDER)}")
    console.print(f"  loss curve {output.describe(CURVE_FILE)}")
    use = "adapter" if config.method == "lora" else "model"
    settings = {"tree": "", "stacked": " --set engine.layout=stacked", "ar": " --set decoding=ar"}[config.layout]
    console.print(
        f"to use it: pipelines/extract.py --config JOB.yaml --set {use}={output.describe(MODEL_FOLDER)}{settings}"
    )
