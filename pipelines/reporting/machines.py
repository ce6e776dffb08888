"""Prices of engines, and estimates for machines that were not measured.

An unmeasured machine is assumed to do the measured work at a stated share of its data sheet's peak. Work is operations
and bytes, from the forwarded tokens and the model's size. The forecast marks this as an assumption.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipelines.config.extraction import JobConfig
from pipelines.config.operation import CostConfig
from pipelines.errors import UsageError
from pipelines.job.prices import Instance, engine_price, price_table
from pipelines.reporting.forecast import Price

_TABLE = Path(__file__).with_name("gpus.csv")
EFFICIENCY = 0.4
"""Assumed share of a GPU's dense peak, in bf16 or FP8, if nothing was measured."""


_MOST_WEIGHTS = 0.85
"""Share of a GPU's memory that weights may take: the rest is for a step's activations and some prompts' KV cache."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """Data sheet of a GPU: dense operations per second in bf16, FP8 (None if it has none) and fp32; memory in bytes per
    second, and in bytes."""

    name: str
    flops: float
    fp8_flops: float | None
    fp32_flops: float
    bandwidth: float
    memory: float


@functools.cache
def gpu_table() -> dict[str, Gpu]:
    """Read the shipped data sheets, by name."""
    with _TABLE.open(encoding="utf-8") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return {row["gpu"]: _gpu(row) for row in rows}


def _gpu(row: Mapping[str, str]) -> Gpu:
    fp8 = float(row["fp8_tflops"]) * 1e12 if row["fp8_tflops"] else None
    bf16, fp32 = (float(row[f"{name}_tflops"]) * 1e12 for name in ("bf16", "fp32"))
    return Gpu(row["gpu"], bf16, fp8, fp32, float(row["gb_per_second"]) * 1e9, float(row["gb"]) * 1e9)


def planned_price(config: JobConfig, metrics: Sequence[Mapping[str, Any]], num_others: int = 0) -> Price:
    """Return the price of an engine's hour, from the configuration, else from the measured engines' metrics.

    Args:
        num_others: engines of another model that share machines without GPUs.
    """
    last = metrics[-1] if metrics else {}
    per_node = _engines_per_node(config, last, num_others)
    cost = config.cost
    if cost.usd_per_hour is None and cost.instance_type is None:
        return Price(
            last.get("price_per_hour"),
            last.get("price_source"),
            last.get("instance_type"),
            last.get("market"),
            per_node,
        )
    # The cloud is not asked: this machine need not be one of those that are planned for.
    found = engine_price(_with_market(cost), 1 / per_node, find=Instance)
    return Price(found.usd_per_hour, found.source, cost.instance_type, found.instance.market, per_node)


def _with_market(cost: CostConfig) -> CostConfig:
    """Fill in an unset market with on-demand, the more expensive one."""
    return cost if cost.market is not None else cost.model_copy(update={"market": "on-demand"})


def _engines_per_node(config: JobConfig, measured: Mapping[str, Any], num_others: int) -> int:
    """Return the engines per node, from the machine's GPUs in the table, else from the measured engine's share."""
    known = price_table().get(config.cost.instance_type or "")
    gpus = config.actors.num_gpus
    if known is not None and gpus != 0:
        return max(1, int(known.gpu_count / (gpus or config.engine.tensor_parallel)))
    share = measured.get("node_share")
    on_cpu = measured.get("gpu_type") is None
    return config.actors.most() + num_others if on_cpu or not share else max(1, round(1 / share))


@dataclass(frozen=True, slots=True)
class Work:
    """Mean work of one catalog row.

    Attributes:
        flops: operations of the matrix products in 16 bits, without attention.
        fp8_flops: operations in FP8; with engine.quantization 'fp8', all but the output head's.
        state_flops: operations in fp32 on states of non-attention layers.
        steps: forwards of the whole model per row, if every step is full.
        weight_bytes: bytes of weights that each forward reads.
    """

    flops: float
    fp8_flops: float
    state_flops: float
    steps: float
    weight_bytes: float


def work_per_row(config: JobConfig, engine: Mapping[str, Any], tokens: Mapping[str, float]) -> Work:
    """Compute the work of a row from its forwarded tokens and the model's size.

    Raises `UsageError` if the measured run did not record the model's size, did not decode with `hpd`, or used tensor
    parallelism.
    """
    if config.decoding != "hpd":
        raise UsageError("--on: only decoding: hpd can be moved to a machine that was not measured")
    if config.engine.tensor_parallel > 1:
        raise UsageError("--on: what GPUs that share a model lose by waiting for each other has to be measured")
    size = engine.get("model_size")
    if not size:
        raise UsageError("the measured run does not say how large its model is; run a new pilot")
    answers = tokens["value"] + tokens.get("scored", 0.0)
    forwarded = tokens["document"] + tokens["key"] + answers
    of_layers, of_head = 2 * size["layer_parameters"] * forwarded, 2 * size["head_parameters"] * answers
    fp8_flops = of_layers if engine.get("quantization") == "fp8" else 0.0
    # These take seconds to import: what reads a run does without.
    import torch

    from hpd_core.decoding.memory import Limits

    # A model that runs in fp32 on a CPU runs in 16 bits on a GPU.
    narrowed = 2 if engine.get("dtype") == "float32" and config.engine.dtype == "auto" else 1
    steps = forwarded / Limits.of(config.engine, torch.device("cuda")).max_tokens_per_step
    state_flops = size.get("state_operations", 0) * forwarded
    return Work(of_layers - fp8_flops + of_head, fp8_flops, state_flops, steps, size["weight_bytes"] / narrowed)


def assumed_seconds(work: Work, gpu: Gpu, efficiency: float) -> float:
    """Estimate seconds per row on an unmeasured GPU: the slower of arithmetic and reading the weights.

    Raises `UsageError` if the work is in FP8 and the GPU has none, or if the weights do not fit its memory.
    """
    if work.weight_bytes > _MOST_WEIGHTS * gpu.memory:
        raise UsageError(
            f"--on: the model's weights take {work.weight_bytes / 1e9:,.0f} GB, which leaves too little of the "
            f"{gpu.memory / 1e9:,.0f} GB of one {gpu.name} for the KV cache; name a machine of larger GPUs"
            + ("" if work.fp8_flops else ", or plan by a pilot with engine.quantization: fp8, which halves them")
        )
    arithmetic = work.flops / gpu.flops + work.state_flops / gpu.fp32_flops
    if work.fp8_flops:
        if gpu.fp8_flops is None:
            raise UsageError(f"--on: {gpu.name} has no FP8; name a machine that has, or plan without it")
        arithmetic += work.fp8_flops / gpu.fp8_flops
    return max(arithmetic, work.steps * work.weight_bytes / gpu.bandwidth) / efficiency


def share_in_fp8(work: Work, gpu: Gpu) -> float:
    """Estimate the time of the same work with the layers in FP8, as a share of its time in 16 bits. It is 1 if
    the GPU has no FP8, or the work is in it already. The head's few operations are counted as if they were in FP8, too.
    """
    if gpu.fp8_flops is None or work.fp8_flops:
        return 1.0
    in_fp8 = replace(work, flops=0.0, fp8_flops=work.flops, weight_bytes=work.weight_bytes / 2)
    return assumed_seconds(in_fp8, gpu, 1.0) / assumed_seconds(work, gpu, 1.0)


def rate_text(work: Work, gpu: Gpu) -> str:
    """Describe the GPU's rates at which the work is computed."""
    in_fp8 = f" (the layers' at {gpu.fp8_flops / 1e12:,.0f}, FP8)" if work.fp8_flops and gpu.fp8_flops else ""
    of_states = f" (states' at {gpu.fp32_flops / 1e12:,.0f}, fp32)" if work.state_flops else ""
    return f"{gpu.flops / 1e12:,.0f} TFLOP/s{in_fp8}{of_states}"


def is_same_gpu(name: str, device: str) -> bool:
    """Return whether a device's name ("NVIDIA L40S") is that of the GPU with this name in the tables."""
    return set(name.split()) <= set(device.replace("-", " ").split())


def unlike_machine(price: Price, device: str) -> str | None:
    """Return a note if the work was measured on another machine than the priced one, else None."""
    known = price_table().get(price.instance_type or "")
    if known is None or price.usd_per_hour is None or is_same_gpu(known.gpu, device):
        return None
    way_out = f"--on {known.instance_type} assumes" if known.gpu in gpu_table() else "a pilot there measures"
    return (
        f"{known.instance_type} ({known.gpu_count} x {known.gpu}) takes as long as {device}, which was measured: the "
        f"price is of the one, the time of the other; {way_out} what it really takes"
    )


def find_gpu(instance_type: str) -> Gpu:
    """Look up the GPU of an instance type. Raises `UsageError` if the price table or the data sheets do not have it."""
    priced = price_table().get(instance_type)
    gpu = gpu_table().get(priced.gpu) if priced is not None else None
    if gpu is None:
        known = ", ".join(name for name, price in price_table().items() if price.gpu in gpu_table())
        raise UsageError(f"--on {instance_type}: no such machine in the tables; there are {known}")
    return gpu
