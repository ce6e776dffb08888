"""The processes of a tensor-parallel engine, all on one node: rank 0 leads, the others repeat what it does.

Scheduling is deterministic, so nothing of a step travels between the processes but what a cut layer adds up and the
tokens that rank 0 chose. The leader tells the others over a pipe which prompts came and when to make a step; each keeps
the same cohorts, and of the KV cache its own heads.

The engine lives and dies as a whole. When a step fails in one process, the others wait in the middle of it; so they are
ended, and every later step says so: the engine has to be loaded anew. A process whose leader is gone ends itself.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from hpd_core import models
from hpd_core.cohort import Chosen, CohortInput, Prompt
from hpd_core.config import EngineConfig
from hpd_core.constraints import StateTable
from hpd_core.decoder import Decoder, StepReport
from hpd_core.errors import EngineError, HPDError, ModelError
from hpd_core.extractor import Weights
from hpd_core.tensor_parallel import check_divisible, cut, cut_cache
from hpd_core.tokenization import SegmentTokenizer

_LONGEST_WAIT = timedelta(hours=1)
"""Of one process for another: each in its turn reads the whole model. That one of them died is seen earlier."""

_GRACE_SECONDS = 10.0
"""For a process that was told to end, or is about to say why it did."""

_HERE, _READY = b"here", b"ready"


@dataclass(frozen=True, slots=True)
class Setup:
    """What a process needs to know to become a part of the engine.

    Attributes:
        meeting_place: a file by which the processes find each other.
        num_threads: of each, where the model is on a CPU.
    """

    model: str
    config: EngineConfig
    adapter: str | None
    rank: int
    meeting_place: str
    num_threads: int


class Ranks:
    """This process's place among those that share a model. `close` it."""

    def __init__(self, setup: Setup) -> None:
        """Waits for the other processes. Raises `ModelError` if the device is not there."""
        self._setup = setup
        self.rank, self.size = setup.rank, setup.config.tensor_parallel
        self._device = _device(setup.config, setup.rank)
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
        else:
            torch.set_num_threads(setup.num_threads)
        dist.init_process_group(
            # What a step agrees upon is in the host's memory.
            "cpu:gloo,cuda:nccl" if self._device.type == "cuda" else "gloo",
            init_method=f"file://{setup.meeting_place}",
            rank=self.rank,
            world_size=self.size,
            timeout=_LONGEST_WAIT,
        )

    def load(self) -> Weights:
        """This rank's part of the model. One process after the other: a node's memory need not hold several copies.

        Raises:
            ModelError: as `Weights.load`.
        """
        config = self._setup.config
        dtype = str(models.resolve_dtype(config, self._device)).removeprefix("torch.")
        whole = EngineConfig.model_validate(config.model_dump() | {"device": "cpu", "dtype": dtype})
        for turn in range(self.size):
            if turn == self.rank:
                weights = Weights.load(self._setup.model, whole, self._setup.adapter)
                weights.whole_size = models.size(weights.model)
                cut(weights.model, self.rank, self.size)
                weights.model.to(self._device)
            self.least(0)  # waits for all; dist.barrier would do that on the GPUs
        return weights

    def decoder(
        self, model: Any, closing: npt.NDArray[np.bool_], config: EngineConfig, constraints: StateTable | None = None
    ) -> SharedDecoder:
        """The decoder for this rank's part of the model."""
        return SharedDecoder(self, model, closing, config, constraints)

    def least(self, number: int) -> int:
        """The least of the numbers that the processes have."""
        found = torch.tensor(number)
        dist.all_reduce(found, dist.ReduceOp.MIN)
        return int(found)

    def agree(self, chosen: Chosen) -> Chosen:
        """What rank 0 chose: a token that is as likely as another must be the same one everywhere."""
        if not len(chosen.tokens):
            return chosen
        numbers = torch.from_numpy(np.stack([chosen.tokens, chosen.states]))
        dist.broadcast(numbers, src=0)
        tokens, states = numbers.numpy()
        return Chosen(tokens, chosen.logprobs, states)

    def close(self) -> None:
        """Leaves the others."""
        with suppress(RuntimeError):  # what is broken need not be left in order
            dist.destroy_process_group()


class SharedDecoder(Decoder):
    """A decoder that makes its steps together with those of the other ranks."""

    restarts_after_out_of_memory = False

    def __init__(
        self,
        ranks: Ranks,
        model: Any,
        closing: npt.NDArray[np.bool_],
        config: EngineConfig,
        constraints: StateTable | None = None,
    ) -> None:
        """`constraints`: of rank 0 alone, which chooses."""
        super().__init__(model, closing, config, cut_cache(models.cache_shape(model), ranks.size), constraints)
        self._ranks = ranks
        self._followers: Followers | None = None

    def lead(self, followers: Followers) -> None:
        """From now on, `followers` do what this decoder does."""
        self._followers = followers

    def add(self, prompts: Iterable[Prompt]) -> None:
        """As `Decoder.add`."""
        arrived = list(prompts)
        if self._followers is not None:
            self._followers.tell("add", [Prompt(prompt.layout, prompt.prefix_key) for prompt in arrived])
        super().add(arrived)

    def clear(self) -> None:
        """As `Decoder.clear`."""
        if self._followers is not None:
            self._followers.tell("clear")
        super().clear()

    def step(self) -> StepReport:
        """As `Decoder.step`. Raises `EngineError` if the other processes are gone."""
        if self._followers is None:
            return super().step()
        self._followers.check()
        self._followers.tell("step")
        try:
            return super().step()
        except Exception as error:
            raise self._followers.end_after(error) from error

    def _free_bytes(self) -> int:
        free = super()._free_bytes()
        # A CPU's memory is for all of them.
        return self._ranks.least(free if self._shape.device.type == "cuda" else free // self._ranks.size)

    def _forward(self, inputs: list[CohortInput]) -> Chosen:
        return self._ranks.agree(super()._forward(inputs))


class Followers:
    """The processes of the ranks from 1 on, as rank 0 sees them. `close` them."""

    def __init__(self, setup: Setup) -> None:
        """Starts them; `setup` is rank 0's."""
        self._failure: str | None = None
        self._is_closed = False
        self._on_gpus = _device(setup.config, 0).type == "cuda"
        root = str(Path(__file__).parents[1])
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([root, *filter(None, sys.path)]),
            "TQDM_DISABLE": "1",  # the leader shows that a model is loaded
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        for rank in range(1, setup.config.tensor_parallel):
            process = subprocess.Popen(
                [sys.executable, "-c", "from hpd_core.ranks import follow; follow()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the leader, which ends them
            )
            self._processes.append(process)
            self._send(process, replace(setup, rank=rank))
        for process in self._processes:
            threading.Thread(target=self._watch, args=[process], name="hpd-watch", daemon=True).start()

    def wait_for(self, word: bytes) -> None:
        """Raises `ModelError` with what a process says in place of the word, or said before it ended."""
        for rank, process in enumerate(self._processes, start=1):
            assert process.stdout is not None
            said = process.stdout.readline().strip()
            if said != word:
                reason = said.decode(errors="replace") or "it ended without a word; its errors are in the log"
                raise ModelError(f"rank {rank} of the tensor-parallel engine does not start: {reason}")

    def raise_if_ended(self) -> None:
        """Raises `ModelError` if one of them has ended while the engine is loaded."""
        if any(code is not None for code in self._exit_codes()):
            self.wait_for(_READY)

    def tell(self, name: str, *arguments: Any) -> None:
        """Has them call a method of their decoder. Whether they are still there is seen in the next step."""
        for process in self._processes:
            with suppress(BrokenPipeError, ValueError):
                self._send(process, (name, arguments))

    def check(self) -> None:
        """Raises `EngineError` if they are gone."""
        if self._failure is not None:
            raise EngineError(f"{self._failure}; load the engine anew")

    def end_after(self, error: Exception) -> Exception:
        """Ends them all, after a step of rank 0 failed. Returns what is to be raised: the reason, as far as known."""
        codes = self._exit_codes()
        dead = [f"rank {rank} (exit code {code})" for rank, code in enumerate(codes, start=1) if code is not None]
        if dead:
            error = EngineError(f"a process of the tensor-parallel engine died: {', '.join(dead)}")
        self._failure = f"the tensor-parallel engine has ended ({type(error).__name__}: {error})"
        self._end()
        return error

    def close(self) -> None:
        """Ends them."""
        self._is_closed = True
        self._end()

    def _exit_codes(self) -> list[int | None]:
        """None for those that live; one that took others along may just be about to be gone."""
        until = time.monotonic() + 1.0
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
        return [process.poll() for process in self._processes]

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
        pickle.dump(message, process.stdin)
        process.stdin.flush()

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        if not self._is_closed and self._on_gpus and dist.is_initialized():
            # NCCL does not notice that another process died, and would wait for it.
            group = dist.group.WORLD
            assert group is not None
            group.abort()


def _device(config: EngineConfig, rank: int) -> torch.device:
    device = models.resolve_device(config)
    if device.type != "cuda":
        return device
    if device.index is not None:
        raise ModelError(f"tensor_parallel takes the GPUs from the first on; set device to 'cuda', not {device}")
    count = torch.cuda.device_count()
    if count < config.tensor_parallel:
        raise ModelError(f"tensor_parallel is {config.tensor_parallel}, there are {count} GPUs")
    return torch.device("cuda", rank)


def check(model: str, config: EngineConfig) -> None:
    """Raises `ModelError` if the model cannot be shared so; before any weights are read."""
    if config.quantization is not None:
        raise ModelError("quantized weights cannot be cut: set quantization or tensor_parallel, not both")
    if config.max_draft_tokens_per_step:
        raise ModelError("tensor_parallel takes no drafts: set max_draft_tokens_per_step to 0")
    if dist.is_initialized():
        raise ModelError("torch.distributed is in use in this process; it can hold one tensor-parallel engine, alone")
    _device(config, 0)
    check_divisible(models.load_config(model, config), config.tensor_parallel)


class Group:
    """Rank 0's side: its own place, the followers and its part of the model. `close` it."""

    def __init__(self, model: str, config: EngineConfig, adapter: str | None) -> None:
        """Starts the other processes and loads. Raises `ModelError`."""
        check(model, config)
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hpd-ranks-"))
            threads = max(1, torch.get_num_threads() // config.tensor_parallel)
            setup = Setup(model, config, adapter, 0, str(Path(folder) / "meeting-place"), threads)
            self._followers = Followers(setup)
            stack.callback(self._followers.close)
            # Whoever waits to meet them does not notice that one has ended.
            self._followers.wait_for(_HERE)
            self.ranks = Ranks(setup)
            stack.callback(self.ranks.close)
            try:
                self.weights = self.ranks.load()
            except RuntimeError:  # what a collective says when another process is gone
                self._followers.raise_if_ended()
                raise
            self._stack = stack.pop_all()

    def lead(self, decoder: SharedDecoder) -> None:
        """Once the decoder has been proved and fitted, as the followers do with theirs."""
        self._followers.wait_for(_READY)
        decoder.lead(self._followers)

    def close(self) -> None:
        """Ends the other processes."""
        self._stack.close()


def follow() -> None:
    """The life of a process of rank 1 or higher: loads its part, then does what it is told."""
    # The pipe to the leader is for one line; what others print belongs into the log.
    answer = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    setup: Setup = pickle.load(sys.stdin.buffer)
    orders: SimpleQueue[tuple[str, tuple[Any, ...]]] = SimpleQueue()
    threading.Thread(target=_listen, args=[orders], name="hpd-listen", daemon=True).start()
    answer.write(_HERE + b"\n")
    try:
        ranks = Ranks(setup)
        model = ranks.load().model
        tokenizer = models.load_tokenizer(setup.model, setup.config)
        models.attach(model)
        closing = models.closing_tokens(model, SegmentTokenizer(tokenizer))
        decoder = ranks.decoder(model, closing, setup.config)
        models.verify(model, tokenizer, decoder)
        decoder.fit(setup.config)
    except HPDError as error:
        answer.write(" ".join(str(error).split()).encode() + b"\n")
        os._exit(1)  # not in order: a thread reads from the pipe
    answer.write(_READY + b"\n")
    while True:
        name, arguments = orders.get()
        getattr(decoder, name)(*arguments)


def _listen(orders: SimpleQueue[tuple[str, tuple[Any, ...]]]) -> None:
    while True:
        try:
            orders.put(pickle.load(sys.stdin.buffer))
        except (EOFError, pickle.UnpicklingError):
            # The leader is gone, or has told all there was. Whatever the main thread waits for will not come.
            os._exit(0)
