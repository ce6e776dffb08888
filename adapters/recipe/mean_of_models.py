"""Writes the model, or adapter, whose weights are the mean of those of several: a "soup" of trainings of one base.

    python -m adapters.recipe.mean_of_models runs/a/model runs/b/model --out runs/mean

They must have the same weights by name and shape, as trainings of one base have. All other files are those of the last.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import torch
import typer
from safetensors.torch import load_file, save_file

from pipelines.errors import UsageError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_WEIGHTS = ("model.safetensors", "adapter_model.safetensors")


def mean_of(folders: list[Path], out: Path) -> None:
    """Writes the folder `out`. Raises `UsageError` if it is not empty, or the folders' weights differ in shape."""
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty")
    files = [weights_of(folder) for folder in folders]
    parts = [load_file(file) for file in files]
    shapes = [{name: tuple(tensor.shape) for name, tensor in part.items()} for part in parts]
    for folder, own in zip(folders, shapes, strict=True):
        if own != shapes[0]:
            raise UsageError(f"{folder} has other weights than {folders[0]}, by name or shape")
    mean = {
        name: torch.stack([part[name].float() for part in parts]).mean(0).to(tensor.dtype).contiguous()
        for name, tensor in parts[0].items()
    }
    shutil.copytree(folders[-1], out, dirs_exist_ok=True)
    save_file(mean, out / files[-1].name, metadata={"format": "pt"})
    shutil.copymode(files[-1], out / files[-1].name)  # safetensors makes files for their owner alone


def weights_of(folder: Path) -> Path:
    """The file with the weights of a model or an adapter. Raises `UsageError` if there is not exactly one."""
    found = [folder / name for name in _WEIGHTS if (folder / name).exists()]
    if len(found) != 1:
        raise UsageError(f"{folder} has not one file of weights, {' or '.join(_WEIGHTS)}")
    return found[0]


@app.command(help=__doc__)
def main(
    folders: Annotated[list[Path], typer.Argument(help="Folders of models, two at least.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
) -> None:
    """Writes the mean."""
    try:
        mean_of(folders, out)
    except UsageError as error:
        raise typer.BadParameter(str(error)) from error


if __name__ == "__main__":
    app()
