"""Processes of a tensor-parallel engine as one group, as rank 0 sees it: started, loaded, proved and ended together."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from hpd_core.config import EngineConfig
from hpd_core.errors import HPDError, ModelError
from hpd_core.models import loading, quantized_checkpoints, steering
from hpd_core.models.loading import Weights
from hpd_core.parallel.ranks import Followers, Ranks, SharedDecoder
from hpd_core.parallel.tensor_parallel import (
    HERE,
    HOST,
    LONGEST_WAIT,
    READY,
    Setup,
    plan_cuts,
    take_device,
)
from hpd_core.text.constraints import StateTable
from hpd_core.text.endings import Endings
from hpd_core.text.member_tries import TrieTable


def check(model: str, config: EngineConfig) -> None:
    """Raise `ModelError` if the model cannot be shared so; before any weights are read."""
    if config.quantization is not None:
        raise ModelError("quantized weights cannot be cut: set quantization or tensor_parallel, not both")
    model_config = loading.load_config(model, config)
    quantized_checkpoints.refuse_fp8(model_config)
    if (
        method := quantized_checkpoints.quantization_of(model_config).get("quant_method")
    ) in quantized_checkpoints.PACKAGES:
        raise ModelError(f"the checkpoint is quantized ({method}), and cannot be cut: set tensor_parallel to 1")
    if dist.is_initialized():
        raise ModelError("torch.distributed is in use in this process; it can hold one tensor-parallel engine, alone")
    take_device(config, 0)
    plan_cuts(loading.load_empty(model, config), config.tensor_parallel)


class Group:
    """Rank 0's side: its own place, the followers and its part of the model. `close` it."""

    weights: Weights
    _expected: list[Tensor]  # what the whole model says to the line that proves the parts

    def __init__(self, model: str, config: EngineConfig, adapter: str | None) -> None:
        """Check the model. Raise `ModelError` if it cannot be shared so. Nothing is started yet."""
        check(model, config)
        self._setup = Setup(model, config, adapter, 0, 0, max(1, torch.get_num_threads() // config.tensor_parallel))
        self._followers: Followers | None = None
        self._ranks: Ranks | None = None

    def load(self, tokenizer: Any) -> None:
        """Start the other processes, and load. Raise `ModelError`, or `EngineError` if one of them died."""
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")  # all on one node
        store = TCPStore(HOST, 0, self._setup.config.tensor_parallel, True, LONGEST_WAIT, wait_for_workers=False)
        self._followers = Followers(replace(self._setup, port=store.port))
        self._followers.wait_for(HERE)
        self._ranks = Ranks(self._setup, store)
        self.weights, self._expected = self._ranks.load(tokenizer)
        self._followers.load()

    def decoder(self, tokenizer: Any, endings: Endings, constraints: StateTable, tries: TrieTable) -> SharedDecoder:
        """Return, after `load`, a decoder that is proved and fitted to the memory, like those of the followers, and
        leads them.

        Raises:
            ModelError, EngineError: as `steering.verify` and `load`.
        """
        assert self._followers is not None
        assert self._ranks is not None
        model, config = self.weights.model, self._setup.config
        decoder = SharedDecoder(self._ranks, model, endings, config, constraints, tries)
        steering.verify(model, tokenizer, decoder, self._expected)
        decoder.fit()
        self._followers.wait_for(READY)
        decoder.lead(self._followers)
        return decoder

    def end_after(self, error: BaseException) -> HPDError | None:
        """End the group, after loading failed in rank 0. Return the reason if it was another process."""
        reason = self._followers.end_after(error) if self._followers is not None else None
        self.close()
        return reason

    def close(self) -> None:
        """End the other processes. Only the first call does: later this process may have another engine's group."""
        followers, self._followers = self._followers, None
        place, self._ranks = self._ranks, None
        try:
            if followers is not None:
                followers.close()
        finally:
            # When they are gone: NCCL would want all to leave together.
            if place is not None:
                place.close()
