"""Who runs in the benchmark, by name: the layouts, their rivals, the yardsticks."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import torch

from bench.peak_memory import measure
from bench.rivals.generate import (
    run_by_attribute,
    run_continuous,
    run_draft_model,
    run_generate,
    run_prompt_lookup,
)
from bench.rivals.naive_hpd import run_naive_hpd
from bench.rivals.parallel_decoding import run_anpd, run_block_diffusion, run_jacobi, run_lexical_units
from bench.rivals.vllm_process import Requests, VllmProcess, autoregressive, fan_out, json_schema
from bench.speed.ceilings import Floor, StepWork, run_dense, seconds_of
from bench.workloads.workload import ForcedRecord, Workload
from hpd_core import EngineConfig
from hpd_core.decoding.decoder import Decoder, StepReport
from hpd_core.decoding.memory import activation_bytes, fitted, free_bytes
from hpd_core.errors import ModelError
from hpd_core.families.table import refuse_both_ways
from hpd_core.models import description, steering
from hpd_core.text.endings import Endings
from pipelines.errors import UsageError

GENERATE, NAIVE, TREE, APART = "transformers generate", "naive padded HPD", "tree", "tree, no text shared"
PROMPT_LOOKUP, DRAFT_MODEL = "generate, prompt lookup", "generate, draft model"
BY_ATTRIBUTE = "generate, by attribute"
BOTH_WAYS = "tree, both ways"
CONTINUOUS = "transformers continuous batching"
JACOBI, ANPD = "Jacobi decoding", "ANPD"
VLLM_AR, VLLM_FAN_OUT, VLLM_SCHEMA = "vLLM AR", "vLLM fan-out", "vLLM AR, JSON schema"
LEXICAL_UNITS, BLOCK_DIFFUSION = "lexical units (LUD)", "block diffusion"
CEILING, FLOOR = "ceiling", "floor"

ON_REQUEST = frozenset(
    {
        PROMPT_LOOKUP,
        BY_ATTRIBUTE,
        CONTINUOUS,
        JACOBI,
        ANPD,
        LEXICAL_UNITS,
        BLOCK_DIFFUSION,
        VLLM_SCHEMA,
        APART,
        BOTH_WAYS,
    }
)
"""Those that run only if they are asked for: most take one product at a time, and as long as all others together."""

_WHAT_IT_NEEDS = {
    DRAFT_MODEL: "--draft-model",
    VLLM_AR: "--vllm",
    VLLM_FAN_OUT: "--vllm",
    VLLM_SCHEMA: "--vllm",
    BOTH_WAYS: "a model whose layers all see all tokens",
}
_ASSISTED = "one product at a time, transformers' assisted decoding takes no more"
_OURS = "one product at a time; our implementation"
_TRAINED = f"{_OURS}, for a model that was trained so"


@dataclasses.dataclass(frozen=True, slots=True)
class TimedRun:
    """One run of one contender: its seconds, and what it forwarded if that is counted.

    Attributes:
        num_steps: of the engine.
        steps: of the engine, seconds and tokens of each.
        peak_bytes: memory at its highest, above what was there before (peak_memory.py).
        note: what a reader of the table must know.
        code: of the engine, how it attends and whose code runs its layers.
    """

    seconds: float
    work: StepWork | None = None
    num_steps: int | None = None
    steps: Sequence[tuple[float, int]] = ()
    peak_bytes: int | None = None
    note: str | None = None
    code: Mapping[str, str] | None = None


def measured(run: Callable[[], TimedRun], device: torch.device) -> TimedRun:
    """Run it, with its memory."""
    done, num_bytes = measure(run, device)
    return dataclasses.replace(done, peak_bytes=num_bytes)


class EngineRuns:
    """Decodes the workload again and again by one decoder; every run computes every prefix.

    As a job's engine does, and vLLM here, it has its memory and its packed weights from earlier work: the first call
    decodes the workload twice, and counts the second time.
    """

    def __init__(
        self,
        model: Any,
        workload: Workload,
        config: EngineConfig,
        *,
        warm_up: Workload | None = None,
    ) -> None:
        """Set the limits by the memory that is free now, before others' engines take some; make no decoder yet.

        Args:
            warm_up: what the first call decodes before it counts; None: the workload.
        """
        shape = description.cache_shape(model)
        self._model, self._workload, self._shape = model, workload, shape
        self._warm_up = warm_up or workload
        self._config = config
        self._limits = fitted(config, shape, free_bytes(shape.device), activation_bytes(model, shape))
        self._decoder: Decoder | None = None

    def __call__(self) -> TimedRun:
        """Run once more. After a failure the next run begins with a fresh decoder."""
        decoder, self._decoder = self._decoder, None
        if decoder is None:
            decoder = self._make_decoder()
            self._run(decoder, self._warm_up)
        decoder.forget_prefixes()
        run = self._run(decoder, self._workload)
        self._decoder = decoder
        return run

    def once(self) -> TimedRun:
        """Run by a fresh decoder that is not kept."""
        return self._run(self._make_decoder(), self._workload)

    def _make_decoder(self) -> Decoder:
        num_tokens = self._model.get_output_embeddings().weight.shape[0]
        decoder = Decoder(self._model, Endings.none(num_tokens), self._config, self._shape)
        decoder.limit(self._limits)
        return decoder

    def _run(self, decoder: Decoder, workload: Workload) -> TimedRun:
        prepared = workload.prompts(self._model.config, self._config)
        started = time.perf_counter()
        reports: list[StepReport] = []
        decoder.add(prepared)
        while decoder.has_work:
            reports.append(decoder.step())
        seconds = time.perf_counter() - started
        steps = [(report.seconds, sum(count for cohort in report.cohorts for _, count in cohort)) for report in reports]
        num_tokens = sum(tokens for _, tokens in steps)
        num_logits = sum(len(tokens) for item in prepared for tokens in item.tokens)
        note = None
        if decoder.limits != self._limits:
            note = f"out of memory: it goes on with {decoder.limits.max_tokens_per_step} tokens a step"
        code = {"attention": decoder.way, "layers": decoder.layers}
        work = StepWork(num_tokens, num_logits)
        return TimedRun(seconds, work, len(steps), steps, note=note, code=code)


Contenders = dict[str, Callable[[], TimedRun]]
Rival = Callable[[Any, Sequence[ForcedRecord], int], list[list[int]]]
"""A function of model, records and batch size that returns what it wrote, per record."""
Contender = TypeVar("Contender")


def contenders(
    model: Any,
    workload: Workload,
    config: EngineConfig,
    batch_size: int,
    draft_model: Any = None,
) -> Contenders:
    """Return name -> a run. Without a `draft_model` (`load_draft_model`) nobody runs who needs one."""
    forced = workload.forced(model.config, config)

    def engine(**settings: Any) -> Callable[[], TimedRun]:
        return EngineRuns(model, workload, config.model_copy(update=settings))

    def rival(function: Rival, note: str | None = None) -> Callable[[], TimedRun]:
        return lambda: _run_rival(function, model, forced, batch_size, note)

    def without_whole_answers(function: Callable[..., Any]) -> TimedRun:
        with steering.own_attention(model):
            return TimedRun(seconds_of(lambda: function(model, forced, batch_size)))

    def continuous() -> TimedRun:
        with steering.own_attention(model):
            seconds, answers = run_continuous(model, forced, batch_size)
        check_lengths(answers, forced)
        return TimedRun(seconds, note=f"{batch_size} requests at once")

    runs: Contenders = {
        GENERATE: rival(run_generate),
        PROMPT_LOOKUP: rival(run_prompt_lookup, _ASSISTED),
        BY_ATTRIBUTE: partial(without_whole_answers, run_by_attribute),
        CONTINUOUS: continuous,
        JACOBI: rival(run_jacobi, _OURS),
        ANPD: rival(run_anpd, _OURS),
        LEXICAL_UNITS: rival(partial(run_lexical_units, workload.tokenizer), _TRAINED),
        BLOCK_DIFFUSION: rival(partial(run_block_diffusion, workload.tokenizer), _TRAINED),
        NAIVE: partial(without_whole_answers, run_naive_hpd),
        "stacked J=1": engine(layout="stacked", stack_size=1),
        "stacked J=6": engine(layout="stacked", stack_size=6),
        TREE: engine(layout="tree"),
        APART: engine(layout="tree", share_text=False),
    }
    with suppress(ModelError):
        refuse_both_ways(model.config)
        runs[BOTH_WAYS] = engine(layout="tree", document_attention="bidirectional")
    if draft_model is not None:
        runs = {DRAFT_MODEL: rival(partial(run_draft_model, draft_model), _ASSISTED)} | runs
    return runs


def _run_rival(
    function: Rival, model: Any, records: Sequence[ForcedRecord], batch_size: int, note: str | None
) -> TimedRun:
    with steering.own_attention(model), _counted_forwards(model) as forwards:
        started = time.perf_counter()
        answers = function(model, records, batch_size)
        seconds = time.perf_counter() - started
    check_lengths(answers, records)
    if note is not None:
        note += f"; {forwards[0]:,} forwards wrote {sum(map(len, answers)):,} tokens"
    return TimedRun(seconds, note=note)


@contextmanager
def _counted_forwards(model: Any) -> Iterator[list[int]]:
    """Yield a list of one number: forwards so far."""
    count = [0]

    def add(*_: Any) -> None:
        count[0] += 1

    handle = model.register_forward_hook(add)
    try:
        yield count
    finally:
        handle.remove()


def check_lengths(answers: Sequence[Sequence[int]], records: Sequence[ForcedRecord]) -> None:
    """Whether everybody wrote what was to be written.

    Raises:
        RuntimeError: no.
    """
    if [len(answer) for answer in answers] != [record.answer_length for record in records]:
        raise RuntimeError("a contender wrote answers of other lengths than it was asked for")


def check_names(known: Collection[str], only: Sequence[str] | None) -> None:
    """Whether those who are asked for are there.

    Raises:
        UsageError: a name that nobody has, or who has it needs another option.
    """
    for name in only or ():
        if name not in known and name in _WHAT_IT_NEEDS:
            raise UsageError(f"--only {name!r} needs {_WHAT_IT_NEEDS[name]}")
        if name not in known:
            raise UsageError(f"--only {name!r}: there are {', '.join(map(repr, known))}")


def chosen(runs: dict[str, Contender], only: Sequence[str] | None, everybody: bool = False) -> dict[str, Contender]:
    """Return those that `only` names, and always `tree`, whose work the yardsticks do; None: all by default.

    Args:
        everybody: really all.

    Raises:
        UsageError: see `check_names`.
    """
    check_names(runs, only)
    if only:
        return {name: run for name, run in runs.items() if name in only or name == TREE}
    return {name: run for name, run in runs.items() if everybody or name not in ON_REQUEST}


def vllm_requests(model: Any, workload: Workload, config: EngineConfig) -> dict[str, Requests]:
    """Return name -> what vLLM is asked."""
    forced = workload.forced(model.config, config)
    return {
        VLLM_AR: autoregressive(forced),
        # As many finished prefixes as possible: a product's requests stand side by side.
        VLLM_FAN_OUT: fan_out([record.layout for record in forced]),
        VLLM_SCHEMA: json_schema(workload, model.config, config),
    }


def vllm_contenders(vllm: VllmProcess, requests: dict[str, Requests]) -> Contenders:
    """Return name -> a run of vLLM, already started with these requests."""
    num_forced = sum(requests[VLLM_AR].limits)
    return {name: partial(_run_vllm, vllm, name, bool(asked.schemas), num_forced) for name, asked in requests.items()}


def _run_vllm(vllm: VllmProcess, name: str, has_schema: bool, num_forced: int) -> TimedRun:
    run = vllm.run(name)
    if not has_schema:
        return TimedRun(run.seconds, peak_bytes=run.peak_bytes)
    num_answers, num_tokens = len(run.answers), sum(map(len, run.answers))
    return TimedRun(
        run.seconds,
        note=f"its answers end by themselves, as the schema allows: {num_tokens:,} tokens, where {VLLM_AR!r} writes "
        f"{num_forced:,} ({num_answers * num_tokens / num_forced / run.seconds:.2f} products/s at as many); "
        f"{run.num_cut:,} of {num_answers:,} answers were cut at their limit",
        peak_bytes=run.peak_bytes,
    )


def yardsticks(model: Any, work: StepWork, rows: int, shape: tuple[int, int], attention: str) -> Contenders:
    """Return name -> a run of as much work.

    Args:
        rows: of the floor's products.
        shape: (rows, length) of dense batches.
        attention: transformers' way to attend in them.
    """

    def ceiling() -> TimedRun:
        with steering.own_attention(model, attention):
            return TimedRun(seconds_of(lambda: run_dense(model, work, shape)))

    floor = Floor(model, rows)
    note = f"products of {rows:,} rows, as tree's large steps have"
    return {CEILING: ceiling, FLOOR: lambda: TimedRun(seconds_of(lambda: floor.run(work)), note=note)}
