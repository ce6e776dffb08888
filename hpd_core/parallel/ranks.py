"""Processes of a tensor-parallel engine, all on one node: rank 0 leads, the others repeat its calls.

Scheduling is deterministic. So in a step the processes only exchange the sums of cut layers and the tokens that rank 0
chose. The leader tells the others over a pipe which prompts came and when to make a step (parallel/group.py). Each
keeps the same cohorts, and of the KV cache its own heads.

The engine lives and dies as a whole (parallel/group.py). If a step fails in one process, the others wait in the middle
of it. So they are ended, and every later step raises an error: the engine has to be loaded again. A process whose
leader is gone ends itself.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from hpd_core.config import EngineConfig
from hpd_core.decoding.decoder import Decoder, StepReport
from hpd_core.decoding.next_token import Chosen, TokenChoice
from hpd_core.decoding.prompt import Prompt
from hpd_core.errors import EngineError, EngineMemoryError, HPDError, ModelError
from hpd_core.layout import IntArray
from hpd_core.models import description, loading, steering
from hpd_core.models.loading import Weights
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
    cut,
    take_device,
)
from hpd_core.system.device import is_out_of_memory
from hpd_core.text.constraints import StateTable
from hpd_core.text.endings import Endings
from hpd_core.text.member_tries import TriePlace, TrieTable
from hpd_core.text.runs import Runs
from hpd_core.text.tokenization import SegmentTokenizer

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
        process.stdout.close()
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


class Ranks:
    """Place of this process among those that share a model. `close` it."""

    def __init__(self, setup: Setup, store: TCPStore) -> None:
        """Join the process group; wait for the other processes."""
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
                timeout=LONGEST_WAIT,
            )
            # NCCL connects the GPUs when they first have something to add up: better now than behind all the loading.
            dist.all_reduce(torch.zeros(1, device=self.device))
        except BaseException:
            self.close()
            raise

    def load(self, tokenizer: Any) -> tuple[Weights, list[Tensor]]:
        """Return this rank's part of the model, and `steering.probe` of the whole (rank 0's: the others prove nothing).

        Raises:
            ModelError: as `Weights.load`.
        """
        config = self._setup.config
        dtype = str(loading.resolve_dtype(config, self.device)).removeprefix("torch.")
        on_cpu = EngineConfig.model_validate(config.model_dump() | {"device": "cpu", "dtype": dtype})
        weights = Weights.load(self._setup.model, on_cpu, self._setup.adapter)
        weights.whole_size = description.size(weights.model)
        expected: list[Tensor] = []
        if self.rank == 0:
            steering.use_own_attention(weights.model)
            expected = steering.probe(weights.model, tokenizer)
        cut(weights.model, self.rank, self.size)
        weights.model.to(self.device)
        return weights, expected

    def least(self, number: int) -> int:
        """Return the least of the processes' numbers."""
        found = torch.tensor(number)
        dist.all_reduce(found, dist.ReduceOp.MIN)
        return int(found)

    def agree(self, chosen: Chosen) -> Chosen:
        """Return the choice of rank 0: of equally likely tokens the same one must be chosen everywhere."""
        if not len(chosen.tokens):
            return chosen
        numbers, ways = torch.from_numpy(np.stack([chosen.tokens, chosen.states])), torch.from_numpy(chosen.ways)
        dist.broadcast(numbers, src=0)
        if len(ways):  # what is fed next follows from these
            dist.broadcast(ways, src=0)
        tokens, states = numbers.numpy()
        return Chosen(tokens, chosen.logprobs, states, ways.numpy())

    def close(self) -> None:
        """Leave the group, after the others have left."""
        if self.device.type == "cuda":
            abort()
        if dist.is_initialized():
            with suppress(RuntimeError):  # what is broken need not be left in order
                dist.destroy_process_group()
        torch.set_num_threads(self._num_threads_before)


class SharedDecoder(Decoder):
    """Decoder that makes its steps together with those of the other ranks."""

    restarts_after_out_of_memory = False

    def __init__(
        self,
        ranks: Ranks,
        model: Any,
        endings: Endings,
        config: EngineConfig,
        constraints: StateTable | None = None,
        tries: TrieTable | None = None,
    ) -> None:
        """Take `constraints` for rank 0 alone, which chooses; `tries` likewise: the others are told of each."""
        shape = description.cache_shape(model)
        super().__init__(model, endings, config, shape, constraints, tries)
        self._ranks = ranks
        self._num_tries_told = 0
        self._followers: Followers | None = None
        # They add up sums of as many rows: what one cannot compile, the others must not use.
        if not ranks.least(int(self.layers != "transformers")):
            self._runner.use_transformers_layers()

    def lead(self, followers: Followers) -> None:
        """Make `followers` repeat what this decoder does from now on."""
        self._followers = followers

    def add(self, prompts: Iterable[Prompt]) -> None:
        """Add prompts as `Decoder.add`."""
        arrived = list(dict.fromkeys(prompts))
        if self._followers is not None:
            new = self._tries.added_since(self._num_tries_told)
            if new:
                self._followers.tell("learn", [(place, self._tries.part(place)) for place in new])
                self._num_tries_told = new[-1].number + 1
            self._followers.tell("add", [_told(prompt) for prompt in arrived])
        super().add(arrived)

    def drop(self, prompts: Iterable[Prompt]) -> None:
        """Do nothing: the other ranks would not know, and their steps have to be the same."""

    def learn(self, tries: Sequence[tuple[TriePlace, Mapping[str, IntArray]]]) -> None:
        """Store tries that later prompts may name, at their places in rank 0's table. Former tries at these places
        belong to prompts that have finished, here as in rank 0.
        """
        for place, arrays in tries:
            self._tries.put(place, arrays)

    def clear(self) -> None:
        """Clear as `Decoder.clear`."""
        if self._followers is not None:
            self._followers.tell("clear")
        super().clear()

    def step(self) -> StepReport:
        """Make a step as `Decoder.step`. Raise `EngineError` if the other processes are gone."""
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

    def _fetch(self, choice: TokenChoice) -> Chosen:
        return self._ranks.agree(super()._fetch(choice))


def _told(prompt: Prompt) -> Prompt:
    """Return a prompt with only what other ranks need: the tokens that they feed depend on the rates of its runs,
    too.
    """
    runs = {branch: Runs((), each.most_tokens, rate=each.rate) for branch, each in prompt.runs.items()}
    return Prompt(prompt.layout, prompt.prefix_key, runs=runs)


def follow() -> None:
    """Run a process of rank 1 or higher: load its part, then do what rank 0 tells it."""
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
        store = TCPStore(HOST, setup.port, setup.config.tensor_parallel, False, LONGEST_WAIT)
        # If one ended while they meet, rank 0 would wait for it, and could not meet others after that: torch numbers
        # the tries of a process. So all else comes before.
        say(HERE)
        place = Ranks(setup, store)
        tokenizer = loading.load_tokenizer(setup.model, setup.config)
        orders.get()  # its turn to load
        model = place.load(tokenizer)[0].model
        say(LOADED)
        steering.attach(model)
        endings = description.endings(model, SegmentTokenizer(tokenizer))
        decoder = SharedDecoder(place, model, endings, setup.config)
        steering.run_probe(model, tokenizer, decoder)
        decoder.fit()
        say(READY)
        while True:
            name, arguments = orders.get()
            getattr(decoder, name)(*arguments)
    except BaseException as error:
        traceback.print_exc()
        kind = FULL if is_out_of_memory(error) else BROKEN
        say(f"{WRONG}{error}" if isinstance(error, HPDError) else f"{kind}{type(error).__name__}: {error}")
        os._exit(1)  # not in order: a thread reads from the pipe


def _listen(orders: SimpleQueue[tuple[str, tuple[Any, ...]]]) -> None:
    try:
        while True:
            orders.put(pickle.load(sys.stdin.buffer))
    except EOFError:
        pass  # the leader is gone, or has told all there was: whatever the main thread waits for will not come
    finally:
        os._exit(0)
