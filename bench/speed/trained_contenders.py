"""The rivals that bench/train_confident.py has trained, as contenders: models of their own, and answers of their own.

They cannot be made to write an answer of a given length: what they are sure of is what they have learned to say. So
their answers end by themselves, as those of vLLM with a JSON schema do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from bench.rivals.confident_tokens import ConfidentDecoder, load_decoder
from bench.speed.contenders import BLOCK_DIFFUSION, LEXICAL_UNITS, Contenders, TimedRun
from bench.workloads.workload import Workload
from hpd_core import EngineConfig

THRESHOLD = 0.9
_OBJECTIVES = {LEXICAL_UNITS: "lexical-units", BLOCK_DIFFUSION: "block-diffusion"}


def trained_contenders(
    folders: Mapping[str, str | None], workload: Workload, config: EngineConfig, batch_size: int
) -> Contenders:
    """Name -> a run, of those that have a folder; their models are loaded here.

    Raises:
        ModelError: a model cannot be loaded.
        UsageError: it was not trained so.
    """
    batched = config.model_copy(update={"max_prompts_per_cohort": batch_size})

    def contender(name: str, folder: str) -> Callable[[], TimedRun]:
        decoder = load_decoder(Path(folder), batched, _OBJECTIVES[name], THRESHOLD)
        return lambda: _run(decoder, workload)

    return {name: contender(name, folder) for name, folder in folders.items() if folder is not None}


def _run(decoder: ConfidentDecoder, workload: Workload) -> TimedRun:
    decoder.num_forwards = 0
    future = decoder.submit(workload.records, workload.schemas)
    future.result()
    metrics, count = future.metrics, len(workload.records)
    return TimedRun(
        metrics.busy_seconds,
        num_steps=metrics.num_steps,
        note=f"another model, whose answers end by themselves: {metrics.value_tokens:,} tokens, each taken at "
        f"{THRESHOLD:g}; {decoder.num_forwards / count:.1f} forwards a product",
    )
