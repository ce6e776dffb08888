"""Everybody on the same records, round after round, so that a slow moment of the machine does not fall on one of them.

`compare` gives each contender all records at once. `ask_alone` gives each one product at a time: how long a user waits
who asks about one product (`benchmark.py --workload single`). There the category's prefix is computed again for each
product, as for the first of a category (vLLM's cache of prefixes is emptied); "prefix known" is how long every further
one takes.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from bench.rivals.generate import run_generate
from bench.rivals.vllm_process import Requests, VllmProcess, autoregressive, fan_out
from bench.speed.ceilings import best_shape, rows_of_large_steps, seconds_of
from bench.speed.contenders import (
    GENERATE,
    TREE,
    VLLM_AR,
    VLLM_FAN_OUT,
    Contenders,
    EngineRuns,
    TimedRun,
    measured,
    yardsticks,
)
from bench.workloads.workload import ForcedRecord, Workload
from hpd_core import EngineConfig
from hpd_core.decoding.decoder import Decoder
from hpd_core.decoding.prompt import Prompt
from hpd_core.models import description, steering
from hpd_core.system.device import is_out_of_memory
from hpd_core.text.endings import Endings

PREFIX_KNOWN = "tree, prefix known"


@dataclasses.dataclass(frozen=True, slots=True)
class RoundComparison:
    """Result of the rounds.

    Attributes:
        dense_shape: (rows, length) of the ceiling's batches.
        dense_attention: transformers' way to attend in them.
        results: name -> a run for every round.
        out_of_memory: names of those for whom the memory is too small.
    """

    dense_shape: tuple[int, int]
    dense_attention: str
    results: dict[str, list[TimedRun]]
    out_of_memory: list[str]


def compare(
    model: Any,
    workload: Workload,
    config: EngineConfig,
    runs: Contenders,
    repeats: int,
    outside: Collection[str],
    say: Callable[[str], object],
) -> RoundComparison:
    """Run the contenders `runs` and the yardsticks, `repeats` rounds. Drop those who run out of memory.

    Args:
        outside: names of those who run in a process of their own.

    Raises:
        UsageError: a record that cannot be taken.
    """
    workload.refuse_unfit(model.config, config, runs.keys() - outside)
    say("looking for the best dense batch")
    tree = config.model_copy(update={"layout": "tree"})
    first = EngineRuns(model, workload, tree).once()
    work = first.work
    assert work is not None
    rows = rows_of_large_steps([tokens for _, tokens in first.steps])
    found: dict[str, tuple[float, tuple[int, int]]] = {}
    for attention in steering.own_attentions(model):
        with steering.own_attention(model, attention):
            found[attention] = best_shape(model, work)
    attention = max(found, key=lambda name: found[name])
    shape = found[attention][1]
    limits = yardsticks(model, work, rows, shape, attention)
    results: dict[str, list[TimedRun]] = {name: [] for name in runs | limits}
    out_of_memory: list[str] = []
    for number in range(repeats):
        for name, run in (runs | limits).items():
            if name not in results:
                continue
            say(f"round {number + 1}/{repeats}: {name}")
            # Another process measures its own memory, and the yardsticks' says nothing.
            # To measure takes memory away from this process, which is to have it back from then on.
            is_measured = number == 0 and name not in outside and name not in limits
            try:
                results[name].append(measured(run, model.device) if is_measured else run())
            except (RuntimeError, MemoryError) as error:
                # A rival that does not fit must not take the others' numbers with it.
                if name == TREE or name in limits or not is_out_of_memory(error):
                    raise
                out_of_memory.append(name)
                del results[name]
                say(f"{name}: out of memory")
    return RoundComparison(shape, attention, results, out_of_memory)


Ask = Callable[[int], TimedRun]
"""Decodes the product of that number. Everybody has them in the same order, short ones first."""


def askers(model: Any, workload: Workload, config: EngineConfig) -> dict[str, Ask]:
    """Return name -> how it decodes one product."""
    forced = workload.forced(model.config, config)

    def generate(attention: str, number: int) -> TimedRun:
        record = forced[number]
        with steering.own_attention(model, attention):
            seconds = seconds_of(lambda: run_generate(model, [record], 1))
        return TimedRun(seconds, num_steps=record.answer_length)

    # Without padding, eager attention may be the faster one. Of two times the better: the first has more to do.
    trials = {name: min(generate(name, 0).seconds for _ in range(2)) for name in steering.own_attentions(model)}
    return {
        GENERATE: partial(generate, min(trials, key=lambda name: trials[name])),
        "stacked J=1": engine_asker(model, workload, config.model_copy(update={"layout": "stacked", "stack_size": 1})),
        TREE: engine_asker(model, workload, config.model_copy(update={"layout": "tree"})),
        PREFIX_KNOWN: engine_asker(model, workload, config.model_copy(update={"layout": "tree"}), is_prefix_known=True),
    }


def vllm_requests_alone(records: Sequence[ForcedRecord]) -> dict[str, Requests]:
    """Return what vLLM is asked of each product, under a name of its own."""
    return {
        _asked(name, number): requests
        for number, record in enumerate(records)
        for name, requests in ((VLLM_AR, autoregressive([record])), (VLLM_FAN_OUT, fan_out([record.layout])))
    }


def vllm_askers(vllm: VllmProcess) -> dict[str, Ask]:
    """Return name -> how vLLM, started with `vllm_requests_alone`, decodes one product.

    It does not tell its steps: a request gets a token in each at most, so there are as many as the longest answer has.
    """

    def ask(name: str, number: int) -> TimedRun:
        run = vllm.run(_asked(name, number))
        return TimedRun(run.seconds, num_steps=max(map(len, run.answers)), peak_bytes=run.peak_bytes)

    return {name: partial(ask, name) for name in (VLLM_AR, VLLM_FAN_OUT)}


def _asked(name: str, number: int) -> str:
    return f"{name}, product {number}"


def engine_asker(model: Any, workload: Workload, config: EngineConfig, *, is_prefix_known: bool = False) -> Ask:
    """Return how an engine's decoder decodes one product. It computes the category's prefix for each, or knows it."""
    vocab_size = model.get_output_embeddings().weight.shape[0]
    decoder = Decoder(model, Endings.none(vocab_size), config, description.cache_shape(model))
    prompts = workload.prompts(model.config, config)

    def run(prompt: Prompt) -> int:
        decoder.add([prompt])
        num_steps = 0
        while decoder.has_work:
            decoder.step()
            num_steps += 1
        return num_steps

    def ask(number: int) -> TimedRun:
        layout, key = prompts[number].layout, prompts[number].prefix_key
        if is_prefix_known:
            run(Prompt(layout, key))
        # Else a key that was never seen: the prefix is not found.
        prompt = Prompt(layout, key if is_prefix_known else object())
        started = time.perf_counter()
        num_steps = run(prompt)
        return TimedRun(time.perf_counter() - started, num_steps=num_steps)

    return ask


def ask_alone(
    asks: Mapping[str, Ask],
    outside: Collection[str],
    num_records: int,
    repeats: int,
    device: torch.device,
    say: Callable[[str], object],
) -> tuple[dict[str, list[TimedRun]], dict[str, int | None]]:
    """Ask everybody in turn for every product, `repeats` times.

    Args:
        outside: names of those in a process of their own, which measure their own memory.

    Returns:
        Name -> a run for each time; and memory at its highest for one product, above what was there before, if known.
    """
    peaks = {}
    for name, ask in asks.items():
        ask(0)  # whatever happens once only
        last = partial(ask, num_records - 1)
        peaks[name] = (last() if name in outside else measured(last, device)).peak_bytes
    runs: dict[str, list[TimedRun]] = {name: [] for name in asks}
    for repeat in range(repeats):
        say(f"round {repeat + 1}/{repeats}: {num_records} products, one at a time")
        for number in range(num_records):
            for name, ask in asks.items():
                runs[name].append(ask(number))
    return runs, peaks
