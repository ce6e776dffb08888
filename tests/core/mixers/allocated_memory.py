"""What a decoder has allocated for keys, values, states and columns, found by looking at the tensors themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from hpd_core.attention.plan import PrefixCache
from hpd_core.decoding.cohort import Cohort
from hpd_core.decoding.decoder import Decoder
from hpd_core.decoding.prompt import Prompt
from hpd_core.layout import Branch, tree_layout
from tests.core.helpers import random_ids


def _layer_tensors(layers: Iterable[Any]) -> list[Tensor]:
    return [tensor for layer in layers for tensor in (*layer.columns.values(), *layer.states.values())]


def cohorts_of(decoder: Decoder) -> list[Cohort]:
    """All that have memory."""
    scheduler = decoder._scheduler
    return [*scheduler.running, *([scheduler._prefix_cohort] if scheduler._prefix_cohort else [])]


def bytes_of_cohort(cohort: Cohort) -> tuple[int, int]:
    """Keys and values; states and columns."""
    cache: Any = cohort._cache
    slots = getattr(cache, "_slots", None)
    tensors = [cache._block.memory] if slots is None else [slot.memory for slot in slots]
    own = _layer_tensors(cohort._mixing.layers)
    return sum(tensor.nbytes for tensor in tensors), sum(tensor.nbytes for tensor in own)


def bytes_of_states(prefixes: Iterable[PrefixCache]) -> int:
    """Where trunks have come to; of each prefix once."""
    return sum(tensor.nbytes for prefix in set(prefixes) for tensor in _layer_tensors(prefix.mixing.layers))


def kept_prefixes(decoder: Decoder) -> set[PrefixCache]:
    """That are cached, or that somebody attends to."""
    common = decoder._scheduler._common
    used = (cohort.shared_prefixes for cohort in cohorts_of(decoder))
    return {*common._prefixes.values(), *common._texts.values()}.union(*used)


def unlike_prompts(rng: np.random.Generator, count: int, num_prefixes: int, head: Sequence[int] = ()) -> list[Prompt]:
    """Of several categories, with few branches and many, and values short and long; documents begin with `head`, or
    with some of it."""
    prefixes = [random_ids(rng, 3, 9) for _ in range(num_prefixes)]
    prompts = []
    for number in range(count):
        prefix = prefixes[number % num_prefixes]
        most = int(rng.choice([1, 4, 15]))
        branches = [Branch(random_ids(rng, 1, 3), most) for _ in range(int(rng.choice([1, 2, 9])))]
        document = [*head[: int(rng.integers(len(head) + 1))], *random_ids(rng, 1, 40)]
        prompts.append(Prompt(tree_layout(prefix, document, branches), tuple(prefix)))
    return prompts
