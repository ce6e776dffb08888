"""llama.cpp in the benchmark, by name."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.rivals.llama_cpp_process import LlamaCppProcess
from bench.rivals.llama_cpp_requests import ForkedRequests, one_per_attribute, whole_answers
from bench.speed.ceilings import StepWork
from bench.speed.contenders import LLAMA_CPP_AR, LLAMA_CPP_FAN_OUT, Contenders, TimedRun
from bench.workloads.workload import Workload
from hpd_core import EngineConfig


def llama_cpp_requests(model: Any, workload: Workload, config: EngineConfig, weights: str) -> dict[str, ForkedRequests]:
    """Name -> what llama.cpp is asked. `weights`: their type, which is part of the names."""
    forced = workload.forced(model.config, config)
    return {
        f"{LLAMA_CPP_AR}, {weights}": whole_answers(forced),
        f"{LLAMA_CPP_FAN_OUT}, {weights}": one_per_attribute(forced),
    }


def llama_cpp_contenders(process: LlamaCppProcess, requests: dict[str, ForkedRequests]) -> Contenders:
    """Name -> a run of llama.cpp, already started with these requests."""
    return {name: partial(_run, process, name, asked) for name, asked in requests.items()}


def _run(process: LlamaCppProcess, name: str, asked: ForkedRequests) -> TimedRun:
    run = process.run(name)
    if run.num_tokens != asked.num_tokens:
        raise RuntimeError(f"{name} has forwarded {run.num_tokens:,} tokens, and was to forward {asked.num_tokens:,}")
    return TimedRun(run.seconds, StepWork(run.num_tokens, asked.num_written), peak_bytes=run.peak_bytes)
