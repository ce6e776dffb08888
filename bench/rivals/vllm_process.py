"""vLLM as a rival: a process in an environment of its own (`make rivals`), and the ways in which it is asked."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

import psutil
import torch
from transformers import PreTrainedModel

from bench.peak_memory import reset_peak, status
from bench.workloads.workload import ForcedRecord, Workload, branch_prompts
from hpd_core import EngineConfig
from hpd_core.layout import Layout
from hpd_core.models import loading
from hpd_core.text.template import single_header
from hpd_core.text.tokenization import SegmentTokenizer
from pipelines.console.exit_codes import heed_termination
from pipelines.errors import UsageError
from pipelines.labelling.teacher_answers import json_schema as answer_schema

_SHARE_OF_GPU = 0.45
"""By default vLLM takes nine tenths, but this process has its model and cache there, too."""

_SECONDS_OF_A_LOOK = 0.2
_IDLE_SHARE = 0.1
"""Share of a core. Less is no load."""
_MOST_SECONDS_TO_REST = 60


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests that are asked together. An answer is exactly as long as its limit, unless `schemas` end it.

    Attributes:
        prompts: token ids per request.
        limits: per request, the most tokens to write.
        schemas: JSON schemas.
        schema_of: per request, the number of the schema that its answer must fit; empty: none.
    """

    prompts: list[list[int]]
    limits: list[int]
    schemas: Sequence[dict[str, Any]] = ()
    schema_of: Sequence[int] = ()


def autoregressive(records: Sequence[ForcedRecord]) -> Requests:
    """Ask one request for each record, which writes keys and values."""
    return Requests([record.trunk for record in records], [record.answer_length for record in records])


def fan_out(layouts: Sequence[Layout]) -> Requests:
    """Ask one request for each attribute, a record's side by side, so that the prefix cache has their prompt."""
    return Requests(
        [prompt for layout in layouts for prompt in branch_prompts(layout)],
        [length for layout in layouts for length in layout.max_new_tokens.tolist()],
    )


def json_schema(workload: Workload, model_config: Any, config: EngineConfig) -> Requests:
    """Ask one request for each record, whose answer must fit the category's JSON schema.

    Forced lengths and a schema exclude each other: the schema decides when an answer may end and when it must. So
    these answers end by themselves, at the latest when they are as long as all keys and the longest values (K_max)
    would be together. They may have more or fewer tokens than the other contenders' answers.

    A schema's answer begins with the brace, which for everybody else stands at the prompt's end; it is taken from
    there. White space is free, as in vLLM's default, so that a model can write the lines that the prompt asks for.
    """
    opening = SegmentTokenizer(workload.tokenizer).encode_trusted(single_header())
    prepared = workload.prompts(model_config, config.model_copy(update={"layout": "tree"}), natural=True)
    categories = [workload.records[item.slots[0].trunk].category for item in prepared]
    numbers = {category: number for number, category in enumerate(dict.fromkeys(categories))}
    records = workload.unforced(prepared, config)
    return Requests(
        prompts=[record.trunk[: -len(opening)] for record in records],
        limits=[len(opening) + record.answer_length for record in records],
        schemas=[answer_schema(workload.schemas[category]) for category in numbers],
        schema_of=[numbers[category] for category in categories],
    )


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


class VllmProcess:
    """vLLM, loaded once by vllm_script.py in an environment and a process of its own; it sleeps between runs.

    Attributes:
        facts: what it says when it is ready; with `ready_bytes`, its resident memory, if that is measured.
    """

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
        """Start it and wait until it has compiled.

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
        self._scratch = tempfile.TemporaryDirectory(prefix="hpd-rival-")
        path, self._log = Path(self._scratch.name, "work.json"), Path(self._scratch.name, "log.txt")
        path.write_text(json.dumps(work), encoding="utf-8")
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [python, "-P", str(Path(__file__).with_name("vllm_script.py")), str(path)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
        except OSError as error:
            raise UsageError(f"--vllm {python}: {error.strerror}; `make rivals` installs vLLM") from error
        # In a session of its own it would outlive a benchmark that is ended.
        heed_termination()
        atexit.register(self.close)
        try:
            self.facts = self._answer()
            if gpu_share is None and self._reset_peaks():
                self.facts["ready_bytes"] = self._resident("VmRSS")
        except BaseException:
            self.close()
            raise

    @classmethod
    def of_model(
        cls, python: str, source: str, model: PreTrainedModel, runs: Mapping[str, Requests], block_size: int
    ) -> Self:
        """Start it with the model `source`, in the dtype in which `model` was loaded from there."""
        dtype = str(model.dtype).removeprefix("torch.")
        share = _SHARE_OF_GPU if model.device.type == "cuda" else None
        return cls(python, loading.resolve_source(source), dtype, runs, block_size, share)

    def run(self, name: str) -> VllmRun:
        """Run all requests of that name with an empty prefix cache; return when vLLM is idle again.

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

    def close(self) -> None:
        """End it."""
        atexit.unregister(self.close)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._scratch.cleanup()

    def _reset_peaks(self) -> bool:
        return all(reset_peak(process.pid) for process in _family(self._process.pid))

    def _resident(self, name: Literal["VmRSS", "VmHWM"]) -> int:
        """Add up the memory of all its processes; peaks, too, though they may be at different times."""
        total = 0
        for process in _family(self._process.pid):
            with suppress(OSError):  # it has ended, and holds nothing
                total += status(process.pid, name)
        return total

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
        hint = "\n`make rivals` installs vLLM" if any("ModuleNotFoundError" in text for text in last) else ""
        raise UsageError("vLLM has ended:\n  " + "\n  ".join(last) + hint)


def wait_until_idle(pid: int) -> None:
    """Return when a process and its children use no processor any more.

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
    """Return the seconds of each living process; one that has ended takes its seconds with it."""
    found = {}
    for process in _family(pid):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found[process] = times.user + times.system
    return found


def _family(pid: int) -> list[psutil.Process]:
    """Return the living ones of the process and its children."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    return []
