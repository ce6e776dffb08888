"""vLLM as a rival: a process in an environment of its own (`make rivals`), driven over its standard input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

import psutil
import torch

from bench.rivals.resident_memory import reset_peak, status
from bench.rivals.vllm_requests import Requests
from hpd_core.models import loading
from pipelines.errors import UsageError


@dataclass(frozen=True, slots=True)
class VllmRun:
    """One run of all requests.

    Attributes:
        answers: token ids per request, the one that ended it included.
        num_cut: how many of them ended at their limit.
        peak_bytes: resident memory of its processes at their highest, above what they held when it was ready. None on a
            GPU, whose memory it takes beforehand, and where the kernel tells no peaks.
    """

    seconds: float
    answers: list[list[int]]
    num_cut: int
    peak_bytes: int | None


_SHARE_OF_GPU = 0.45
"""By itself vLLM would take nine tenths, and this process has its model and cache there, too."""

_SECONDS_OF_A_LOOK = 0.2
_IDLE_SHARE = 0.1
"""Of a core. Less is no load."""
_MOST_SECONDS_TO_REST = 60


class VllmProcess:
    """vLLM, loaded once, in an environment and a process of its own; it sleeps between runs."""

    def __init__(
        self,
        python: str,
        folder: str,
        dtype: str,
        runs: Mapping[str, Requests],
        block_size: int,
        gpu_share: float | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        num_warm: int | None = None,
    ) -> None:
        """Starts it and waits until it has compiled.

        Args:
            python: the interpreter of its environment (`make rivals`).
            folder: of the model.
            runs: name -> requests that are asked together.
            block_size: tokens of a block of its KV cache. Only whole blocks of a prompt are found again.
            gpu_share: of the GPU's memory, for its weights and cache; None where there is no GPU.
            options: further arguments of `vllm.LLM`.
            num_warm: requests of a run that are made beforehand, untimed; None: all.

        Raises:
            UsageError: it does not start.
        """
        longest = max(
            len(prompt) + limit for run in runs.values() for prompt, limit in zip(run.prompts, run.limits, strict=True)
        )
        work = {
            "model": folder,
            "dtype": dtype,
            "max_model_len": longest + block_size,
            "block_size": block_size,
            "num_threads": torch.get_num_threads(),
            "gpu_share": gpu_share,
            "options": dict(options or {}),
            "num_warm": num_warm,
            "runs": {name: asdict(run) for name, run in runs.items()},
        }
        self._scratch = tempfile.TemporaryDirectory(prefix="hpd-vllm-")
        path = Path(self._scratch.name, "work.json")
        path.write_text(json.dumps(work), encoding="utf-8")
        script = Path(__file__).with_name("vllm_script.py")
        self._log = Path(self._scratch.name, "log.txt")
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [python, "-P", str(script), str(path)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
        except OSError as error:
            raise UsageError(f"--vllm {python}: {error}") from error
        try:
            self.facts = self._answer()
            if gpu_share is None and self._reset_peaks():
                self.facts["ready_bytes"] = self._resident("VmRSS")
        except BaseException:
            self.close()
            raise

    @classmethod
    def of_model(cls, python: str, source: str, model: Any, runs: Mapping[str, Requests], block_size: int) -> Self:
        """With the model `source`, in the dtype that `model` was loaded from there in."""
        dtype = str(model.dtype).removeprefix("torch.")
        share = _SHARE_OF_GPU if model.device.type == "cuda" else None
        return cls(python, loading.resolve_source(source), dtype, runs, block_size, share)

    def run(self, name: str) -> VllmRun:
        """All requests of one run, with an empty prefix cache; returns when nothing of vLLM is running any more.

        Raises:
            UsageError: it has ended.
        """
        assert self._process.stdin is not None
        is_measured = "ready_bytes" in self.facts and self._reset_peaks()
        with suppress(BrokenPipeError):  # then there is no answer
            print(name, file=self._process.stdin, flush=True)
        answer = self._answer()
        peak = self._resident("VmHWM") - self.facts["ready_bytes"] if is_measured else None
        return VllmRun(**answer, peak_bytes=peak)

    def _reset_peaks(self) -> bool:
        return all(reset_peak(process.pid) for process in _family(self._process.pid))

    def _resident(self, name: Literal["VmRSS", "VmHWM"]) -> int:
        """Of all its processes; peaks added up, though they may be at different times."""
        total = 0
        for process in _family(self._process.pid):
            with suppress(OSError):  # it has ended, and holds nothing
                total += status(process.pid, name)
        return total

    def close(self) -> None:
        """Ends it."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._scratch.cleanup()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line.startswith("{"):
            wait_until_idle(self._process.pid)
            answer: dict[str, Any] = json.loads(line)
            return answer
        self._process.kill()
        self._process.wait()
        last = [text for text in self._log.read_text(errors="replace").splitlines() if text.strip()][-5:]
        raise UsageError("vLLM has ended:\n  " + "\n  ".join(last))


def wait_until_idle(pid: int) -> None:
    """Returns when a process and its children use no processor any more.

    vLLM's workers look for the next request in a busy loop for seconds, on cores that the next contender is to have.

    Raises:
        UsageError: they go on for a minute.
    """
    deadline = time.monotonic() + _MOST_SECONDS_TO_REST
    before = _processor_seconds(pid)
    while time.monotonic() < deadline:
        time.sleep(_SECONDS_OF_A_LOOK)
        now = _processor_seconds(pid)
        used = sum(seconds - before.get(process, 0.0) for process, seconds in now.items())
        if used < _IDLE_SHARE * _SECONDS_OF_A_LOOK:
            return
        before = now
    raise UsageError(f"process {pid} goes on working after its answer: whoever comes next would be measured beside it")


def _processor_seconds(pid: int) -> dict[psutil.Process, float]:
    """Of each that is there; one that has ended takes its seconds with it."""
    found = {}
    for process in _family(pid):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found[process] = times.user + times.system
    return found


def _family(pid: int) -> list[psutil.Process]:
    """The process and its children; none that has ended."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    return []
