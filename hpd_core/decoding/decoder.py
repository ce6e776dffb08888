"""Runs the steps: one forward of the model over what all cohorts feed, packed into one row, and back to them the tokens
that were chosen."""

from __future__ import annotations

import gc
import logging
import time
from collections import deque
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from hpd_core.attention.dispatch import PackedBatch, cache_order, way_to_attend
from hpd_core.attention.kv_cache import CachePool, CacheShape
from hpd_core.attention.plan import PrefixCache
from hpd_core.attention.sdpa import fused_kernels
from hpd_core.config import EngineConfig
from hpd_core.decoding.cohort import Cohort
from hpd_core.decoding.cohort_input import CohortInput
from hpd_core.decoding.drafts import Drafter
from hpd_core.decoding.memory import Limits, activation_bytes, fitted, free_bytes, halved
from hpd_core.decoding.next_token import Choice, Chosen, greedy
from hpd_core.decoding.prompt import Prompt
from hpd_core.decoding.scheduler import Scheduler, num_tokens
from hpd_core.errors import ModelError
from hpd_core.layers.forward import FusedBy, FusedLayers, transformers_logits
from hpd_core.layers.packed_linears import PackedLinears
from hpd_core.layers.tiled_logits import TiledLogits
from hpd_core.system.device import is_out_of_memory, to_device
from hpd_core.text.constraints import StateTable
from hpd_core.text.endings import Endings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step did.

    Attributes:
        finished: prompts whose last value ended.
        computed_prefixes: prefixes that were computed, as prompts without branches; their owner asked for them.
        cohorts: per cohort that ran, the prompts that were fed and how many tokens each.
        seconds: wall time of the step.
        draft_tokens, rejected_tokens: of the tokens that were fed, those that were drafted, and the wrong ones of them.
    """

    finished: list[Prompt]
    computed_prefixes: list[Prompt]
    cohorts: list[list[tuple[Prompt, int]]]
    seconds: float
    draft_tokens: int = 0
    rejected_tokens: int = 0


@dataclass(frozen=True, slots=True)
class _StepInFlight:
    """A step that the device has, and whose tokens nobody has taken yet."""

    cohorts: list[Cohort]
    inputs: list[CohortInput]
    choice: Choice


class Decoder:
    """Runs prompts to their end: `add` them, call `step` until `has_work` is False."""

    restarts_after_out_of_memory = True

    def __init__(
        self,
        model: Any,
        endings: Endings,
        config: EngineConfig,
        shape: CacheShape,
        constraints: StateTable | None = None,
    ) -> None:
        """`constraints`: whose states the prompts' values begin with, if there are any but FREE."""
        self._model = model
        self._endings = endings
        self._config = config
        self._shape = shape
        self._constraints = constraints
        self._open: dict[Prompt, None] = {}  # in the order in which they came
        self._in_flight: deque[_StepInFlight] = deque()
        self.overlaps_steps = shape.device.type == "cuda" if config.overlap_steps == "auto" else config.overlap_steps
        self._most_in_flight = 2 if self.overlaps_steps else 1
        self._limits = Limits.of(config, shape.device)
        self._lost_seconds = 0.0
        self.way = way_to_attend(config.attention, shape)
        self._layers = self._fused_layers()
        mlps = self._layers.mlps if self._layers else []
        self._linears = PackedLinears(model, mlps) if config.pack_weights else None
        share = self.way != "sdpa"  # torch's fused kernel takes one block of keys a prompt
        self._drafter = Drafter(config.max_draft_tokens_per_step, endings, constraints)
        self.pool = pool = CachePool(shape, cache_order(self.way, shape), max_tokens=self._limits.max_cached_tokens)

        def make_cohort(prompts: list[Prompt], prefixes: list[PrefixCache | None]) -> Cohort:
            # Our kernel for CPUs goes past what is finished; elsewhere it is computed, too.
            return Cohort.admit(prompts, prefixes, pool, share, max_finished=0.75 if self.way == "native" else 0.5)

        self._scheduler = Scheduler(self._limits, make_cohort, share, self.overlaps_steps, pool.order.room_for)

    def add(self, prompts: Iterable[Prompt]) -> None:
        """Queues prompts; those added first run first, and take along what shares their prefix."""
        arrived = list(prompts)
        self._open.update(dict.fromkeys(arrived))
        self._scheduler.add(arrived)

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return self._scheduler.has_work

    def _fused_layers(self) -> FusedLayers | None:
        """Whose code runs the layers: ours, or None. Raises `ModelError` if what is asked for cannot be had."""
        asked = self._config.layers
        by: FusedBy = "native" if self.way == "native" else "compiled"
        if asked == "transformers" or (asked == "auto" and by == "compiled" and self._shape.device.type != "cuda"):
            return None
        if asked == "native" != by:
            raise ModelError(f"engine.layers is 'native', but attention is {self.way!r}; try 'auto' for both")
        by = by if asked == "auto" else asked
        reason = FusedLayers.why_not(self._model, by)
        if reason is None:
            return FusedLayers(self._model, by)
        if asked != "auto":
            raise ModelError(
                f"engine.layers is {asked!r}, but {reason}; 'auto' takes the model's own code where it must"
            )
        logger.info("layers run by transformers' code: %s", reason)
        return None

    @property
    def layers(self) -> Literal["native", "compiled", "transformers"]:
        """Whose code runs the model's layers."""
        return "transformers" if self._layers is None else self._layers.by

    @property
    def limits(self) -> Limits:
        """As they are now: smaller ones where memory was missing."""
        return self._scheduler.limits

    def fit(self) -> None:
        """Sets limits that memory has room for, while there is no work; after a first step, which packs weights."""
        self.limit(fitted(self._config, self._shape, self._free_bytes(), activation_bytes(self._model)))

    def _free_bytes(self) -> int:
        return free_bytes(self._shape.device)

    def limit(self, limits: Limits) -> None:
        """Sets other limits, while there is no work."""
        self._limits = limits
        self._restart(limits)

    def _restart(self, limits: Limits) -> None:
        self.pool.limit(limits.max_cached_tokens)
        self._scheduler.restart(limits)

    def forget_prefixes(self) -> None:
        """Drops the cached prefixes, while there is no work."""
        self._scheduler.restart(self._scheduler.limits)

    def clear(self) -> None:
        """Drops all prompts, after an error."""
        self._lost_seconds = 0.0
        self._open.clear()
        self._in_flight.clear()
        self._scheduler.clear()
        self.pool.clear()

    def step(self) -> StepReport:
        """One step. Where memory is missing, the prompts begin anew with half of the limits, from the next step on.

        Raises:
            Exception: what the forward raises; out of memory, where one prompt alone is too much. Then `clear`.
        """
        # A step that failed is charged to those for which it is done again.
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
        else:
            for prompt in report.finished:
                del self._open[prompt]
            self._lost_seconds = 0.0
            return report
        # Only now: the error's traceback has held on to what the step had made.
        finished = self._begin_anew(smaller)
        if self.has_work:
            self._lost_seconds = time.perf_counter() - started
        return StepReport(finished, [], [], 0.0)

    def _begin_anew(self, limits: Limits) -> list[Prompt]:
        """Drops what runs and queues all that is not finished. Returns what was, and is not reported yet."""
        prompts = list(self._open)
        self.clear()
        self._restart(limits)
        if self._layers is not None:
            self._layers.forget()
        gc.collect()  # cycles may hold on to tensors
        if self._shape.device.type == "cuda":
            torch.cuda.empty_cache()
        self.add(prompt for prompt in prompts if not prompt.is_finished)
        return [prompt for prompt in prompts if prompt.is_finished]

    @torch.inference_mode()
    def _step(self, started: float) -> StepReport:
        """Gives the device as many steps as it may have, and takes the tokens of the oldest.

        What is done on the host for one step, before and behind it, is done while the device has the other.
        """
        while len(self._in_flight) < self._most_in_flight:
            cohorts = self._scheduler.schedule()
            if not cohorts:
                break
            inputs = self._gather(cohorts)
            self._in_flight.append(_StepInFlight(cohorts, inputs, self._forward(inputs)))
        return self._take(self._in_flight.popleft(), started)

    def _take(self, step: _StepInFlight, started: float) -> StepReport:
        """Takes the new tokens, retires."""
        num_rejected = self._scatter(step.cohorts, step.inputs, self._fetch(step.choice))
        counts = [list(zip(fed.prompts, fed.tokens_per_prompt.tolist(), strict=True)) for fed in step.inputs]
        shares = [[(prompt, count) for prompt, count in cohort if count] for cohort in counts]
        finished, prefixes = self._scheduler.finish_step(step.cohorts)
        num_drafts = sum(fed.num_drafts for fed in step.inputs)
        return StepReport(finished, prefixes, shares, time.perf_counter() - started, num_drafts, num_rejected)

    def _gather(self, cohorts: list[Cohort]) -> list[CohortInput]:
        inputs: list[CohortInput] = []
        start = 0
        limit = self._scheduler.limits.max_tokens_per_step
        load = num_tokens(cohorts)
        room = min(self._drafter.room(load), limit - load)
        for cohort in cohorts:
            inputs.append(cohort.next_input(start, limit, self._drafter, room))
            start += len(inputs[-1].token_ids)
            room -= inputs[-1].num_drafts
        return inputs

    def _forward(self, inputs: list[CohortInput]) -> Choice:
        """Gives the device one forward of all; the next tokens, for all logit rows of all cohorts in order."""
        device = self._shape.device
        token_ids = to_device(np.concatenate([item.token_ids for item in inputs]), device)
        positions = to_device(np.concatenate([item.positions for item in inputs]), device)
        logit_rows = to_device(np.concatenate([item.logit_rows + item.plan.start for item in inputs]), device)
        batch = PackedBatch([item.plan for item in inputs], way=self.way)
        states = np.concatenate([item.states for item in inputs])
        with self._linears.active() if self._linears else nullcontext(), fused_kernels(device):
            logits = self._logits(token_ids, positions, logit_rows, batch)
            for item in inputs:
                item.plan.forget_masks()
            if batch.num_calls != self._shape.num_layers:
                raise ModelError(
                    f"{batch.num_calls} of the model's {self._shape.num_layers} layers went through transformers' "
                    f"attention interface; the others cannot be told which tokens see which"
                )
            return greedy(logits, states, self._constraints, device, native=self.way == "native")

    def _logits(
        self, token_ids: Tensor, positions: Tensor, logit_rows: Tensor, batch: PackedBatch
    ) -> Iterable[Tensor] | TiledLogits:
        if self._layers is not None:
            return self._layers.logits(token_ids, positions, logit_rows, batch, self._linears)
        return transformers_logits(self._model, token_ids, positions, logit_rows, batch)

    def _fetch(self, choice: Choice) -> Chosen:
        return choice.fetch()

    def _scatter(self, cohorts: list[Cohort], inputs: list[CohortInput], chosen: Chosen) -> int:
        first = num_rejected = 0
        for cohort, fed in zip(cohorts, inputs, strict=True):
            last = first + len(fed.logit_rows)
            num_rejected += cohort.accept(chosen[first:last], self._endings)
            first = last
        num_drafts = sum(fed.num_drafts for fed in inputs)
        self._drafter.learn(num_drafts, num_drafts - num_rejected)
        return num_rejected
