"""What a decoder has allocated for keys, values, states and columns, found by looking at the tensors themselves."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

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
    slots = getattr(cache._attention, "_slots", None)
    if slots is None:
        tensors = [cache._attention._block.memory]
    else:
        tensors = [each for slot in slots for each in (slot.keys, slot.values)]
    own = _layer_tensors(cache._mixing.layers)
    return sum(tensor.nbytes for tensor in tensors), sum(tensor.nbytes for tensor in own)


def bytes_of_states(prefixes: Iterable[PrefixCache]) -> int:
    """Where trunks have come to; of each prefix once."""
    return sum(tensor.nbytes for prefix in set(prefixes) for tensor in _layer_tensors(prefix.mixing.layers))


def kept_prefixes(decoder: Decoder) -> set[PrefixCache]:
    """That are cached, or that somebody attends to."""
    common = decoder._scheduler._common
    used = (cohort.shared_prefixes for cohort in cohorts_of(decoder))
    return {*common.prefixes, *common.texts}.union(*used)


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


class Made(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees what is made while it is entered.

    Attributes:
        calls: of torch's operations.
        bytes, most_bytes: of what was made and is still there, and how many that were at most.
    """

    calls = bytes = most_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.calls += 1
        if isinstance(made, Tensor) and func._schema.returns[0].alias_info is None:
            self.bytes += made.nbytes
            self.most_bytes = max(self.most_bytes, self.bytes)
            weakref.finalize(made, self._gone, made.nbytes)
        return made

    def _gone(self, num_bytes: int) -> None:
        self.bytes -= num_bytes
