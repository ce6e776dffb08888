"""How attention is best cut on a GPU: milliseconds a layer for several sizes of its programs (attention/triton.py).

    python bench/attention_blocks.py

For heads as Qwen3-8B and Qwen3-1.7B have them, in bf16: a large step (38 prompts of 346 tokens behind a prefix of 300,
and 300 that decode 2 to 16 values each) and the end of a run (250 prompts that decode 1 to 3). For a GPU that is not in
the table of the code, take what is fastest into `_BLOCKS`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
import torch
import typer

from hpd_core.attention.cache_slots import CacheSlot
from hpd_core.attention.kv_cache import CachePool, CacheShape
from hpd_core.attention.plan import AddressedPlan, PrefixCache
from hpd_core.decoding.addressed_cache import AddressedCache
from hpd_core.decoding.cohort_input import NewTokens
from hpd_core.layout import EVERYBODY, PUBLIC, IntArray

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

Sizes = tuple[int, int, int, int, int, int | None]
"""The fields of `Blocks`, in their order."""

HEADS = {"8b": (32, 8), "1.7b": (16, 8)}
SIZE = 128
LARGE = [
    (64, 64, 32, 4, 3, None),
    (64, 64, 32, 4, 3, 168),
    (64, 64, 32, 4, 2, 128),
    (64, 64, 64, 4, 2, None),
    (64, 16, 32, 4, 3, 168),
    (128, 64, 32, 8, 3, 128),
    (128, 128, 64, 8, 2, None),
]
SMALL = [
    (16, 16, 32, 1, 3, None),
    (16, 16, 32, 1, 4, None),
    (16, 16, 64, 1, 2, None),
    (16, 16, 32, 2, 3, None),
    (16, 16, 32, 4, 3, None),
    (16, 16, 64, 4, 2, None),
    (64, 32, 64, 4, 2, None),
]
PREFIX, DOCUMENT, KEYS, KEY = 300, 250, 16, 6


def cohort(shape: CacheShape, prefix: PrefixCache, count: int, live: int, start: int) -> AddressedPlan:
    """`count` prompts that decode `live` values each; 0: that are prefilled."""
    cache = AddressedCache.for_prompts(CachePool(shape), [prefix] * count, np.full(count, 1024))
    for slot in cache._slots:
        _fill(slot)
    positions = np.concatenate([np.arange(DOCUMENT), np.tile(np.arange(DOCUMENT, DOCUMENT + KEY), KEYS)]) + PREFIX
    scopes = np.concatenate([np.full(DOCUMENT, PUBLIC), np.repeat(np.arange(KEYS), KEY)])
    everybody = np.arange(count)
    plan = cache.append(_tokens(count, positions, scopes), start, everybody, is_prefill=True)
    for behind in range(3 if live else 0):
        value = np.full(live, PREFIX + DOCUMENT + KEY + behind)
        plan = cache.append(_tokens(count, value, np.arange(live)), start, everybody)
    return plan


def _fill(slot: CacheSlot) -> None:
    slot.keys.normal_()
    slot.values.normal_()


def _tokens(count: int, positions: IntArray, scopes: IntArray) -> NewTokens:
    size = len(positions)
    prompts, ranks = np.repeat(np.arange(count), size), np.tile(np.arange(size), count)
    ids, positions, scopes, lasts = (
        np.tile(each, count)
        for each in (np.zeros(size, dtype=np.int64), positions, scopes, np.where(scopes == PUBLIC, EVERYBODY, scopes))
    )
    return NewTokens(ids, positions, positions, scopes, lasts, prompts, ranks)


def measure(
    name: str,
    kind: str,
    of_cohorts: Sequence[tuple[int, int]],
    candidates: Sequence[tuple[int, int, int, int, int, int | None]],
) -> None:
    """Prints a line for each of the candidates. of_cohorts: as `cohort` has count and live."""
    import triton  # not everywhere

    from hpd_core.attention.triton import Blocks
    from hpd_core.attention.triton_step import TritonAttention

    device = torch.device("cuda")
    num_heads, num_kv_heads = HEADS[name]
    shape = CacheShape.uniform(2, num_kv_heads, SIZE, SIZE, torch.bfloat16, device)
    slot = CacheSlot.new(shape, PREFIX)
    _fill(slot)
    prefix = PrefixCache(list(slot.keys), list(slot.values))
    plans: list[AddressedPlan] = []
    for count, live in of_cohorts:
        plans.append(cohort(shape, prefix, count, live, plans[-1].stop if plans else 0))
    total = plans[-1].stop
    q = torch.randn(total, num_heads + 2 * num_kv_heads, SIZE, device=device, dtype=torch.bfloat16)[:, :num_heads]
    out = torch.empty(total, num_heads, SIZE, device=device, dtype=torch.bfloat16)
    ids = np.zeros(total, dtype=np.int64)
    for sizes in candidates:
        attention = TritonAttention(shape, num_heads // num_kv_heads, blocks=Blocks(*sizes))
        step = attention.step(attention.tables(plans, ids, ids[:1]))
        step.note()
        found = triton.testing.do_bench(
            lambda step=step: step.attend(1, q, out, scale=SIZE**-0.5), return_mode="median"
        )
        print(f"{name:>5} {kind:>5} {total:>6} tokens {sizes!s:>26}: {found:.3f} ms a layer", flush=True)


@app.command()
def main() -> None:
    """Milliseconds a layer, for several ways to cut attention on this GPU."""
    if not torch.cuda.is_available():
        sys.exit("there is no GPU here")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print("query rows of large and small tiles, columns, warps, stages, registers at most")
    for name in HEADS:
        measure(name, "large", [(38, 0), *((60, live) for live in (16, 12, 8, 4, 2))], LARGE)
        measure(name, "end", [(50, live) for live in (1, 1, 2, 2, 3)], SMALL)


if __name__ == "__main__":
    app()
