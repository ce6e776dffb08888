"""Random steps of several cohorts for an attention that finds keys and values by address, and what it is to compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from hpd_core.attention.kv_cache import CachePool, CacheShape, CacheSlot
from hpd_core.attention.plan import AddressedPlan, PrefixCache
from hpd_core.attention.step_tables import packed_scopes
from hpd_core.decoding.cohort_cache import UNSEEN
from hpd_core.layout import EVERYBODY, PUBLIC, IntArray, visible

if TYPE_CHECKING:
    from hpd_core.attention.triton_step import TritonStep

NUM_LAYERS, LAYER = 3, 1
"""Of the cache, and which of them attends."""


@dataclass(frozen=True)
class Shape:
    """Of a random step: of each cohort the new tokens of each prompt; and what a layer may be like.

    Attributes:
        earlier: columns that a prompt has in the cache, at most.
    """

    cohorts: list[list[int]]
    earlier: int
    num_kv_heads: int = 2
    group: int = 3
    key_size: int = 64
    value_size: int = 64
    prefix_lengths: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32
    window: int | None = None  # a negative one: chunks
    softcap: float | None = None
    sinks: float | None = None
    scale: float = 0.3


SHAPES = st.builds(
    Shape,
    cohorts=st.lists(
        st.lists(st.one_of(st.integers(0, 7), st.integers(8, 70)), min_size=1, max_size=3).filter(any),
        min_size=1,
        max_size=3,
    ),
    earlier=st.sampled_from([0, 1, 14, 50, 90, 300]),
    num_kv_heads=st.integers(1, 3),
    group=st.integers(1, 5),
    key_size=st.sampled_from([2, 8, 24, 32, 64, 80]),
    value_size=st.sampled_from([1, 8, 16, 40, 64, 80]),
    prefix_lengths=st.lists(st.sampled_from([1, 15, 64, 33, 130]), max_size=2).map(tuple),
    window=st.sampled_from([None, None, 1, 9, 60, -5, -32]),
    softcap=st.sampled_from([None, 3.0]),
    sinks=st.sampled_from([None, 0.0, 100.0, -100.0]),
    scale=st.sampled_from([0.3, 6.0]),
)


@dataclass
class StepProblem:
    """Plans of cohorts, T new tokens, and the settings of the layer.

    Where the cache holds nothing, it holds NaN, at a position that all tokens see.
    """

    cache_shape: CacheShape
    plans: list[AddressedPlan]
    q: Tensor
    k: Tensor
    v: Tensor
    settings: dict[str, Any]

    @property
    def num_tokens(self) -> int:
        """T"""
        return len(self.q)

    def step(self, *, small_steps: bool = False) -> TritonStep:
        """The tables on the device. `small_steps`: with tiles as CUDA graphs have them."""
        from hpd_core.attention.triton_step import TritonAttention

        group = self.q.shape[1] // self.k.shape[1]
        attention = TritonAttention(self.cache_shape, group, small_steps=small_steps)
        ids = np.arange(self.num_tokens)
        return attention.step(attention.tables(self.plans, ids, ids[:1]))

    def run(self, *, small_steps: bool = False) -> Tensor:
        """[T, H, D_v]: who may see the new columns is noted, keys and values are stored, and then all attend."""
        step = self.step(small_steps=small_steps)
        step.note()
        step.store(LAYER, self.q, self.k, self.v)
        out = torch.full((*self.q.shape[:2], self.v.shape[2]), torch.nan, dtype=self.q.dtype, device=self.q.device)
        step.attend(LAYER, self.q, out, **self.settings)
        return out


def step_problem(rng: np.random.Generator, shape: Shape, device: torch.device | None = None) -> StepProblem:
    """Cohorts that prefill or decode, with and without prefixes."""
    device = device or torch.device("cpu")
    cache_shape = CacheShape.uniform(
        NUM_LAYERS, shape.num_kv_heads, shape.key_size, shape.value_size, shape.dtype, device
    )

    def draw(*size: int) -> Tensor:
        return torch.from_numpy(rng.standard_normal(size)).to(device, shape.dtype)

    prefixes: list[PrefixCache | None] = [None]
    for length in shape.prefix_lengths:
        sizes = [(NUM_LAYERS, shape.num_kv_heads, length, size) for size in (shape.key_size, shape.value_size)]
        prefixes.append(PrefixCache(*(list(draw(*size)) for size in sizes)))
    plans: list[AddressedPlan] = []
    for counts in shape.cohorts:
        start = plans[-1].stop if plans else 0
        picked = [prefixes[i] for i in rng.integers(0, len(prefixes), len(counts))]
        may_read_both_ways = shape.window is None
        plans.append(_cohort(rng, cache_shape, np.array(counts), shape.earlier, picked, start, may_read_both_ways))
    num_tokens, num_heads = plans[-1].stop, shape.num_kv_heads * shape.group
    # As models give them: heads before tokens in memory, or all cut from one product.
    q = draw(num_heads, num_tokens, shape.key_size).transpose(0, 1)
    both = draw(num_tokens, shape.num_kv_heads, shape.key_size + shape.value_size)
    k, v = both[..., : shape.key_size], both[..., shape.key_size :]
    sinks = None if shape.sinks is None else draw(num_heads) + shape.sinks
    options = {"scale": shape.scale, "window": shape.window, "softcap": shape.softcap, "sinks": sinks}
    return StepProblem(cache_shape, plans, q, k, v, options)


def _slot(rng: np.random.Generator, shape: CacheShape, capacity: int, used: int) -> CacheSlot:
    """One that holds numbers in its first columns."""
    slot = CachePool(shape).take_slot(capacity)
    slot.seen[0], slot.seen[1] = PUBLIC, 0
    for tensor in (slot.keys, slot.values):
        tensor.fill_(torch.nan)
        new = rng.standard_normal((*tensor.shape[:2], used, tensor.shape[3]))
        tensor[:, :, :used] = torch.from_numpy(new).to(tensor)
    return slot


def _cohort(
    rng: np.random.Generator,
    shape: CacheShape,
    counts: IntArray,
    most_earlier: int,
    prefixes: list[PrefixCache | None],
    start: int,
    may_read_both_ways: bool,
) -> AddressedPlan:
    """Prompts with `most_earlier` columns at most in the cache; documents whose prefill begins may be read both
    ways."""
    is_prefill = bool(rng.random() < 0.5)
    earlier = rng.integers(0, most_earlier + 1, len(counts))
    prompts = np.repeat(np.arange(len(counts)), counts)
    scopes, positions, sights = np.zeros_like(prompts), np.zeros_like(prompts), np.zeros_like(prompts)
    slots, hidden, leading = [], [], []
    for p, (first, count) in enumerate(zip(earlier.tolist(), counts.tolist(), strict=True)):
        slot = _slot(rng, shape, first + count + int(rng.integers(1, 9)), first)
        behind = getattr(prefixes[p], "num_tokens", 0)
        old_scopes, old_positions, document = _earlier(rng, first, behind)
        # Some are seen from the next scopes, too, as a key is from the nodes behind it.
        old_lasts = _lasts(old_scopes) + np.where(old_scopes == PUBLIC, 0, rng.integers(0, 3, first))
        old_seen = np.stack([packed_scopes(old_scopes, old_lasts), old_positions])
        slot.seen[:, :first] = torch.from_numpy(old_seen).to(shape.device)
        hidden.append(document + np.nonzero(rng.random(first - document) < 0.1)[0])
        begin = behind + (document if rng.random() < 0.7 else int(rng.integers(0, document + 1)))
        own = prompts == p
        scopes[own], positions[own] = _new(rng, count, begin, behind + document, is_prefill, old_scopes)
        old_positions[hidden[-1]] = UNSEEN
        all_positions = np.concatenate([old_positions, positions[own]])
        both_ways = may_read_both_ways and is_prefill and first == 0 and rng.random() < 0.5
        leading.append(_leading(rng, np.concatenate([old_scopes, scopes[own]]), all_positions, is_whole=both_ways))
        length, at, _ = leading[-1]
        # Behind a document that is read so, public ones may follow that are not.
        read = (length if rng.random() < 0.7 else int(rng.integers(0, length + 1))) if both_ways else 0
        sights[own] = np.where(np.arange(count) < read, at + read - 1, positions[own])
        slots.append(slot)
    num_leading, leading_positions, leads_only = zip(*leading, strict=True)
    return AddressedPlan(
        start=start,
        stop=start + len(prompts),
        counts=counts,
        used=earlier + counts,
        prompts=prompts,
        columns=np.concatenate([np.arange(first, first + n) for first, n in zip(earlier, counts, strict=True)]),
        scopes=scopes,
        lasts=_lasts(scopes),
        positions=positions,
        sights=sights,
        num_leading=np.array(num_leading),
        leading_positions=np.array(leading_positions),
        leads_only=np.array(leads_only),
        is_prefill=is_prefill,
        slots=slots,
        hidden_prompts=np.repeat(np.arange(len(counts)), [len(columns) for columns in hidden]),
        hidden_columns=np.concatenate(hidden),
        prefixes=prefixes,
    )


def _lasts(scopes: IntArray) -> IntArray:
    return np.where(scopes == PUBLIC, EVERYBODY, scopes)


def unpacked(packed: Any) -> tuple[Any, Any]:
    """What `packed_scopes` has put into one number."""
    return ((packed & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000, packed >> 32


def _leading(
    rng: np.random.Generator, scopes: IntArray, positions: IntArray, *, is_whole: bool
) -> tuple[int, int, bool]:
    """So many columns are the first ones of a document, or less unless `is_whole`; where they begin; whether they are
    all public ones."""
    at = int(positions[0]) if len(positions) else 0
    leads = (scopes == PUBLIC) & (positions == at + np.arange(len(positions))) & (positions != UNSEEN)
    length = int(np.argmin([*leads, False]))
    length = length if is_whole or rng.random() < 0.7 else int(rng.integers(0, length + 1))
    return length, at, not (scopes[length:] == PUBLIC).any()


def _earlier(rng: np.random.Generator, count: int, behind: int) -> tuple[IntArray, IntArray, int]:
    """Scopes and positions of columns in the cache, some of which nobody sees; how many of the first are a document."""
    document = int(rng.choice([0, count, rng.integers(0, count + 1)]))
    scopes, positions = np.full(count, PUBLIC), behind + np.arange(count)
    scopes[document:] = rng.integers(PUBLIC, 4, count - document)
    positions[document:] = behind + rng.integers(0, count + 1, count - document)
    positions[document:][rng.random(count - document) < 0.2] = UNSEEN
    return scopes, positions, document


def _new(
    rng: np.random.Generator, count: int, begin: int, document_end: int, is_prefill: bool, earlier: IntArray
) -> tuple[IntArray, IntArray]:
    """Scopes and positions of a prompt's new tokens, in stretches of one scope; none sees one that comes behind it.

    In a prefill a scope has one stretch, which is all of it, and is behind the document; but the first may have begun
    `earlier`.
    """
    scopes: list[int] = []
    positions: list[int] = []
    latest_of: dict[int, int] = {}
    while len(scopes) < count:
        length = min(count - len(scopes), int(rng.choice([1, 5, 40])))
        scope = int(rng.integers(PUBLIC, 4))
        if is_prefill and scope != PUBLIC and (scopes or not (earlier == scope).any()):
            scope = 10 + len(scopes)
        latest = max(positions, default=begin - 1) if scope == PUBLIC else latest_of.get(scope, begin - 1)
        if is_prefill and scope != PUBLIC:
            latest = max(latest, latest_of.get(PUBLIC, begin - 1), document_end - 1)
        first = latest + (1 if rng.random() < 0.7 else int(rng.integers(1, 5)))
        scopes += [scope] * length
        positions += range(first, first + length)
        latest_of[scope] = first + length - 1
    return np.array(scopes, dtype=np.int64), np.array(positions, dtype=np.int64)


def expected(item: StepProblem) -> Tensor:
    """One token at a time, in fp64, from the definition, [T, H, D_v]. Reads the cache as the kernel has left it."""
    q, settings = item.q.double().cpu(), item.settings
    group = q.shape[1] // item.k.shape[1]
    sinks = None if settings["sinks"] is None else settings["sinks"].double().cpu()
    out = torch.zeros(*q.shape[:2], item.v.shape[2], dtype=torch.float64)
    for plan in item.plans:
        for token, prompt in enumerate(plan.prompts.tolist()):
            at = (plan.scopes[token], plan.sights[token])
            slot = plan.slots[prompt]
            scopes, positions = slot.seen[:, : plan.used[prompt]].cpu()
            seen = visible(*at, *unpacked(scopes), positions, settings["window"]).nonzero()[:, 0]
            k, v = (tensor[LAYER].double().cpu()[:, seen] for tensor in (slot.keys, slot.values))
            prefix = plan.prefixes[prompt]
            if prefix is not None:
                places = torch.arange(prefix.num_tokens)
                shared = visible(PUBLIC, at[1], PUBLIC, EVERYBODY, places, settings["window"])
                k = torch.cat([prefix.keys[LAYER].double().cpu()[:, shared], k], dim=1)
                v = torch.cat([prefix.values[LAYER].double().cpu()[:, shared], v], dim=1)
            k, v = k.repeat_interleave(group, dim=0), v.repeat_interleave(group, dim=0)
            scores = (k @ q[plan.start + token, :, :, None])[..., 0] * settings["scale"]
            if settings["softcap"] is not None:
                scores = torch.tanh(scores / settings["softcap"]) * settings["softcap"]
            if sinks is not None:
                scores = torch.cat([scores, sinks[:, None]], dim=1)
            weights = scores.softmax(1)[:, : v.shape[1]]
            out[plan.start + token] = (weights[:, None] @ v)[:, 0]
    return out


ROUNDING = {torch.float32: 5e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
"""Of fp32 at scores of some hundred."""


def check(item: StepProblem, found: Tensor) -> None:
    """That `found` is attention."""
    rounding = ROUNDING[found.dtype]
    torch.testing.assert_close(found.double().cpu(), expected(item), atol=rounding, rtol=rounding)


def copies(item: StepProblem) -> list[Tensor]:
    """All that a step may write to: keys, values, scopes and positions of every cohort."""
    return [
        tensor.clone() for plan in item.plans for slot in plan.slots for tensor in (slot.keys, slot.values, slot.seen)
    ]


def _rounding(numbers: Tensor) -> float:
    """A GPU adds up in another order: a last bit of the largest, since the terms of a rotation may nearly cancel."""
    largest = float(numbers.abs().max()) if numbers.numel() else 0.0
    return max(1e-5, largest * (5e-6 if numbers.dtype == torch.float32 else torch.finfo(numbers.dtype).eps))


def check_cache(item: StepProblem, before: list[Tensor], k: Tensor, v: Tensor) -> None:
    """The new tokens are in the cache, with these keys and values, and all else is as it was `before`."""
    rest = iter(before)
    for plan in item.plans:
        for prompt, slot in enumerate(plan.slots):
            own = np.nonzero(plan.prompts == prompt)[0]
            columns = torch.from_numpy(plan.columns[own]).to(k.device)
            tokens = torch.from_numpy(plan.start + own).to(k.device)
            for tensor, new in ((slot.keys, k), (slot.values, v)):
                wanted = next(rest)
                wanted[LAYER][:, columns] = new[tokens].transpose(0, 1)
                torch.testing.assert_close(tensor, wanted, equal_nan=True, atol=_rounding(new), rtol=0)
            wanted = next(rest)
            hidden = plan.hidden_columns[plan.hidden_prompts == prompt]
            wanted[1, torch.from_numpy(hidden).to(k.device)] = UNSEEN
            seen = np.stack([packed_scopes(plan.scopes[own], plan.lasts[own]), plan.positions[own]])
            wanted[:, columns] = torch.from_numpy(seen).to(k.device)
            assert torch.equal(slot.seen, wanted)
