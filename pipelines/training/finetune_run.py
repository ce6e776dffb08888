"""Driver of a fine-tuning: runs all checks that are possible early, then hands over to Ray Train."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from hpd_core import HPDError
from hpd_core.families.table import refuse_both_ways, refuse_layout
from hpd_core.models import loading, quantized_checkpoints
from hpd_core.models.adapter_folder import open_adapter
from hpd_core.models.model_files import portable_name, require_hub
from hpd_core.training.examples import ExampleBuilder
from hpd_core.types import content_hash
from pipelines.config.catalog_input import InputConfig
from pipelines.config.finetuning import DatasetConfig, FinetuneConfig
from pipelines.config.loading import parse_config
from pipelines.console.terminal import print_beginning
from pipelines.errors import RunError, UsageError
from pipelines.job.run_plan import differences
from pipelines.store.folders import Folder
from pipelines.store.lease import RunLease
from pipelines.store.ledger import named_damage
from pipelines.training.course import choose, split_products
from pipelines.training.few_settings import DAMAGED_WAY_OUT, forecast_lines
from pipelines.training.labelled_products import load_products
from pipelines.training.ray_training import train
from pipelines.training.worker import CURVE_FILE, MODEL_FOLDER, RESULT_FILE

CONFIG_FILE = "config.json"
_LEASE_SECONDS = 60.0


def run_finetuning(config: FinetuneConfig, console: Console, *, dry_run: bool = False) -> None:
    """Run the fine-tuning to its end, or resume it.

    Args:
        dry_run: only print what the training would take; start nothing.

    Raises `UsageError` for faults that the user can fix before it starts, `RunError` if it fails on the way.
    """
    config = _with_absolute_paths(config)
    output = Folder(config.output)
    output.require()
    hashes = _check_data(config, console if dry_run else None)
    _check_same_run(config, hashes, output)
    if dry_run:
        for line in forecast_lines(config, output, lambda what: print_beginning(console, what)):
            console.print(line)
        return
    if _is_finished(output):
        console.print("finished already; nothing to do")
    else:
        # Two drivers would train into one folder.
        with RunLease(output, _LEASE_SECONDS).hold(console) as lease:
            _check_same_run(config, hashes, output)  # the driver that held it before may have begun, or ended, the run
            if not _is_finished(output):
                if not output.exists(CONFIG_FILE):
                    record = hashes._asdict() | {"config": config.model_dump(mode="json")}
                    output.write(CONFIG_FILE, json.dumps(record, indent=1).encode())
                train(config, output, console, lease, lambda: _is_finished(output))
    _print_result(config, output, console)


def _is_finished(output: Folder) -> bool:
    """Return whether nothing is left to train."""
    return _read_result(output) is not None


def _read_result(output: Folder) -> dict[str, Any] | None:
    """Read the result of the run; None before its end. Raises `UsageError` for any other file."""
    with named_damage(output, RESULT_FILE, DAMAGED_WAY_OUT):
        result = output.read_json(RESULT_FILE)
        if result is None:
            return None
        return {key: result[key] for key in ("step", "num_steps", "best_step", "best_f1")}


class _Hashes(NamedTuple):
    """Hashes of the data that are taught, and of the gold answers that validation scores against."""

    data_hash: str
    scored_hash: str


def _check_same_run(config: FinetuneConfig, hashes: _Hashes, output: Folder) -> None:
    with named_damage(output, CONFIG_FILE, DAMAGED_WAY_OUT):
        record = output.read_json(CONFIG_FILE)
        if record is None:
            return
        begun = record["config"]
        del begun["engine"]["layout"]  # written out, but never set: 'layout' decides it
    # Read as a configuration: what is newer than the run has its default there, and is no change where it has it here.
    known = parse_config(FinetuneConfig, begun, output.describe(CONFIG_FILE))
    if changed := differences(known.deciding(), config.deciding()):
        raise UsageError(
            f"{config.output} holds a run of another configuration: {'; '.join(changed)}. Continue it with its own, "
            f"or choose another output"
        )
    if any(record.get(key, now) != now for key, now in hashes._asdict().items()):
        raise UsageError(
            f"the data, or how this version reads them, have changed since the run in {config.output} began; choose "
            f"another output to train on them"
        )


def _check_data(config: FinetuneConfig, console: Console | None) -> _Hashes:
    """Read all data as the workers will, so that faults are found before a cluster is used. Raises `UsageError`."""
    try:
        require_hub(config.model)
        model_config = loading.load_config(config.model, config.engine)
        refuse_layout(model_config, config.layout, "layout to 'tree' or 'ar'")
        if config.engine.reads_both_ways:
            refuse_both_ways(model_config)
        quantized_checkpoints.refuse_training(model_config)
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
    """Return the configuration with absolute paths, since workers run in other folders."""
    datasets = tuple(_absolute_dataset(dataset) for dataset in config.datasets)
    adapter = None if config.adapter is None else portable_name(config.adapter)
    model, output = portable_name(config.model), _absolute(config.output)
    update = {"datasets": datasets, "output": output, "model": model, "adapter": adapter}
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
    result = _read_result(output)
    if result is None:
        raise RunError("the run ended without a result")
    score = "" if result["best_f1"] < 0 else f"; validation F1 {result['best_f1']:.3f}"
    what = "adapter" if config.method == "lora" else "model"
    console.print(f"best weights: step {result['best_step']} of {result['num_steps']}{score}")
    console.print(f"  {what:11}{output.describe(MODEL_FOLDER)}")
    console.print(f"  loss curve {output.describe(CURVE_FILE)}")
    use = shlex.quote(f"{what}={output.describe(MODEL_FOLDER)}")
    settings = {"tree": "", "stacked": " --set engine.layout=stacked", "ar": " --set decoding=ar"}[config.layout]
    console.print(f"to use it: hpd extract --config JOB.yaml --set {use}{settings}")
