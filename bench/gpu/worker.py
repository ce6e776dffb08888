"""A process that measures: a part for every line of its standard input. Started by supervisor.py.

    python -m bench.gpu.worker "8b, bf16" SETTINGS-AS-JSON

Its standard output is one JSON object a line; whatever libraries print goes to standard error.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any, TextIO

from bench.gpu import plan
from bench.gpu.plan import Part, PartError
from bench.gpu.supervisor import GpuSettings
from hpd_core.errors import HPDError
from pipelines.errors import UsageError


class Messages:
    """To the supervisor."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def send(self, kind: str, **content: Any) -> None:
        """One message."""
        print(json.dumps({"type": kind, **content}), file=self._file, flush=True)

    def say(self, text: str) -> None:
        """A line for people."""
        self.send("say", text=text)


def main(process: str, settings: GpuSettings) -> None:
    """Answers standard input, line by line."""
    messages = Messages(_private_stdout())
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    worker = _Worker(settings, messages)
    if process != "card":
        import bench.gpu.parts  # noqa: F401  some seconds, while another process measures
    messages.send("ready")
    for line in sys.stdin:
        part = plan.parse(line.strip())
        problem = ""
        try:
            for row in worker.run(part):
                messages.send("row", row={"part": part.name, **row})
        except (HPDError, UsageError, PartError) as error:
            problem = str(error)
        except Exception as error:
            traceback.print_exc()
            lines = [text for text in traceback.format_exc().splitlines() if text.strip()]
            for text in lines[-8:]:
                messages.say(f"| {text[:220]}")
            problem = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}"
        messages.send("done", problem=problem, ends=not worker.is_sound())
    os._exit(0)  # threads of libraries may not end


class _Worker:
    def __init__(self, settings: GpuSettings, messages: Messages) -> None:
        self._settings, self._messages = settings, messages
        self._model: Any = None

    def run(self, part: Part) -> Iterator[dict[str, Any]]:
        """The rows that a part finds, one by one."""
        if part.kind in plan.FAULTS:
            _go_wrong(part.kind)
        if part.kind == plan.GEMM:
            from bench.gpu.card import card

            yield card(self._settings.device, self._messages.say)
            return
        if part.kind == plan.EXACT:
            from bench.gpu.exactness import exactness

            yield from exactness(part.limit, self._settings, self._messages.say)
            return
        if part.kind == plan.VLLM:
            from bench.gpu.vllm import run_vllm

            yield from run_vllm(part, self._settings, self._messages.say)
            return
        from bench.gpu.loaded import Loaded
        from bench.gpu.parts import run_part

        if self._model is None:
            self._model = Loaded.of_shape(part, self._settings, self._messages.say)
        yield from run_part(self._model, part)

    def is_sound(self) -> bool:
        """Gives memory back. Whether the GPU can go on: there are errors behind which nothing works any more."""
        gc.collect()
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
            return True
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except RuntimeError:
            return False
        return True


def _go_wrong(how: str) -> None:
    if how == "hang":
        time.sleep(3600)
    if how == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    raise RuntimeError("as a part fails")


def _private_stdout() -> TextIO:
    """Standard output for messages alone."""
    messages = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return messages


if __name__ == "__main__":
    main(sys.argv[1], GpuSettings(**json.loads(sys.argv[2])))
