"""What layers beside attention keep is counted where keys and values are."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core.decoding.cohort_cache import MixerRoom, slot_bytes
from hpd_core.decoding.decoder import Decoder
from hpd_core.decoding.prompt import Prompt
from hpd_core.families.table import mixers_of
from hpd_core.mixers.states import grown
from tests.core.helpers import new_decoder, random_ids
from tests.core.native import WAYS
from tests.examples import examples

from .allocated_memory import bytes_of_cohort, bytes_of_states, cohorts_of, kept_prefixes, unlike_prompts
from .hybrids import build_hybrid


class Checked:
    """Holds a decoder's accounts to what it has allocated, after each step.

    Attributes:
        most: bytes of states and columns at their highest; keys and values apart, which grow by rules of their own.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder, self.most = decoder, 0
        shape = decoder.pool.shape
        mixers = mixers_of(decoder._model)
        assert mixers is not None
        self.slot = slot_bytes(mixers.shapes, shape)
        self.room = MixerRoom.of(mixers.shapes, shape)

    def run(self, prompts: list[Prompt]) -> int:
        """Returns how often a prefix was computed."""
        decoder, num_computed = self._decoder, 0
        decoder.add(prompts)
        while decoder.has_work:
            num_computed += len(decoder.step().computed_prefixes)
            self._check()
        return num_computed

    def _check(self) -> None:
        scheduler, pool = self._decoder._scheduler, self._decoder.pool
        allocated = [bytes_of_cohort(cohort) for cohort in cohorts_of(self._decoder)]
        assert pool.num_used == sum(keys_and_values for keys_and_values, _ in allocated)
        prefixes = kept_prefixes(self._decoder)
        states = bytes_of_states(prefixes)
        num_states = states / (self.room.trunk * self.slot)
        assert len(prefixes) * 0.9 <= num_states <= len(prefixes)
        counted = scheduler._common.num_slots(scheduler.running, scheduler._prefix_cohort)
        assert states <= counted * self.slot
        for cohort, found in zip(cohorts_of(self._decoder), allocated, strict=True):
            assert sum(found) <= cohort.most_cached_tokens * (self.slot + 16)  # the scope and position of a column
        self.most = max(self.most, sum(mixing for _, mixing in allocated) + states)


@settings(max_examples=examples(12), deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 14),
    num_prefixes=st.integers(1, 9),
    room=st.floats(1.0, 6.0),
    family=st.sampled_from(["lfm2", "qwen3_5"]),
    way=st.sampled_from(WAYS),
    share_text=st.booleans(),
)
def test_what_is_counted_is_what_is_allocated(
    seed: int, count: int, num_prefixes: int, room: float, family: str, way: str, share_text: bool
) -> None:
    """And it stays within the limit, if that holds each prompt alone with its prefix; also where texts have states."""
    rng = np.random.default_rng(seed)
    prompts = unlike_prompts(rng, count, num_prefixes, random_ids(rng, 50, 50) if share_text else ())
    alone = Checked(new_decoder(build_hybrid(family), attention=way, share_text=False))
    largest = max(
        grown(prompt.layout.num_tokens + prompt.most_own_tokens) + alone.room.for_prompt(prompt) + 3 * alone.room.trunk
        for prompt in prompts
    )
    limit = int(room * largest)
    checked = Checked(new_decoder(build_hybrid(family), attention=way, share_text=share_text, max_cached_tokens=limit))
    checked.run(prompts)
    assert checked.most <= limit * checked.slot
