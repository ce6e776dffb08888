"""Times matrix products of SmolLM2's linear layers on this CPU: GFLOP/s of one thread, by the number of rows.

    python bench/product_speed.py                     bfloat16: torch, oneDNN's packed weights, ours where there is AMX
    python bench/product_speed.py --dtype float32

Processor time of one thread is counted, which neighbours on the machine distort least. Whole runs are what matters
(`benchmark.py --profile` says where their time goes); these numbers say what the processor makes of the products alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
import typer
from torch import Tensor
from torch.nn.functional import linear as torch_linear

from hpd_core.native import linear

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

WEIGHTS = ((576, 576), (1536, 576), (576, 1536))
"""(depth, columns) of SmolLM2's linear layers."""
ROWS = (1, 64, 128, 256, 460, 920, 2048)
_COPIES = 30
"""Layers whose weights take turns, as in a model: one alone would stay in the caches."""

Multiply = Callable[[Tensor], Tensor]


def ways_to_multiply(weights: Sequence[Tensor]) -> dict[str, list[Multiply]]:
    """By name, what multiplies by each of the weights: the ways that this processor has for their dtype."""
    found: dict[str, list[Multiply]] = {"torch": [_by_torch(weight) for weight in weights]}
    if weights[0].dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported():
        found["oneDNN, packed"] = [_by_onednn(weight) for weight in weights]
    if linear.fits(weights[0]):
        found["ours, tiles"] = [linear.TiledLinear(linear.pack(weight)) for weight in weights]
    return found


def _by_torch(weight: Tensor) -> Multiply:
    return lambda x: torch_linear(x, weight)


def _by_onednn(weight: Tensor) -> Multiply:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, 1024)
    return lambda x: torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")


def best_seconds(multiply: Sequence[Multiply], x: Tensor, repeats: int) -> float:
    """Processor seconds of one product; the weights take turns, and the best of several rounds counts."""
    rounds = []
    for _ in range(repeats + 1):  # the first one warms up
        started = time.thread_time()
        for each in multiply:
            each(x)
        rounds.append((time.thread_time() - started) / len(multiply))
    return min(rounds[1:])


def table(dtype: torch.dtype, rows: Sequence[int], repeats: int) -> Iterator[tuple[str, list[str]]]:
    """GFLOP/s of each kind of weight and each way to multiply by it, for so many rows."""
    torch.manual_seed(0)
    for depth, columns in WEIGHTS:
        weights = [torch.randn(columns, depth).to(dtype) for _ in range(_COPIES)]
        for way, multiply in ways_to_multiply(weights).items():
            cells = []
            for count in rows:
                seconds = best_seconds(multiply, torch.randn(count, depth).to(dtype), repeats)
                cells.append(f"{2 * count * depth * columns / seconds / 1e9:,.0f}")
            yield f"{depth} to {columns}, {way}", cells


@app.command()
@torch.inference_mode()
def main(
    dtype: Annotated[str, typer.Option(help="bfloat16 or float32")] = "bfloat16",
    repeats: Annotated[int, typer.Option(min=1, help="rounds, of which the best counts")] = 5,
) -> None:
    """Print a table of GFLOP/s of one thread, by the number of rows."""
    if dtype not in ("bfloat16", "float32"):
        raise typer.BadParameter(f"no such dtype here: {dtype}; there are bfloat16 and float32")
    torch.set_num_threads(1)
    typer.echo("| " + " | ".join([f"{dtype}, rows", *map(str, ROWS)]) + " |\n|" + "---|" * (len(ROWS) + 1))
    for name, cells in table(getattr(torch, dtype), ROWS, repeats):
        typer.echo("| " + " | ".join([name, *cells]) + " |")


if __name__ == "__main__":
    app()
