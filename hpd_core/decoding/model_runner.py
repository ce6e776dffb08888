"""Runner of the model over what the cohorts feed in one step. It does not choose what runs (scheduler.py does).

The attention backend and the implementation of the layers are chosen once, when it is made. On a GPU these are our
kernels in Triton, with one copy of all cohorts' tables to the device, and small steps as CUDA graphs. On a CPU these
are our kernels in C++; other models run transformers' own code around our attention.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from hpd_core.attention.dispatch import PackedBatch, way_to_attend
from hpd_core.attention.kv_cache import CacheShape
from hpd_core.attention.plan import AddressedPlan, AttentionPlan
from hpd_core.config import EngineConfig
from hpd_core.decoding.cohort_cache import CohortInput
from hpd_core.decoding.next_token import TokenChoice, greedy
from hpd_core.errors import ModelError
from hpd_core.families.table import mixers_of, refuse_layout
from hpd_core.layers.forward import CpuLayers, OurLayers, transformers_logits, why_not_ours
from hpd_core.layers.packed_linears import PackedLinears, TiledLogits
from hpd_core.layout import IntArray
from hpd_core.mixers.states import MixerShape
from hpd_core.system.device import to_device
from hpd_core.text.constraints import StateTable
from hpd_core.text.member_tries import TrieTable

if TYPE_CHECKING:
    from hpd_core.attention.triton_step import TritonAttention
    from hpd_core.layers.triton_layers import StepGraphs, TritonLayers

logger = logging.getLogger(__name__)


class ModelRunner:
    """The model of one decoder.

    Attributes:
        way: the attention backend.
        shape: memory of a token in the cache, with that backend.
    """

    def __init__(
        self,
        model: Any,
        config: EngineConfig,
        shape: CacheShape,
        constraints: StateTable | None,
        tries: TrieTable | None = None,
    ) -> None:
        """Choose backends. Raises `ModelError` if the settings ask for one that is not available."""
        self._model = model
        self._constraints, self._tries = constraints, tries
        refuse_layout(model.config, config.layout)
        self._mixers = mixers_of(model)
        self.way = way_to_attend(config.attention, shape)
        self.shape = shape
        # Query heads that share a KV head, where it is the same in all layers.
        self._group = shape.layer.num_heads // shape.layer.num_kv_heads if shape.is_uniform and shape.layers else 1
        self._attention: TritonAttention | None = None
        if self.way == "triton":
            devices = {str(part.device) for part in model.parameters()}
            if len(devices) > 1:
                raise ModelError(
                    f"the model's weights are on {', '.join(sorted(devices))}; an engine has one device. Several GPUs "
                    f"share a model by engine.tensor_parallel"
                )
            from hpd_core.attention.triton_step import TritonAttention  # Triton is not everywhere

            self._attention = TritonAttention(shape, self._group)
        self._layers = self._our_layers(config)
        mlps = self._layers.mlps if isinstance(self._layers, CpuLayers) else []
        self._linears = PackedLinears(model, mlps)
        self._graphs = self._step_graphs(config)

    def _our_layers(self, config: EngineConfig) -> CpuLayers | TritonLayers | None:
        asked = config.layers
        ways: dict[str, OurLayers] = {"native": "native", "triton": "triton"}
        by = ways.get(self.way)
        if asked == "transformers" or (asked == "auto" and by is None):
            return None
        if asked not in ("auto", by):
            raise ModelError(f"engine.layers is {asked!r}, but attention is {self.way!r}; try 'auto' for both")
        assert by is not None
        reason = why_not_ours(self._model, by)
        if reason is None:
            if by == "native":
                return CpuLayers(self._model)
            from hpd_core.layers.triton_layers import TritonLayers

            return TritonLayers(self._model)
        if asked != "auto":
            raise ModelError(
                f"engine.layers is {asked!r}, but {reason}; 'auto' takes the model's own code where it must"
            )
        # On a GPU that is much slower, on a CPU by some percent.
        logger.log(logging.WARNING if by == "triton" else logging.INFO, "layers run by transformers' code: %s", reason)
        return None

    def _step_graphs(self, config: EngineConfig) -> StepGraphs | None:
        if self._attention is None or self._layers is None or isinstance(self._layers, CpuLayers):
            return None
        from hpd_core.layers.triton_layers import StepGraphs, why_no_graphs

        if not config.cuda_graphs:
            return None
        reason = why_no_graphs(self._model, self.shape.device)
        if reason is None:
            from hpd_core.attention.triton_step import TritonAttention

            attention = TritonAttention(self.shape, self._group, small_steps=True)
            return StepGraphs(self._layers, attention, self.shape.device, is_required=config.cuda_graphs is True)
        if config.cuda_graphs != "auto":
            raise ModelError(f"engine.cuda_graphs is true, but {reason}; 'auto' goes without them where it must")
        if self.shape.device.type == "cuda":
            logger.warning("small steps go without CUDA graphs: %s", reason)
        return None

    @property
    def layers(self) -> Literal["native", "triton", "transformers"]:
        """Implementation that runs the model's layers."""
        return "transformers" if self._layers is None else self._layers.by

    @property
    def mixer_shapes(self) -> Sequence[MixerShape]:
        """Shapes of the states that layers beside attention keep, if there are any."""
        return self._mixers.shapes if self._mixers else ()

    def use_transformers_layers(self) -> None:
        """Use transformers' code for the layers from now on."""
        self._layers = self._graphs = None

    def forget(self) -> None:
        """Release the memory that it keeps from step to step."""
        if isinstance(self._layers, CpuLayers):
            self._layers.forget()
        if self._graphs is not None:
            self._graphs.forget()

    def run(self, inputs: Sequence[CohortInput]) -> TokenChoice:
        """Give the device one forward of all inputs; return the next tokens of all cohorts' logit rows, in order.

        Raises:
            ModelError: the number of attention calls is not that of the loaded model.
        """
        token_ids = np.concatenate([item.token_ids for item in inputs])
        logit_rows = np.concatenate([item.logit_rows + item.plan.start for item in inputs])
        states, nodes = (np.concatenate([getattr(item, name) for item in inputs]) for name in ("states", "nodes"))
        device = self.shape.device
        with self._around(), self._mixing(inputs):
            if self._attention is None:
                positions = np.concatenate([item.positions for item in inputs])
                logits = self._packed(inputs, token_ids, positions, logit_rows)
            else:
                logits = self._addressed(self._attention, inputs, token_ids, logit_rows)
            return greedy(logits, states, self._constraints, device, by=self.way, nodes=nodes, tries=self._tries)

    def _around(self) -> AbstractContextManager[None]:
        # Triton launches on torch's current device, whichever the tensors are on.
        if self.way == "triton" and self.shape.device.type == "cuda":
            here: AbstractContextManager[None] = torch.cuda.device(self.shape.device)
            return here
        return nullcontext()

    def _mixing(self, inputs: Sequence[CohortInput]) -> AbstractContextManager[None]:
        return self._mixers.running([item.plan.mixing for item in inputs]) if self._mixers else nullcontext()

    def _packed(
        self, inputs: Sequence[CohortInput], token_ids: IntArray, positions: IntArray, logit_rows: IntArray
    ) -> Iterable[Tensor] | TiledLogits:
        """Return logits, computed by the plans of the cohorts, each on its own."""
        plans = [item.plan for item in inputs if isinstance(item.plan, AttentionPlan)]
        batch = PackedBatch(plans, self.way, calls=self.shape.calls)
        ids, places, wanted = (to_device(array, self.shape.device) for array in (token_ids, positions, logit_rows))
        with self._linears.active():
            if isinstance(self._layers, CpuLayers):
                logits = self._layers.logits(ids, places, wanted, batch, self._linears)
            else:
                logits = transformers_logits(self._model, ids, places, wanted, batch)
        batch.forget_masks()
        self._check(batch)
        return logits

    def _addressed(
        self, attention: TritonAttention, inputs: Sequence[CohortInput], token_ids: IntArray, logit_rows: IntArray
    ) -> Iterable[Tensor]:
        """Return logits, computed by the tables of all cohorts."""
        plans = [item.plan for item in inputs if isinstance(item.plan, AddressedPlan)]
        if self._graphs is not None:
            logits = self._graphs.logits(plans, token_ids, logit_rows)
            if logits is not None:
                return logits
        step = attention.step(attention.tables(plans, token_ids, logit_rows))
        batch = PackedBatch([], self.way, step, self.shape.calls)
        if self._layers is not None and not isinstance(self._layers, CpuLayers):
            return self._layers.logits(step)
        step.note()
        found = transformers_logits(self._model, step.token_ids, step.positions, step.logit_rows, batch)
        self._check(batch)
        return found

    def _check(self, batch: PackedBatch) -> None:
        if batch.num_calls != len(self.shape.calls):
            raise ModelError(
                f"the model called attention {batch.num_calls} times in a forward, and {len(self.shape.calls)} times "
                f"when it was loaded: nobody can tell which keys and values belong together"
            )
