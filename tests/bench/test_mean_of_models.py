"""The mean of trained models is a model of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from bench.mean_of_models import mean_of
from pipelines.errors import UsageError


def model(folder: Path, value: float, shape: tuple[int, ...] = (2, 3)) -> Path:
    folder.mkdir()
    save_file({"weight": torch.full(shape, value, dtype=torch.bfloat16)}, folder / "model.safetensors")
    (folder / "config.json").write_text(f'{{"of": {value}}}', encoding="utf-8")
    return folder


def test_weights_are_the_mean_and_the_rest_is_of_the_last(tmp_path: Path) -> None:
    parts = [model(tmp_path / name, value) for name, value in (("a", 1.0), ("b", 4.0))]
    mean_of(parts, tmp_path / "mean")
    found = load_file(tmp_path / "mean" / "model.safetensors")["weight"]
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, torch.full((2, 3), 2.5, dtype=torch.bfloat16))
    assert (tmp_path / "mean" / "config.json").read_text(encoding="utf-8") == '{"of": 4.0}'
    with pytest.raises(UsageError, match="not empty"):
        mean_of(parts, tmp_path / "mean")


def test_other_shapes_and_folders_without_weights_are_refused(tmp_path: Path) -> None:
    first, other = model(tmp_path / "a", 1.0), model(tmp_path / "b", 1.0, (3, 2))
    with pytest.raises(UsageError, match="other weights"):
        mean_of([first, other], tmp_path / "mean")
    with pytest.raises(UsageError, match="file of weights"):
        mean_of([first, tmp_path], tmp_path / "mean")
    assert not (tmp_path / "mean").exists()
