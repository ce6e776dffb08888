"""Processes of a tensor-parallel engine as one group, as rank 0 sees it: started, loaded, proved and ended together."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from hpd_core.config import EngineConfig
from hpd_core.errors import EngineError, EngineMemoryError, HPDError, ModelError
from hpd_core.models import loading, quantized_checkpoints, steering
from hpd_core.models.loading import Weights
from hpd_core.parallel.ranks import Ranks, SharedDecoder
from hpd_core.parallel.tensor_parallel import (
    BROKEN,
    FULL,
    HERE,
    HOST,
    LOADED,
    LONGEST_WAIT,
    READY,
    WRONG,
    Setup,
    abort,
    plan_cuts,
    take_device,
)
from hpd_core.text.constraints import StateTable
from hpd_core.text.endings import Endings
from hpd_core.text.member_tries import TrieTable

_GRACE_SECONDS = 10.0
"""Seconds for a process to end after it was told to."""

_NOTICE_SECONDS = 2.0
"""Seconds to wait after an error for the news that another process's death caused it."""


class Followers:
    """Processes of the ranks from 1 on, as rank 0 sees them. `close` them.

    One thread per process reads its messages and notices its death. If one dies, all are killed: those that wait for it
    would wait forever, and rank 0 for them.
    """

    def __init__(self, setup: Setup) -> None:
        """Start them; `setup` is rank 0's."""
        self._on_gpus = loading.resolve_device(setup.config).type == "cuda"
        self._changed = threading.Condition()
        self._said: Counter[str] = Counter()
        self._failure: HPDError | None = None
        # What the first of those said that may only have noticed that another was gone. Who fails in earnest says so
        # before its connections close, so it is the first, unless the cause is one that died without a word.
        self._suspicion: HPDError | None = None
        self._is_closed = False
        self._processes: list[subprocess.Popen[bytes]] = []
        root = str(Path(__file__).parents[2])
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([root, *filter(None, sys.path)]),
            "TQDM_DISABLE": "1",  # the leader shows that a model is loaded
        }
        with ExitStack() as stack:
            stack.callback(self.close)
            for rank in range(1, setup.config.tensor_parallel):
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", "from hpd_core.parallel.ranks import follow; follow()"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=environment,
                    start_new_session=True,  # Ctrl-C is for the leader, which ends them
                )
                self._processes.append(process)
                threading.Thread(target=self._watch, args=[rank, process], name="hpd-watch", daemon=True).start()
                self._send(process, replace(setup, rank=rank))
            stack.pop_all()

    def wait_for(self, word: str, count: int | None = None) -> None:
        """Wait until all (or `count`) processes have sent `word`. Raise the error of one that failed."""
        count = len(self._processes) if count is None else count
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._said[word] >= count)
        self.check()

    def load(self) -> None:
        """Make them load their parts, one after the other: a node's memory need not hold several copies of the
        model.
        """
        for count, process in enumerate(self._processes, start=1):
            self._send(process, ("load", ()))
            self.wait_for(LOADED, count)

    def tell(self, name: str, *arguments: Any) -> None:
        """Make them call a method of their decoder. The next step detects whether they still exist."""
        for process in self._processes:
            self._send(process, (name, arguments))

    def check(self) -> None:
        """Raise `EngineError`, or the `ModelError` of one that does not start, if they are gone."""
        if self._failure is not None:
            raise self._failure

    def end_after(self, error: BaseException) -> HPDError | None:
        """End them, after something failed in rank 0. Return the reason if it was one of them."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure, _NOTICE_SECONDS)
            reason = self._failure = self._failure or self._suspicion
            if reason is None:
                self._failure = EngineError(
                    f"the tensor-parallel engine has ended ({type(error).__name__}: {error}); load it anew"
                )
        self._end()
        return reason

    def close(self) -> None:
        """End them."""
        self._is_closed = True
        self._end()

    def _end(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS)
            process.kill()
            process.wait()

    def _send(self, process: subprocess.Popen[bytes], message: Any) -> None:
        assert process.stdin is not None
        with suppress(BrokenPipeError, ValueError):  # that it has ended is seen where something is wanted of it
            pickle.dump(message, process.stdin)
            process.stdin.flush()

    def _watch(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        reason: HPDError | None = None
        may_be_a_consequence = False
        for line in process.stdout:
            word = line.decode(errors="replace").strip()
            if word.startswith(WRONG):
                reason = ModelError(word.removeprefix(WRONG))
            elif word.startswith(FULL):
                reason = EngineMemoryError(f"{_name(rank)} failed: {word.removeprefix(FULL)}; load the engine anew")
            elif word.startswith(BROKEN):
                reason = EngineError(f"{_name(rank)} failed: {word.removeprefix(BROKEN)}; load the engine anew")
                may_be_a_consequence = len(self._processes) > 1
            with self._changed:
                if may_be_a_consequence:
                    self._suspicion = self._suspicion or reason
                self._said[word] += 1
                self._changed.notify_all()
        code = process.wait()
        with self._changed:
            if may_be_a_consequence:
                # It may have waited for another one that died. That one's thread has seen it or is about to, and knows
                # the reason.
                self._changed.wait_for(lambda: self._failure, _NOTICE_SECONDS)
                reason = self._suspicion
            if self._is_closed or self._failure is not None:
                return
            self._failure = reason or EngineError(f"{_name(rank)} died (exit code {code}); load the engine anew")
            self._changed.notify_all()
        for other in self._processes:
            other.kill()
        if self._on_gpus:
            abort()


def _name(rank: int) -> str:
    return f"rank {rank} of the tensor-parallel engine"


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
