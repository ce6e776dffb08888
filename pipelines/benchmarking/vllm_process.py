"""vLLM as a rival: a process in an environment of its own (`make rivals`), driven over its standard input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from pipelines.benchmarking.workload import ForcedRecord
from pipelines.errors import UsageError


class VllmProcess:
    """vLLM, loaded once, in an environment and a process of its own; it sleeps between runs."""

    AUTOREGRESSIVE = "ar"
    FAN_OUT = "fan-out"

    def __init__(self, python: str, folder: str, dtype: str, records: Sequence[ForcedRecord], block_size: int) -> None:
        """Starts it and waits until it has compiled and warmed up.

        Args:
            python: the interpreter of its environment (`make rivals`).
            folder: of the model.
            block_size: tokens of a block of its KV cache. Only whole blocks of a prompt are found again.

        Raises:
            UsageError: it does not start.
        """
        runs = {
            self.AUTOREGRESSIVE: [(record.trunk, record.answer_length) for record in records],
            # One request for each attribute, as many finished prefixes as possible: a product's stand side by side.
            self.FAN_OUT: [
                item for record in records for item in zip(record.branch_prompts, record.lengths, strict=True)
            ],
        }
        longest = max(len(prompt) + count for requests in runs.values() for prompt, count in requests)
        work = {
            "model": folder,
            "dtype": dtype,
            "max_model_len": longest + block_size,
            "block_size": block_size,
            "num_threads": torch.get_num_threads(),
            "runs": runs,
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
        except BaseException:
            self.close()
            raise

    def run(self, name: str) -> float:
        """Seconds for all requests of one way of asking, with an empty prefix cache."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # then there is no answer
            print(name, file=self._process.stdin, flush=True)
        seconds: float = self._answer()["seconds"]
        return seconds

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
            answer: dict[str, Any] = json.loads(line)
            return answer
        self._process.kill()
        self._process.wait()
        last = [text for text in self._log.read_text(errors="replace").splitlines() if text.strip()][-5:]
        raise UsageError("vLLM has ended:\n  " + "\n  ".join(last))
