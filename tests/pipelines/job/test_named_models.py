"""A plan looks for the models and adapters that are folders here or in a storage, and says what it cannot look for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from pipelines import extract
from tests.pipelines.conftest import Workplace, products


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
        ({"model": "~/nonexistent"}, "model: cannot load the model '~/nonexistent': there is no such folder"),
        ({"model": "models/of/mine"}, "model: cannot load the model 'models/of/mine': there is no such folder"),
        ({"model": "{empty}"}, "there is no config.json in it (a model is a folder with safetensors weights"),
        ({"model": "{lora}"}, "there is no config.json in it: it is an adapter, which goes with the model"),
        ({"model": "{bare}"}, "there are no weights (*.safetensors) in it"),
        ({"model": "{file}"}, "it is a file, a folder is needed"),
        ({"adapter": "/nonexistent"}, "adapter: cannot use the adapter '/nonexistent': no such folder; an adapter is"),
        ({"adapter": "{empty}"}, "there is no adapter_config.json in it; an adapter is a folder as peft's"),
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
