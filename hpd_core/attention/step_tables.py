"""Tables that one step's kernels read besides the model's tensors: one array of numbers, copied to the device at once.

    tiles    the work of one program of the attention: some neighbouring tokens of one prompt, and the columns that
             they see
    prompts  where each prompt's keys and values are, and its prefix's
    tokens   every token's id, position, scope, prompt and column
    rows     the tokens whose logits are wanted
    hidden   where the positions of columns are that no token sees from now on

So a step has one copy to the device and one launch of attention per layer, whatever the number of cohorts, prefixes and
prompts. Everything is counted from 0 over all cohorts of the step. Addresses are distances, in numbers, from a tensor
that the kernels get as an argument (an *origin*). So Triton knows how the data it loads is aligned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from hpd_core.attention.kv_cache import CacheShape, seen_offset
from hpd_core.attention.plan import AddressedPlan, PrefixCache
from hpd_core.layout import PUBLIC, IntArray

TILE_FIELDS = ("prompt", "first_token", "num_tokens", "num_open", "begin", "end")
"""Fields of a tile: its prompt, its first token in the packed row, its number of tokens (0: nothing to do). All tokens
see the first `num_open` columns, and after these at most some from `begin` to `end`."""

PROMPT_FIELDS = (
    *("keys", "keys_layer", "keys_head", "values", "values_layer", "values_head", "scopes", "positions"),
    *("prefix_length", "prefix_keys", "prefix_keys_layer", "prefix_keys_head"),
    *("prefix_values", "prefix_values_layer", "prefix_values_head"),
)
"""Fields of a prompt: where its column 0 is in layer 0 and head 0, the distance to the next layer and the next head;
where scopes and positions of its columns are; and the length, keys and values of its prefix likewise."""

TOKEN_FIELDS = ("id", "position", "scope", "prompt", "column")
"""Fields of a token. `scope`: its own, and the last that sees it (`packed_scopes`). `prompt` is -1 for padding of a
step of a fixed size, which is not stored."""

Numbers = TypeVar("Numbers", IntArray, Tensor)

_NOWHERE = np.iinfo(np.int64).min
"""Placeholder for an address."""

_TILE, _PROMPT = len(TILE_FIELDS), len(PROMPT_FIELDS)


@dataclass(frozen=True, slots=True)
class Cut:
    """Number of query rows of a tile.

    Attributes:
        rows: of a large tile. A query row is a token and one of the heads that share a KV head.
        few_rows: tiles of at most this many rows are computed as small ones.
        group: number of heads that share a KV head.
    """

    rows: int
    few_rows: int
    group: int

    @property
    def tokens(self) -> int:
        """Number of tokens of a large tile."""
        return max(1, self.rows // self.group)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Number of rows of each table.

    Attributes:
        tiles, prompts, tokens, rows, hidden: number for the table of this name.
    """

    tiles: int
    prompts: int
    tokens: int
    rows: int
    hidden: int

    @property
    def total(self) -> int:
        """Number of elements of all tables."""
        numbers = self.tiles * _TILE + self.prompts * _PROMPT + self.tokens * len(TOKEN_FIELDS)
        return numbers + self.rows + self.hidden

    def holds(self, other: Sizes) -> bool:
        """Return whether tables of these sizes have room for those of `other`."""
        return all(getattr(other, field.name) <= getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True, slots=True)
class StepTables:
    """Tables of one step, on the host.

    Attributes:
        numbers: int64, all tables one after the other: tiles [tiles, 6], prompts [prompts, 15], the tokens' fields
            [5, tokens], rows [rows], hidden [hidden].
        sizes: sizes of the tables.
        last_position: the highest of all tokens.
    """

    numbers: IntArray
    sizes: Sizes
    last_position: int


def step_tables(
    plans: Sequence[AddressedPlan],
    token_ids: IntArray,
    logit_rows: IntArray,
    cut: Cut,
    shape: CacheShape,
    origin: int,
    seen_origin: int,
    room: Sizes | None = None,
) -> StepTables:
    """Build the tables of a step.

    Args:
        plans: plans of all cohorts, in the order of the packed row.
        token_ids: int64 [T]
        logit_rows: int64 [n], indices into the packed row.
        shape: of the cache.
        origin, seen_origin: addresses that those of keys and values, and of scopes and positions, are counted from.
        room: tables of a fixed size, padded with tiles and tokens of no effect. None: as large as needed.

    Raises:
        ValueError: `room` is too small.
    """
    if not plans:  # a step of padding only
        assert room is not None
        return StepTables(_idle(room), room, 0)
    # A prompt without tokens in this step has no number.
    here = [np.nonzero(plan.counts)[0] for plan in plans]
    first_prompt = np.cumsum([0, *map(len, here)])
    prompts = np.concatenate(
        [
            np.searchsorted(rows, plan.prompts) + first
            for plan, rows, first in zip(plans, here, first_prompt[:-1], strict=True)
        ]
    )
    columns, scopes, lasts, positions, sights = (
        np.concatenate([getattr(plan, name) for plan in plans])
        for name in ("columns", "scopes", "lasts", "positions", "sights")
    )
    tiles = _tiles(plans, here, prompts, columns, scopes, sights, cut)
    hidden = [_hidden(plan, shape, seen_origin) for plan in plans]
    needed = Sizes(len(tiles), int(first_prompt[-1]), len(token_ids), len(logit_rows), sum(map(len, hidden)))
    sizes = room or needed
    if not sizes.holds(needed):
        raise ValueError(f"a step of {needed} does not fit {sizes}")
    numbers = _idle(sizes)
    parts = views(numbers, sizes)
    parts.tiles[: len(tiles)] = tiles
    for plan, rows, first in zip(plans, here, first_prompt[:-1], strict=True):
        parts.prompts[first : first + len(rows)] = _prompts(plan, rows, shape, origin, seen_origin)
    for row, values in enumerate((token_ids, positions, packed_scopes(scopes, lasts), prompts, columns)):
        parts.tokens[row, : len(values)] = values
    parts.rows[: len(logit_rows)] = logit_rows
    parts.hidden[: needed.hidden] = np.concatenate(hidden)
    return StepTables(numbers, sizes, int(positions.max()))


def packed_scopes(scopes: IntArray, lasts: IntArray) -> IntArray:
    """Pack each token's scope into the lower 32 bits, with its sign, and the last one that sees it into the upper ones.

    A kernel reads both at once.
    """
    return lasts << 32 | scopes & 0xFFFFFFFF


def _idle(sizes: Sizes) -> IntArray:
    """Return tables of no effect."""
    numbers = np.zeros(sizes.total, dtype=np.int64)
    parts = views(numbers, sizes)
    parts.tokens[TOKEN_FIELDS.index("prompt")] = -1
    parts.hidden[:] = _NOWHERE
    return numbers


@dataclass(frozen=True, slots=True)
class Views(Generic[Numbers]):
    """Views of the tables in one array or tensor."""

    tiles: Numbers
    prompts: Numbers
    tokens: Numbers
    rows: Numbers
    hidden: Numbers


def views(numbers: Numbers, sizes: Sizes) -> Views[Numbers]:
    """Return views of the tables in `numbers`, as `StepTables` has them."""
    parts = (sizes.tiles * _TILE, sizes.prompts * _PROMPT, sizes.tokens * len(TOKEN_FIELDS), sizes.rows, sizes.hidden)
    ends = np.cumsum(parts)
    tiles, prompts, tokens, rows, hidden = (
        numbers[int(end - size) : int(end)] for end, size in zip(ends, np.diff(ends, prepend=0), strict=True)
    )
    return Views(
        tiles.reshape(sizes.tiles, _TILE),
        prompts.reshape(sizes.prompts, _PROMPT),
        tokens.reshape(len(TOKEN_FIELDS), sizes.tokens),
        rows,
        hidden,
    )


def _hidden(plan: AddressedPlan, shape: CacheShape, seen_origin: int) -> IntArray:
    """Return where the positions of its hidden columns are, int64 [h]."""
    rows, at = np.unique(plan.hidden_prompts, return_inverse=True)
    addresses, capacities = _slots(plan, rows)
    positions = _scopes(addresses, capacities, shape, seen_origin) + capacities
    found: IntArray = positions[at] + plan.hidden_columns
    return found


def _tiles(
    plans: Sequence[AddressedPlan],
    here: Sequence[IntArray],
    prompts: IntArray,
    columns: IntArray,
    scopes: IntArray,
    sights: IntArray,
    cut: Cut,
) -> IntArray:
    """Build the table of tiles, int64 [tiles, 6]: large ones first, each kind in the order of the tokens.

    A document that is read both ways is the first of its prompt's leading columns, all open to its tokens. After the
    open columns kernels decide by positions, by which these tokens would not see the columns after their own.
    """
    pairs = list(zip(plans, here, strict=True))
    counts, num_leading, leading_positions = (
        np.concatenate([getattr(plan, name)[rows] for plan, rows in pairs])
        for name in ("counts", "num_leading", "leading_positions")
    )
    per_prompt = -(-counts // cut.tokens)
    prompt = np.repeat(np.arange(len(counts)), per_prompt)
    number = np.arange(len(prompt)) - np.repeat(np.cumsum(per_prompt) - per_prompt, per_prompt)
    first = (np.cumsum(counts) - counts)[prompt] + number * cut.tokens
    num_tokens = np.minimum(counts[prompt] - number * cut.tokens, cut.tokens)

    num_open = np.clip(np.minimum.reduceat(sights, first) - leading_positions[prompt] + 1, 0, num_leading[prompt])
    end = np.maximum(np.maximum.reduceat(columns, first) + 1, num_open)
    # Whether a token sees no column between the leading ones and its own branch, and its branch is entirely in this
    # step, unless it is the prompt's first one there.
    may_skip = np.concatenate([plan.leads_only[rows] & plan.is_prefill for plan, rows in pairs])
    begin = np.maximum(num_open, np.minimum.reduceat(_first_seen(may_skip[prompts], prompts, columns, scopes), first))
    tiles = np.stack([prompt, first, num_tokens, num_open, np.minimum(begin, end), end], axis=1)
    found: IntArray = tiles[np.argsort(num_tokens * cut.group <= cut.few_rows, kind="stable")]
    return found


def _first_seen(may_skip: npt.NDArray[np.bool_], prompts: IntArray, columns: IntArray, scopes: IntArray) -> IntArray:
    """Return for each token a column before which it sees only leading ones, int64 [T]; 0 if that is not known.

    It is the first of its branch, if the whole branch is in this step.
    """
    is_new_prompt = np.diff(prompts, prepend=-1) != 0
    begins = is_new_prompt | (np.diff(scopes, prepend=PUBLIC) != 0)
    run = np.maximum.accumulate(np.where(begins, np.arange(len(prompts)), 0))
    # The first run of a prompt may have begun in an earlier step.
    is_whole = (scopes != PUBLIC) & may_skip & ~is_new_prompt[run]
    found: IntArray = np.where(is_whole, columns[run], 0)
    return found


def _prompts(plan: AddressedPlan, rows: IntArray, shape: CacheShape, origin: int, seen_origin: int) -> IntArray:
    """Build the table of the prompts `rows`, int64 [n, 15]."""
    addresses, capacities = _slots(plan, rows)
    table = np.zeros((len(rows), _PROMPT), dtype=np.int64)
    table[:, 0] = (addresses - origin) // shape.dtype.itemsize
    layer = shape.layer
    table[:, 1] = layer.num_kv_heads * capacities * layer.key_size
    table[:, 2] = capacities * layer.key_size
    table[:, 3] = table[:, 0] + shape.num_layers * table[:, 1]
    table[:, 4] = layer.num_kv_heads * capacities * layer.value_size
    table[:, 5] = capacities * layer.value_size
    table[:, 6] = _scopes(addresses, capacities, shape, seen_origin)
    table[:, 7] = table[:, 6] + capacities
    of_prefix: dict[PrefixCache | None, list[int]] = {None: [0] * (_PROMPT - 8)}
    for number, row in enumerate(rows.tolist()):
        prefix = plan.prefixes[row]
        if prefix not in of_prefix and prefix is not None:
            of_prefix[prefix] = [prefix.num_tokens, *_places_of(prefix, origin, shape.dtype.itemsize)]
        table[number, 8:] = of_prefix[prefix]
    return table


def _slots(plan: AddressedPlan, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return the addresses of the slots of the prompts `rows`, in bytes, and their capacities, int64 [n] each."""
    slots = [plan.slots[row] for row in rows.tolist()]
    addresses = np.array([slot.memory.data_ptr() for slot in slots], dtype=np.int64)
    return addresses, np.array([slot.capacity for slot in slots], dtype=np.int64)


def _scopes(addresses: IntArray, capacities: IntArray, shape: CacheShape, seen_origin: int) -> IntArray:
    """Return where the scopes of slots are, int64 [n]; positions come after them."""
    found: IntArray = (addresses + seen_offset(shape, capacities) - seen_origin) // 8
    return found


def _places_of(prefix: PrefixCache, origin: int, itemsize: int) -> list[int]:
    """Return for a prefix's keys, then values, their place and the distances to the next layer and head, in numbers.

    Raises `ValueError` if an address is not aligned to a number."""
    if not prefix.places:  # looked up once
        prefix.places.extend((of[0].data_ptr(), *_strides(of)) for of in (prefix.keys, prefix.values))
    found = []
    for address, layer, head in prefix.places:
        distance, rest = divmod(address - origin, itemsize)
        if rest:
            raise ValueError("keys and values are not aligned to their numbers")
        found += [distance, layer, head]
    return found


def _strides(layers: Sequence[Tensor]) -> tuple[int, int]:
    """Return the distances, in numbers, from layer to layer, and from head to head, of tensors [H_kv, L, D].

    Raises `ValueError` if layers are at other distances, or a head's columns have gaps."""
    first = layers[0]
    heads, columns, numbers = first.stride()
    addresses = [layer.data_ptr() for layer in layers]
    step = addresses[1] - addresses[0] if len(layers) > 1 else 0
    if addresses != list(range(addresses[0], addresses[0] + step * len(layers), step) if step else addresses[:1]):
        raise ValueError("layers are not at equal distances")
    if numbers != 1 or columns != first.shape[-1] or any(layer.stride() != first.stride() for layer in layers):
        raise ValueError(f"a head's columns have gaps: {first.stride()}")
    return step // first.itemsize, heads
