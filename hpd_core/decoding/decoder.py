"""Decoder steps: one forward of the model over what all cohorts feed, packed into one row; then the chosen tokens go
back to the cohorts."""

from __future__ import annotations

import gc
import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from hpd_core.attention.dispatch import Way, cache_order
from hpd_core.attention.kv_cache import CachePool, CacheShape
from hpd_core.attention.plan import PrefixCache
from hpd_core.config import EngineConfig
from hpd_core.decoding.cohort import Cohort
from hpd_core.decoding.cohort_cache import CohortInput, MixerRoom, slot_bytes
from hpd_core.decoding.memory import Limits, activation_bytes, doubled, fitted, free_bytes, halved
from hpd_core.decoding.model_runner import ModelRunner
from hpd_core.decoding.next_token import Chosen, TokenChoice
from hpd_core.decoding.prompt import Prompt
from hpd_core.decoding.scheduler import Scheduler, num_tokens
from hpd_core.system.device import is_out_of_memory
from hpd_core.text.constraints import StateTable
from hpd_core.text.endings import Endings
from hpd_core.text.member_tries import TrieTable

logger = logging.getLogger(__name__)


_MAX_FINISHED: Mapping[Way, float] = {"native": 0.75, "triton": 0.0, "eager": 0.5}
"""Share of a cohort's prompts that may be finished before the others move to memory of their own. Our CPU kernel skips
finished prompts; for our GPU kernel nothing has to be moved; the other ways compute finished prompts, too."""


_PATIENCE = 256
"""Steps until the limits are doubled after memory ran out. It doubles with each time."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """Report of one step.

    Attributes:
        finished: prompts whose last value ended.
        computed_prefixes: prefixes that were computed, as prompts without branches, with the owner that needed them.
        cohorts: for each cohort that ran, the prompts that were fed and the number of tokens of each.
        seconds: wall time of the step.
        computed_texts: like `computed_prefixes`, for texts that several documents begin with.
    """

    finished: list[Prompt]
    computed_prefixes: list[Prompt]
    cohorts: list[list[tuple[Prompt, int]]]
    seconds: float
    computed_texts: list[Prompt] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _StepInFlight:
    """A step that was given to the device, and whose tokens were not taken yet."""

    cohorts: list[Cohort]
    inputs: list[CohortInput]
    choice: TokenChoice


class Decoder:
    """Runner of prompts to their end: `add` them, call `step` until `has_work` is False."""

    restarts_after_out_of_memory = True

    def __init__(
        self,
        model: Any,
        endings: Endings,
        config: EngineConfig,
        shape: CacheShape,
        constraints: StateTable | None = None,
        tries: TrieTable | None = None,
    ) -> None:
        """Start without prompts.

        `constraints` has the states that values begin with, if any but FREE; `tries` the tries of their members."""
        self._model = model
        self._endings = endings
        self._config = config
        self._constraints = constraints
        self._tries = tries or TrieTable()
        self._open: dict[Prompt, None] = {}  # in the order in which they came
        self._in_flight: deque[_StepInFlight] = deque()
        self.overlaps_steps = shape.device.type == "cuda" if config.overlap_steps == "auto" else config.overlap_steps
        self._most_in_flight = 2 if self.overlaps_steps else 1
        self._limits = Limits.of(config, shape.device)
        self._lost_seconds = 0.0
        self._num_calm, self._patience = 0, _PATIENCE // 2
        self._runner = ModelRunner(model, config, shape, constraints, self._tries)
        self._shape = shape = self._runner.shape
        self.pool = pool = CachePool(shape, cache_order(self.way, shape), max_tokens=self._limits.max_cached_tokens)

        def make_cohort(prompts: list[Prompt], prefixes: list[PrefixCache | None]) -> Cohort:
            mixers, threshold = self._runner.mixer_shapes, config.answer_threshold
            return Cohort.admit(prompts, prefixes, pool, _MAX_FINISHED[self.way], self._tries, mixers, threshold)

        share_text = config.share_text and config.layout == "tree"
        self._scheduler = Scheduler(
            self._limits,
            make_cohort,
            self.overlaps_steps,
            pool.order,
            share_text,
            MixerRoom.of(self._runner.mixer_shapes, shape),
        )

    def add(self, prompts: Iterable[Prompt]) -> None:
        """Queue prompts; those added first run first, together with others that share their prefix."""
        arrived = list(prompts)
        self._open.update(dict.fromkeys(arrived))
        self._scheduler.add(arrived)

    def drop(self, prompts: Iterable[Prompt]) -> None:
        """Abort prompts that are not needed any more, between steps. Running ones are reported as finished."""
        found = [prompt for prompt in prompts if prompt in self._open]
        for prompt in found:
            prompt.is_dropped = True
        for prompt in self._scheduler.drop(found):
            prompt.leases.clear()
            del self._open[prompt]

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return self._scheduler.has_work

    @property
    def way(self) -> Way:
        """Attention backend in use."""
        return self._runner.way

    @property
    def layers(self) -> Literal["native", "triton", "transformers"]:
        """Implementation that runs the model's layers."""
        return self._runner.layers

    @property
    def limits(self) -> Limits:
        """Limits in use: smaller than the settings after running out of memory."""
        return self._scheduler.limits

    def fit(self) -> None:
        """Set limits that fit free memory, while there is no work. Call it after a first step, which packs weights."""
        activations = activation_bytes(self._model, self._shape, self._runner.mixer_shapes)
        slot = slot_bytes(self._runner.mixer_shapes, self._shape)
        self.limit(fitted(self._config, self._shape, self._free_bytes(), activations, slot))

    def _free_bytes(self) -> int:
        return free_bytes(self._shape.device)

    def limit(self, limits: Limits) -> None:
        """Set other limits, while there is no work."""
        self._limits = limits
        self._restart(limits)

    def _restart(self, limits: Limits) -> None:
        self.pool.limit(limits.max_cached_tokens)
        self._scheduler.restart(limits)

    def forget_prefixes(self) -> None:
        """Drop the cached prefixes, while there is no work."""
        self._scheduler.restart(self._scheduler.limits)

    def clear(self) -> None:
        """Drop all prompts, after an error."""
        self._lost_seconds = 0.0
        self._open.clear()
        self._in_flight.clear()
        self._scheduler.clear()
        self.pool.clear()

    def step(self) -> StepReport:
        """Run one step. When out of memory, restart the prompts with halved limits, from the next step on.

        Raises:
            Exception: the forward's error; out of memory if one prompt alone is too much. Call `clear` then.
        """
        # A failed step is charged to the prompts for which it is done again.
        started = time.perf_counter() - self._lost_seconds
        try:
            report = self._step(started)
        except Exception as error:
            if not is_out_of_memory(error) or not self.restarts_after_out_of_memory:
                raise
            limits = self._scheduler.limits
            smaller = halved(limits)
            if smaller is None:
                self._in_flight.clear()
                self._restart(self._limits)  # others may need less
                raise
            logger.warning(
                "out of memory (%s); goes on with engine.max_tokens_per_step %d instead of %d, max_prompts_per_cohort "
                "%d instead of %d, max_cached_tokens %d instead of %d",
                str(error).partition("\n")[0],
                *(smaller.max_tokens_per_step, limits.max_tokens_per_step),
                *(smaller.max_prompts_per_cohort, limits.max_prompts_per_cohort),
                *(smaller.max_cached_tokens, limits.max_cached_tokens),
            )
            self._num_calm, self._patience = 0, 2 * self._patience
        else:
            for prompt in report.finished:
                del self._open[prompt]
            self._lost_seconds = 0.0
            self._num_calm += 1
            if self._num_calm % self._patience == 0:  # others may have given memory back
                self._scheduler.limits = doubled(self._scheduler.limits, self._limits)
            return report
        # Only now: the error's traceback held references to the step's tensors.
        finished = self._begin_anew(smaller)
        if self.has_work:
            self._lost_seconds = time.perf_counter() - started
        return StepReport(finished, [], [], 0.0)

    def _begin_anew(self, limits: Limits) -> list[Prompt]:
        """Drop everything that runs and requeue the unfinished prompts. Return the finished, unreported ones."""
        prompts = list(self._open)
        self.clear()
        self._restart(limits)
        self._runner.forget()
        gc.collect()  # cycles may hold on to tensors
        if self._shape.device.type == "cuda":
            torch.cuda.empty_cache()
        for prompt in prompts:
            if prompt.is_dropped:
                prompt.leases.clear()
        self.add(prompt for prompt in prompts if not (prompt.is_finished or prompt.is_dropped))
        return [prompt for prompt in prompts if prompt.is_finished]

    @torch.inference_mode()
    def _step(self, started: float) -> StepReport:
        """Give the device as many steps as may be in flight, and take the tokens of the oldest.

        So the host's work before and after one step overlaps with the device's work on the other.
        """
        while len(self._in_flight) < self._most_in_flight:
            cohorts = self._scheduler.schedule()
            if not cohorts:
                break
            inputs = self._gather(cohorts)
            self._in_flight.append(_StepInFlight(cohorts, inputs, self._forward(inputs)))
        return self._take(self._in_flight.popleft(), started)

    def _take(self, step: _StepInFlight, started: float) -> StepReport:
        """Hand a step's tokens to its cohorts, retire finished prompts, and return the report."""
        self._scatter(step.cohorts, step.inputs, self._fetch(step.choice))
        counts = [list(zip(fed.prompts, fed.tokens_per_prompt.tolist(), strict=True)) for fed in step.inputs]
        shares = [[(prompt, count) for prompt, count in cohort if count] for cohort in counts]
        finished, prefixes, texts = self._scheduler.finish_step(step.cohorts)
        return StepReport(finished, prefixes, shares, time.perf_counter() - started, texts)

    def _gather(self, cohorts: list[Cohort]) -> list[CohortInput]:
        inputs: list[CohortInput] = []
        start = 0
        limit = self._scheduler.limits.max_tokens_per_step
        # Nodes of tries may wait if a step would be too large: the chosen members stay the same.
        scored_room = limit - num_tokens(cohorts) + sum(cohort.num_next_scored for cohort in cohorts)
        for cohort in cohorts:
            inputs.append(cohort.next_input(start, limit, scored_room))
            start += len(inputs[-1].token_ids)
            scored_room -= inputs[-1].num_scored
        return inputs

    def _forward(self, inputs: list[CohortInput]) -> TokenChoice:
        """Give the device one forward of all inputs."""
        return self._runner.run(inputs)

    def _fetch(self, choice: TokenChoice) -> Chosen:
        return choice.fetch()

    def _scatter(self, cohorts: list[Cohort], inputs: list[CohortInput], chosen: Chosen) -> None:
        first = first_way = 0
        for cohort, fed in zip(cohorts, inputs, strict=True):
            last, last_way = first + len(fed.logit_rows), first_way + self._tries.num_ways(fed.nodes)
            part = replace(chosen[first:last], ways=chosen.ways[first_way:last_way])
            cohort.accept(part, self._endings)
            first, first_way = last, last_way
