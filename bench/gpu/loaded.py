"""A model with random weights on the device, the workloads, and the engine's settings for both."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from pydantic import ValidationError

from bench.gpu.nf4 import to_nf4
from bench.gpu.plan import SHAPES, Part
from bench.gpu.supervisor import GpuSettings
from bench.random_model import SHAPES as MODELS
from bench.random_model import random_model
from bench.speed.ceilings import StepWork
from bench.workloads.made_up import make_workload
from bench.workloads.workload import Workload
from hpd_core import EngineConfig
from hpd_core.layers import fp8
from hpd_core.models import description, loading, steering
from pipelines.errors import UsageError

_TINY: dict[str, Any] = {
    "vocab_size": 49_664,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
"""What every model of a rehearsal is instead. The vocabulary is what the embedded model's tokenizer needs."""


def model_shape(shape: str, rehearsal: bool) -> dict[str, Any]:
    """The arguments of the configuration, for one of `plan.SHAPES`."""
    return MODELS[SHAPES[shape]] | (_TINY if rehearsal else {})


def base_config(settings: GpuSettings, changes: Mapping[str, Any]) -> EngineConfig:
    """The engine's settings: automatic, but for what a part says.

    Raises:
        UsageError: there is no such setting, or not with this value.
    """
    try:
        return EngineConfig.model_validate({"device": settings.device, "dtype": "bfloat16", **changes})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"engine.{where}: {first['msg']} (got {first.get('input')!r})") from None


class Loaded:
    """What the parts of one process share."""

    def __init__(
        self, model: Any, tokenizer: Any, shape: str, settings: GpuSettings, say: Callable[[str], None]
    ) -> None:
        """`model`: where it is to run; this attaches our attention to it."""
        self.model, self.tokenizer, self.shape, self.settings, self.say = model, tokenizer, shape, settings, say
        self.size = description.size(model)
        # For each workload: what tree does, and the rows of its large steps.
        self.large_steps: dict[str, tuple[StepWork, int]] = {}
        self._workloads: dict[tuple[str, int], Workload] = {}
        steering.attach(model)

    @classmethod
    def of_shape(cls, part: Part, settings: GpuSettings, say: Callable[[str], None]) -> Self:
        """The part's model, quantized as it says. Takes seconds on a GPU.

        Raises:
            UsageError: it cannot be had here.
        """
        assert part.shape is not None
        started = time.perf_counter()
        if settings.rehearsal:
            torch.set_num_threads(1)  # for models so small, others are mostly waited for
        config = base_config(settings, part.settings)
        tokenizer = loading.load_tokenizer(settings.tokenizer, config)
        model = random_model(model_shape(part.shape, settings.rehearsal), tokenizer, settings.device)
        model.requires_grad_(False)
        if config.quantization == "fp8" and (reason := fp8.why_not(model.device, model.dtype)) is not None:
            raise UsageError(f"FP8 cannot be had: {reason}")
        if config.quantization == "nf4":
            to_nf4(model)
        model = loading.finish(model, config)
        loaded = cls(model, tokenizer, part.shape, settings, say)
        say(
            f"{part.process}: {loaded.size['weight_bytes'] / 1e9:.1f} GB of random weights on {model.device}, made in "
            f"{time.perf_counter() - started:.1f} s"
        )
        return loaded

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        device: torch.device = self.model.device
        return device

    def config(self, part: Part) -> EngineConfig:
        """The engine's settings for a part."""
        return base_config(self.settings, part.settings)

    def workload(self, name: str, records: int | None = None) -> Workload:
        """The workload of that name; None: of as many records as all."""
        key = name, records or self.settings.records
        if key not in self._workloads:
            self._workloads[key] = make_workload(name, self.tokenizer, EngineConfig().max_value_tokens, key[1])
        return self._workloads[key]

    def flop(self, work: StepWork) -> float:
        """Of the matrix products of some work."""
        layers, head = self.size["layer_parameters"], self.size["head_parameters"]
        return 2.0 * (layers * work.num_tokens + head * work.num_logits)

    def wait(self) -> None:
        """For all that the device has to do."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
