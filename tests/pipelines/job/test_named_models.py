"""A plan looks for the models and adapters that are folders here or in a storage, and says what it cannot look for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from pipelines import extract, plan
from pipelines.job.preflight import plan_job
from pipelines.store.folders import Folder
from pipelines.store.ledger import MANIFEST_NAME
from tests.pipelines.conftest import Workplace, products

BELOW = {"below": 0.5}


@pytest.fixture
def catalog(workplace: Workplace) -> Workplace:
    workplace.write_parquet("a.parquet", products(4))
    return workplace


@pytest.fixture
def adapter(workplace: Workplace) -> Path:
    """By the names of its files."""
    folder = workplace.folder / "lora"
    folder.mkdir()
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    (folder / "adapter_model.safetensors").write_bytes(b"")
    return folder


def dry_run(workplace: Workplace, **changes: Any) -> Result:
    config = workplace.write_config(**changes)
    return CliRunner().invoke(extract.app, ["--config", str(config), "--dry-run"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "/nonexistent"}, "model: cannot load the model '/nonexistent': there is no such folder (a model is"),
        ({"model": "./nonexistent"}, "model: cannot load the model './nonexistent': there is no such folder"),
        ({"model": "../nonexistent"}, "model: cannot load the model '../nonexistent': there is no such folder"),
        ({"model": "~/nonexistent"}, "model: cannot load the model '~/nonexistent': there is no such folder"),
        ({"model": "~nobody-here/x"}, "model: cannot load the model '~nobody-here/x': there is no such folder"),
        ({"model": "models/of/mine"}, "model: cannot load the model 'models/of/mine': there is no such folder"),
        ({"model": "{empty}"}, "there is no config.json in it (a model is a folder with safetensors weights"),
        ({"model": "{lora}"}, "there is no config.json in it: it is an adapter, which goes with the model"),
        ({"model": "{bare}"}, "there are no weights (*.safetensors) in it"),
        ({"model": "{file}"}, "it is a file, a folder is needed"),
        ({"adapter": "/nonexistent"}, "adapter: cannot use the adapter '/nonexistent': no such folder; an adapter is"),
        ({"adapter": "~/nonexistent"}, "adapter: cannot use the adapter '~/nonexistent': no such folder"),
        ({"adapter": "{empty}"}, "there is no adapter_config.json in it; an adapter is a folder as peft's"),
        ({"cascade": BELOW | {"model": "/nonexistent"}}, "cascade.model: cannot load the model '/nonexistent'"),
        (
            {"cascade": BELOW | {"model": "larger/model", "adapter": "/nonexistent"}},
            "cascade.adapter: cannot use the adapter '/nonexistent'",
        ),
    ],
    ids=str,
)
def test_a_folder_that_is_not_as_needed_is_refused(
    catalog: Workplace, adapter: Path, changes: dict[str, Any], message: str
) -> None:
    empty, bare, file = (catalog.folder / name for name in ("empty", "bare", "model.gguf"))
    empty.mkdir()
    bare.mkdir()
    (bare / "config.json").write_text("{}")
    file.write_bytes(b"GGUF")
    places = {"{empty}": str(empty), "{bare}": str(bare), "{file}": str(file), "{lora}": str(adapter)}
    found = dry_run(catalog, **{key: places.get(str(value), value) for key, value in changes.items()})
    assert found.exit_code == 2, found.output
    assert found.stderr.startswith("Error: ")
    assert message in found.stderr
    assert "Plan of run" not in found.output


def test_a_folder_in_a_storage_is_looked_into(catalog: Workplace, adapter: Path) -> None:
    storage = Folder("memory://looked-into")
    for folder, names in ({"bare": ["config.json"], "whole": ["config.json", "model-1.safetensors"]}).items():
        for name in names:
            storage.write(f"{folder}/{name}", b"")
    for path in adapter.iterdir():
        storage.write(f"lora/{path.name}", b"")
    for changes, message in (
        (
            {"model": "memory://looked-into/hwole"},
            "model: cannot load the model 'memory://looked-into/hwole': there is no",
        ),
        ({"model": "memory://looked-into/bare"}, "there are no weights (*.safetensors) in it"),
        ({"model": "memory://looked-into/lora"}, "it is an adapter, which goes with the model"),
        (
            {"adapter": "memory://looked-into/roal"},
            "adapter: cannot use the adapter 'memory://looked-into/roal': no such",
        ),
        ({"adapter": "memory://looked-into/whole"}, "there is no adapter_config.json in it"),
    ):
        found = dry_run(catalog, **changes)
        assert (found.exit_code, message in found.stderr) == (2, True), found.output
    found = dry_run(catalog, model="memory://looked-into/whole", adapter="memory://looked-into/lora")
    assert (found.exit_code, "looked for" in found.output) == (0, False), found.output


@pytest.mark.parametrize(("key", "name"), [("model", "/models/baked-in"), ("adapter", "~/lora")])
def test_what_may_be_on_the_nodes_alone_is_a_note(catalog: Workplace, key: str, name: str) -> None:
    output = f"memory://named-models/{key}"
    found = dry_run(catalog, output=output, **{key: name})
    assert found.exit_code == 0, found.output
    told = " ".join(found.output.split())
    assert f"Note: {key}: cannot " in told
    assert f"{name!r}" in told
    assert "A run starts only where it is there, as in the image of a cluster's nodes" in told
    assert dry_run(catalog, output=output, **{key: "./baked-in"}).exit_code == 2, "the driver would have that one, too"


def test_a_run_that_is_over_wants_no_model(catalog: Workplace) -> None:
    config = catalog.config(model=str(shutil.copytree(catalog.model, catalog.folder / "model")))
    Folder(config.output).create("_plan.json", plan_job(config).plan.to_json())
    shutil.rmtree(config.model)
    assert dry_run(catalog, model=config.model).exit_code == 2
    Folder(config.output).write(MANIFEST_NAME, json.dumps({}).encode())
    assert dry_run(catalog, model=config.model).exit_code == 0


def test_a_pilot_wants_the_model_before_it_reads_the_catalog(catalog: Workplace) -> None:
    config = str(catalog.write_config(model="/nonexistent"))
    found = CliRunner().invoke(plan.app, ["--config", config, "--pilot", "2"])
    assert (found.exit_code, "model: cannot load the model '/nonexistent'" in found.stderr) == (2, True)
    # What an earlier run has cost is asked of that run, not of a model.
    found = CliRunner().invoke(plan.app, ["--config", config, "--from-run", str(catalog.folder / "nowhere")])
    assert "nowhere" in found.stderr
