"""Times one layer's attention of SmolLM2's size on this CPU, by way to attend: microseconds of one thread.

    python bench/attention_speed.py                     bfloat16
    python bench/attention_speed.py --dtype float32

A whole cohort of 32 prompts that share a prefix, random numbers for tokens: its prefill, and a step of all its values.
Processor time of one thread is counted, which neighbours on the machine distort least. Masks are made before, for all
layers share them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
import torch
import typer

from hpd_core import ModelError
from hpd_core.attention.dispatch import PackedBatch, Way, cache_order, packed_attention, way_to_attend
from hpd_core.attention.kv_cache import CachePool, CacheShape
from hpd_core.attention.plan import AttentionPlan, PrefixCache
from hpd_core.decoding.cohort import Cohort
from hpd_core.decoding.cohort_cache import CohortInput
from hpd_core.decoding.next_token import Chosen
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import FREE, Branch, tree_layout
from hpd_core.text.endings import Endings

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_NUM_HEADS, _NUM_KV_HEADS, _HEAD_SIZE = 9, 3, 64
_NUM_PROMPTS, _KEY_LENGTH = 32, 4
_VOCABULARY = 1000
_WAYS: tuple[Way, ...] = ("native", "eager")


@dataclass(frozen=True, slots=True)
class CohortSizes:
    """Of each prompt of a cohort: tokens of the prefix that all share, tokens of its document, values."""

    prefix: int
    document: int
    num_values: int


COHORTS = {"listings": CohortSizes(240, 250, 16), "titles": CohortSizes(140, 40, 11)}


def table(dtype: torch.dtype, cohorts: Sequence[CohortSizes], repeats: int) -> Iterator[tuple[str, list[str]]]:
    """A row a way to attend, where this machine has it: prefill and decoding of each cohort, in microseconds."""
    shape = CacheShape.uniform(1, _NUM_KV_HEADS, _HEAD_SIZE, _HEAD_SIZE, dtype, torch.device("cpu"))
    for way in _WAYS:
        try:
            way_to_attend(way, shape)
        except ModelError:
            continue
        seconds = [part for sizes in cohorts for part in attention_seconds(way, shape, sizes, repeats)]
        yield way, [f"{part * 1e6:,.0f}" for part in seconds]


def attention_seconds(way: Way, shape: CacheShape, sizes: CohortSizes, repeats: int) -> tuple[float, float]:
    """(prefill, decoding) of one cohort."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    pool = CachePool(shape, cache_order(way, shape), max_tokens=2**16)
    cohort = Cohort.admit(*_prompts(rng, pool, sizes), pool)
    fed = cohort.next_input(0, 2**30)
    prefill = best_seconds(_one_layer(way, shape, fed), repeats)
    count = len(fed.logit_rows)
    chosen = Chosen(rng.integers(0, _VOCABULARY, count), np.zeros(count, dtype=np.float32), np.full(count, FREE))
    cohort.accept(chosen, Endings.none(_VOCABULARY))
    return prefill, best_seconds(_one_layer(way, shape, cohort.next_input(0, 2**30)), repeats)


def _prompts(rng: np.random.Generator, pool: CachePool, sizes: CohortSizes) -> tuple[list[Prompt], list[PrefixCache]]:
    block = pool.take(1, pool.order.room_for(sizes.prefix))
    for tensor in (*block.keys, *block.values):
        tensor.normal_()
    prefix = PrefixCache(*block.copy_of_prompt(0, sizes.prefix))
    ids = rng.integers(0, _VOCABULARY, sizes.prefix + sizes.document).tolist()
    branches = [Branch(ids[:_KEY_LENGTH], 8) for _ in range(sizes.num_values)]
    layout = tree_layout(ids[: sizes.prefix], ids[sizes.prefix :], branches)
    return [Prompt(layout, "prefix") for _ in range(_NUM_PROMPTS)], [prefix] * _NUM_PROMPTS


def _one_layer(way: Way, shape: CacheShape, fed: CohortInput) -> Callable[[], Any]:
    heads = (_NUM_HEADS, _NUM_KV_HEADS, _NUM_KV_HEADS)
    q, k, v = (torch.randn(1, count, len(fed.token_ids), _HEAD_SIZE).to(shape.dtype) for count in heads)
    plans = [fed.plan] if isinstance(fed.plan, AttentionPlan) else []
    module = torch.nn.Module()
    return lambda: packed_attention(module, q, k, v, None, hpd_batch=PackedBatch(plans, way, calls=(0,)))


def best_seconds(run: Callable[[], Any], repeats: int) -> float:
    """Processor seconds of the best of several rounds, behind one that is not counted."""
    rounds = []
    for _ in range(repeats + 1):
        started = time.thread_time()
        run()
        rounds.append(time.thread_time() - started)
    return min(rounds[1:])


@app.command()
@torch.inference_mode()
def main(
    dtype: Annotated[str, typer.Option(help="bfloat16 or float32")] = "bfloat16",
    repeats: Annotated[int, typer.Option(min=1, help="rounds, of which the best counts")] = 20,
) -> None:
    """Print a table of microseconds of one thread, by way to attend."""
    if dtype not in ("bfloat16", "float32"):
        raise typer.BadParameter(f"no such dtype here: {dtype}; there are bfloat16 and float32")
    torch.set_num_threads(1)
    heads = [f"{name}, {part}" for name in COHORTS for part in ("prefill", "decoding")]
    typer.echo("| " + " | ".join([f"{dtype}, µs", *heads]) + " |\n|" + "---|" * (len(heads) + 1))
    for way, cells in table(getattr(torch, dtype), list(COHORTS.values()), repeats):
        typer.echo("| " + " | ".join([way, *cells]) + " |")


if __name__ == "__main__":
    app()
