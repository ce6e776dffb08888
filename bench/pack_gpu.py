"""Packs what a measurement needs on a machine that reaches no network: wheels, and a tokenizer.

    python -m bench.pack_gpu FOLDER --installed pip-list.txt --python 3.12

`pip-list.txt` is what `pip list --format=freeze` prints there: packages on that list are left out. FOLDER and the
checkout are then all that has to be copied. The last lines say what to run there.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Annotated

import typer
from packaging.utils import canonicalize_name

from hpd_core import EngineConfig
from hpd_core.models import loading

_IMPORTS = "import bench.measure_gpu, bench.gpu.loaded, bench.gpu.parts, bench.gpu.vllm, hpd_core.engine, sys"
_LISTS = "print(*{name.partition('.')[0] for name in sys.modules})"
_TESTS = ("pytest", "pytest-xdist", "execnet", "hypothesis", "sortedcontainers", "iniconfig", "pluggy")
_FOR_OTHERS = {
    *("accelerate", "google-api-core", "google-auth", "googleapis-common-protos", "pillow", "protobuf", "pyarrow"),
    *("scipy", "setuptools"),
}
"""Optional imports of transformers."""

_THERE = """pip install -q --no-index --no-deps --target /tmp/site {folder}/wheels/*.whl
PYTHONPATH=/tmp/site python3 bench/measure_gpu.py OUT --plan call1 --tokenizer {folder}/tokenizer
"""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


def needed() -> set[str]:
    """Return the distributions that a measurement and its tests import."""
    done = subprocess.run([sys.executable, "-c", f"{_IMPORTS}; {_LISTS}"], capture_output=True, text=True, check=True)
    known = packages_distributions()
    found = {canonicalize_name(each) for name in done.stdout.split() for each in known.get(name, ())}
    return (found | set(_TESTS)) - _FOR_OTHERS


@app.command()
def main(
    folder: Annotated[Path, typer.Argument(help="Made where it is missing.")],
    installed: Annotated[Path, typer.Option(help="What `pip list --format=freeze` prints on that machine.")],
    python: Annotated[str, typer.Option(help="Its Python's version.")] = "3.12",
    model: Annotated[str, typer.Option(help="The model, or folder, whose tokenizer splits the texts.")] = "smollm2",
) -> None:
    """Pack wheels and a tokenizer for a machine that reaches no network."""
    there = {canonicalize_name(line.partition("==")[0].strip()) for line in installed.read_text().splitlines()}
    missing = sorted(needed() - there)
    # pip compares platform tags literally, so all older ones are named, too.
    kinds = ("1", "2014", *(f"_2_{number}" for number in range(17, 40)))
    platforms = [f"--platform=manylinux{kind}_x86_64" for kind in kinds]
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    command += [f"--python-version={python}", *platforms, f"--dest={folder / 'wheels'}"]
    done = subprocess.run([*command, *(f"{name}=={version(name)}" for name in missing)], check=False)
    if done.returncode:  # pip has said why
        raise typer.Exit(1)
    loading.load_tokenizer(model, EngineConfig()).save_pretrained(folder / "tokenizer")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    typer.echo(f"{len(missing)} wheels and a tokenizer, {size / 2**20:.0f} MiB: {', '.join(missing)}")
    typer.echo(_THERE.format(folder=folder))


if __name__ == "__main__":
    app()
