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
import threading
import traceback
from collections import Counter
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
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from hpd_core import models
from hpd_core.choosing import Choice
from hpd_core.cohort import Chosen, Prompt
from hpd_core.config import EngineConfig
from hpd_core.constraints import StateTable
from hpd_core.decoder import Decoder, StepReport
from hpd_core.errors import EngineError, EngineMemoryError, HPDError, ModelError
from hpd_core.extractor import Weights
from hpd_core.memory import is_out_of_memory
from hpd_core.tensor_parallel import cut, cut_cache, plan_cuts
from hpd_core.tokenization import SegmentTokenizer

_HOST = "127.0.0.1"

_LONGEST_WAIT = timedelta(minutes=5)
"""Of one process for another, until they have met and within a step: all of them are at about the same place."""

_GRACE_SECONDS = 10.0
"""For a process that was told to end."""

_NOTICE_SECONDS = 2.0
"""After something went wrong, for the news that it was because another process died."""

_HERE, _LOADED, _READY = "here", "loaded", "ready"
_WRONG, _FULL, _BROKEN = "wrong ", "full ", "broken "
"""What a process says: it has its device; its part; it is proved; why it ends: the user's fault, too little memory, or
anything else."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a process needs to know to become a part of the engine.

    Attributes:
        port: of rank 0 on this node, where the processes find each other.
        num_threads: of each, where the model is on a CPU.
    """

    model: str
    config: EngineConfig
    adapter: str | None
    rank: int
    port: int
    num_threads: int


class Ranks:
    """This process's place among those that share a model. `close` it."""

    def __init__(self, setup: Setup, store: TCPStore) -> None:
        """Waits for the other processes."""
        self._setup = setup
        self.rank, self.size = setup.rank, setup.config.tensor_parallel
        self.device = take_device(setup.config, setup.rank)
        self._num_threads_before = torch.get_num_threads()
        if self.device.type == "cpu":
            torch.set_num_threads(setup.num_threads)
        try:
            dist.init_process_group(
                # What a step agrees upon is in the host's memory.
                "cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo",
                store=store,
                rank=self.rank,
                world_size=self.size,
                timeout=_LONGEST_WAIT,
            )
            # NCCL connects the GPUs when they first have something to add up: better now than behind all the loading.
            dist.all_reduce(torch.zeros(1, device=self.device))
        except BaseException:
            self.close()
            raise

    def load(self, tokenizer: Any) -> tuple[Weights, list[Tensor]]:
        """This rank's part of the model, and `models.probe` of the whole (rank 0's: the others have nothing to prove).

        Raises:
            ModelError: as `Weights.load`.
        """
        config = self._setup.config
        dtype = str(models.resolve_dtype(config, self.device)).removeprefix("torch.")
        on_cpu = EngineConfig.model_validate(config.model_dump() | {"device": "cpu", "dtype": dtype})
        weights = Weights.load(self._setup.model, on_cpu, self._setup.adapter)
        weights.whole_size = models.size(weights.model)
        expected: list[Tensor] = []
        if self.rank == 0:
            models.use_own_attention(weights.model)
            expected = models.probe(weights.model, tokenizer)
        cut(weights.model, self.rank, self.size)
        weights.model.to(self.device)
        return weights, expected

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
        """Leaves the group, in which nobody is left."""
        if self.device.type == "cuda":
            abort()
        if dist.is_initialized():
            with suppress(RuntimeError):  # what is broken need not be left in order
                dist.destroy_process_group()
        torch.set_num_threads(self._num_threads_before)


def abort() -> None:
    """Ends what the GPUs do together. NCCL does not notice that another process died, and would wait for it."""
    if dist.is_initialized() and dist.group.WORLD is not None:
        dist.group.WORLD.abort()


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
        arrived = list(dict.fromkeys(prompts))
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
            reason = self._followers.end_after(error)
            if reason is None:
                raise
            raise reason from error

    def _free_bytes(self) -> int:
        free = super()._free_bytes()
        # A CPU's memory is for all of them.
        return self._ranks.least(free if self._shape.device.type == "cuda" else free // self._ranks.size)

    def _fetch(self, choice: Choice) -> Chosen:
        return self._ranks.agree(super()._fetch(choice))


class Followers:
    """The processes of the ranks from 1 on, as rank 0 sees them. `close` them.

    A thread for each listens to what it says and sees it die; with one, all are ended: those that wait for it would
    wait for ever, and rank 0 for them.
    """

    def __init__(self, setup: Setup) -> None:
        """Starts them; `setup` is rank 0's."""
        self._on_gpus = models.resolve_device(setup.config).type == "cuda"
        self._changed = threading.Condition()
        self._said: Counter[str] = Counter()
        self._failure: HPDError | None = None
        # What the first of those said that may only have noticed that another was gone. Who fails in earnest says so
        # before its connections close, so it is the first, unless the cause is one that died without a word.
        self._suspicion: HPDError | None = None
        self._is_closed = False
        self._processes: list[subprocess.Popen[bytes]] = []
        root = str(Path(__file__).parents[1])
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([root, *filter(None, sys.path)]),
            "TQDM_DISABLE": "1",  # the leader shows that a model is loaded
        }
        with ExitStack() as stack:
            stack.callback(self.close)
            for rank in range(1, setup.config.tensor_parallel):
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", "from hpd_core.ranks import follow; follow()"],
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
        """Until all (or so many) have said it. Raises what has gone wrong in one of them."""
        count = len(self._processes) if count is None else count
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._said[word] >= count)
        self.check()

    def load(self) -> None:
        """Has them load their parts, one after the other: a node's memory need not hold several copies of the model."""
        for count, process in enumerate(self._processes, start=1):
            self._send(process, ("load", ()))
            self.wait_for(_LOADED, count)

    def tell(self, name: str, *arguments: Any) -> None:
        """Has them call a method of their decoder. Whether they are still there is seen in the next step."""
        for process in self._processes:
            self._send(process, (name, arguments))

    def check(self) -> None:
        """Raises `EngineError`, or the `ModelError` of one that does not start, if they are gone."""
        if self._failure is not None:
            raise self._failure

    def end_after(self, error: BaseException) -> HPDError | None:
        """Ends them, after something failed in rank 0. Returns the reason where it was one of them."""
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
        """Ends them."""
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
            if word.startswith(_WRONG):
                reason = ModelError(word.removeprefix(_WRONG))
            elif word.startswith(_FULL):
                reason = EngineMemoryError(f"{_name(rank)} failed: {word.removeprefix(_FULL)}; load the engine anew")
            elif word.startswith(_BROKEN):
                reason = EngineError(f"{_name(rank)} failed: {word.removeprefix(_BROKEN)}; load the engine anew")
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


def take_device(config: EngineConfig, rank: int) -> torch.device:
    """The rank's device, from now on this thread's; something is put there to see that it works.

    Raises `ModelError` if it is not there.
    """
    device = models.resolve_device(config)
    if device.type == "cuda":
        if device.index is not None:
            raise ModelError(f"tensor_parallel takes the GPUs from the first on; set device to 'cuda', not {device}")
        count = torch.cuda.device_count()
        if count < config.tensor_parallel:
            raise ModelError(f"tensor_parallel is {config.tensor_parallel}, there are {count} GPUs")
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
        torch.zeros(1, device=device)
    return device


def check(model: str, config: EngineConfig) -> None:
    """Raises `ModelError` if the model cannot be shared so; before any weights are read."""
    if config.quantization is not None:
        raise ModelError("quantized weights cannot be cut: set quantization or tensor_parallel, not both")
    if config.max_draft_tokens_per_step:
        raise ModelError("tensor_parallel takes no drafts: set max_draft_tokens_per_step to 0")
    if dist.is_initialized():
        raise ModelError("torch.distributed is in use in this process; it can hold one tensor-parallel engine, alone")
    take_device(config, 0)
    plan_cuts(models.load_empty(model, config), config.tensor_parallel)


class Group:
    """Rank 0's side: its own place, the followers and its part of the model. `close` it."""

    weights: Weights
    _expected: list[Tensor]  # what the whole model says to the line that proves the parts

    def __init__(self, model: str, config: EngineConfig, adapter: str | None) -> None:
        """Raises `ModelError` if the model cannot be shared so. Nothing is started yet."""
        check(model, config)
        self._setup = Setup(model, config, adapter, 0, 0, max(1, torch.get_num_threads() // config.tensor_parallel))
        self._followers: Followers | None = None
        self._ranks: Ranks | None = None

    def load(self, tokenizer: Any) -> None:
        """Starts the other processes, and loads. Raises `ModelError`, or `EngineError` if one of them died."""
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")  # all on one node
        store = TCPStore(_HOST, 0, self._setup.config.tensor_parallel, True, _LONGEST_WAIT, wait_for_workers=False)
        self._followers = Followers(replace(self._setup, port=store.port))
        self._followers.wait_for(_HERE)
        self._ranks = Ranks(self._setup, store)
        self.weights, self._expected = self._ranks.load(tokenizer)
        self._followers.load()

    def decoder(self, tokenizer: Any, closing: npt.NDArray[np.bool_], constraints: StateTable) -> SharedDecoder:
        """After `load`: a decoder that is proved and fitted to the memory, as the followers' are, and leads them.

        Raises:
            ModelError, EngineError: as `models.verify` and `load`.
        """
        assert self._followers is not None
        assert self._ranks is not None
        model, config = self.weights.model, self._setup.config
        decoder = SharedDecoder(self._ranks, model, closing, config, constraints)
        models.verify(model, tokenizer, decoder, self._expected)
        decoder.fit(config)
        self._followers.wait_for(_READY)
        decoder.lead(self._followers)
        return decoder

    def end_after(self, error: BaseException) -> HPDError | None:
        """Ends all of it, after loading failed in rank 0. Returns the reason where it was another process."""
        reason = self._followers.end_after(error) if self._followers is not None else None
        self.close()
        return reason

    def close(self) -> None:
        """Ends the other processes. Once: this process may have another engine's group by then."""
        followers, self._followers = self._followers, None
        ranks, self._ranks = self._ranks, None
        try:
            if followers is not None:
                followers.close()
        finally:
            # When they are gone: NCCL would want all to leave together.
            if ranks is not None:
                ranks.close()


def follow() -> None:
    """The life of a process of rank 1 or higher: loads its part, then does what it is told."""
    # The pipe to the leader is for a few words; what others print belongs into the log.
    answer = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def say(word: str) -> None:
        answer.write(" ".join(word.split()).encode() + b"\n")

    try:
        setup: Setup = pickle.load(sys.stdin.buffer)
        orders: SimpleQueue[tuple[str, tuple[Any, ...]]] = SimpleQueue()
        threading.Thread(target=_listen, args=[orders], name="hpd-listen", daemon=True).start()
        take_device(setup.config, setup.rank)
        store = TCPStore(_HOST, setup.port, setup.config.tensor_parallel, False, _LONGEST_WAIT)
        # If one ended while they meet, rank 0 would wait for it, and could not meet others after that: torch numbers
        # the tries of a process. So all else comes before.
        say(_HERE)
        ranks = Ranks(setup, store)
        tokenizer = models.load_tokenizer(setup.model, setup.config)
        orders.get()  # its turn to load
        model = ranks.load(tokenizer)[0].model
        say(_LOADED)
        models.attach(model)
        closing = models.closing_tokens(model, SegmentTokenizer(tokenizer))
        decoder = SharedDecoder(ranks, model, closing, setup.config)
        models.run_probe(model, tokenizer, decoder)
        decoder.fit(setup.config)
        say(_READY)
        while True:
            name, arguments = orders.get()
            getattr(decoder, name)(*arguments)
    except BaseException as error:
        traceback.print_exc()
        kind = _FULL if is_out_of_memory(error) else _BROKEN
        say(f"{_WRONG}{error}" if isinstance(error, HPDError) else f"{kind}{type(error).__name__}: {error}")
        os._exit(1)  # not in order: a thread reads from the pipe


def _listen(orders: SimpleQueue[tuple[str, tuple[Any, ...]]]) -> None:
    try:
        while True:
            orders.put(pickle.load(sys.stdin.buffer))
    except EOFError:
        pass  # the leader is gone, or has told all there was: whatever the main thread waits for will not come
    finally:
        os._exit(0)
