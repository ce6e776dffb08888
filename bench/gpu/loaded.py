"""A model with random weights on the device, the workloads, and the engine's settings for both."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from pydantic import ValidationError

from bench.gpu.plan import LISTINGS, SHAPES, GpuSettings, Part
from bench.random_model import SHAPES as MODELS
from bench.random_model import random_model
from bench.speed.ceilings import StepWork
from bench.workloads.made_up import make_workload
from bench.workloads.workload import Workload
from hpd_core import EngineConfig
from hpd_core.decoding.decoder import Decoder
from hpd_core.layers import fp8
from hpd_core.models import description, loading, steering
from hpd_core.text.endings import Endings
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
"""Shape of every model of a rehearsal. The vocabulary is what the embedded model's tokenizer needs."""


def model_shape(shape: str, rehearsal: bool) -> dict[str, Any]:
    """Return the arguments of the configuration for one of `plan.SHAPES`."""
    return MODELS[SHAPES[shape]] | (_TINY if rehearsal else {})


def base_config(settings: GpuSettings, changes: Mapping[str, Any]) -> EngineConfig:
    """Return the engine's automatic settings, with a part's changes.

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
    """Model, workloads and findings that the parts of one process share."""

    def __init__(
        self, model: Any, tokenizer: Any, shape: str, settings: GpuSettings, say: Callable[[str], None]
    ) -> None:
        """Attach our attention to `model`, which is on its device."""
        self.model, self.tokenizer, self.shape, self.settings, self.say = model, tokenizer, shape, settings, say
        self.size = description.size(model)
        # For each workload and the options: what tree does, and the rows of its large steps.
        self.large_steps: dict[tuple[str, tuple[str, ...]], tuple[StepWork, int]] = {}
        self._workloads: dict[tuple[str, int], Workload] = {}
        steering.attach(model)

    @classmethod
    def of_shape(cls, part: Part, settings: GpuSettings, say: Callable[[str], None]) -> Self:
        """Make the part's model, quantized as it says. Takes seconds on a GPU.

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
        model = loading.finish(model, config)
        loaded = cls(model, tokenizer, part.shape, settings, say)
        say(
            f"{part.process}: {loaded.size['weight_bytes'] / 1e9:.1f} GB of random weights on {model.device}, made in "
            f"{time.perf_counter() - started:.1f} s"
        )
        return loaded

    @property
    def device(self) -> torch.device:
        """Return where the model is."""
        device: torch.device = self.model.device
        return device

    def config(self, part: Part) -> EngineConfig:
        """Return the engine's settings for a part."""
        return base_config(self.settings, part.settings)

    def workload(self, name: str, records: int | None = None) -> Workload:
        """Return the workload of that name, made once; by default with `settings.records` records."""
        key = name, records or self.settings.records
        if key not in self._workloads:
            self._workloads[key] = make_workload(name, self.tokenizer, EngineConfig().max_value_tokens, key[1])
        return self._workloads[key]

    def values(self, num_values: int, length: int) -> Workload:
        """Return listings with so many values together, each of `length` tokens."""
        attributes = min(16, num_values)
        workload = self.workload(LISTINGS, num_values // attributes)
        return workload.with_attributes(attributes).with_values_of(length)

    def decoder(self, config: EngineConfig) -> Decoder:
        """Make a decoder, fitted to the memory, in which values end by their length alone."""
        num_ids = self.model.get_output_embeddings().weight.shape[0]
        decoder = Decoder(self.model, Endings.none(num_ids), config, description.cache_shape(self.model))
        decoder.fit()
        return decoder

    def flop(self, work: StepWork) -> float:
        """Return the FLOP of the matrix products of some work."""
        layers, head = self.size["layer_parameters"], self.size["head_parameters"]
        return 2.0 * (layers * work.num_tokens + head * work.num_logits)

    def wait(self) -> None:
        """Wait for all that the device has to do."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
