"""llama.cpp as a rival: a process in an environment of its own (`make rivals`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from bench.rivals.llama_cpp_requests import ForkedRequests
from bench.rivals.outside_process import OutsideProcess
from hpd_core.models.embedded import EMBEDDED_MODELS, embedded_gguf
from pipelines.errors import UsageError


@dataclass(frozen=True, slots=True)
class Gguf:
    """Weights for llama.cpp.

    Attributes:
        name: of their type, as in `Q4_1`.
        in_bf16: they are written out in bf16 first.
    """

    name: str
    path: str
    in_bf16: bool = False


@dataclass(frozen=True, slots=True)
class LlamaCppRun:
    """One run of all requests.

    Attributes:
        answers: token ids per answer, record by record.
        num_tokens: forwarded, by llama.cpp's own count.
        peak_bytes: resident memory at its highest, its cache included, above what it held when it was ready; None where
            the kernel tells no peaks.
    """

    seconds: float
    answers: list[list[int]]
    num_tokens: int
    peak_bytes: int | None


class LlamaCppProcess(OutsideProcess):
    """llama.cpp, loaded once, in an environment and a process of its own; it sleeps between runs."""

    def __init__(self, python: str, gguf: Gguf, runs: Mapping[str, ForkedRequests], vocabulary_size: int) -> None:
        """Starts it and waits until it has loaded the model.

        Args:
            python: the interpreter of its environment (`make rivals`).
            runs: name -> requests that are asked together.
            vocabulary_size: of the job's model, whose tokens the requests are.

        Raises:
            UsageError: it does not start, or the file is another model's.
        """
        work = {
            "gguf": gguf.path,
            "in_bf16": gguf.in_bf16,
            "vocabulary_size": vocabulary_size,
            "num_threads": torch.get_num_threads(),
            "runs": {name: asdict(run) for name, run in runs.items()},
        }
        super().__init__("llama.cpp", "--llama-cpp", python, "llama_cpp_script.py", work)

    def run(self, name: str) -> LlamaCppRun:
        """All requests of one run, with an empty cache; returns when nothing of llama.cpp is running any more.

        Raises:
            UsageError: it has ended.
        """
        answer, peak = self.ask(name)
        return LlamaCppRun(**answer, peak_bytes=peak)


def ggufs(model: str, paths: Sequence[str]) -> list[Gguf]:
    """The files of these paths; without any, an embedded model's own and the same in bf16.

    Raises:
        UsageError: there is none, or one cannot be read.
    """
    if paths:
        return [Gguf(_type_of(path), path) for path in paths]
    if model not in EMBEDDED_MODELS:
        raise UsageError(f"--llama-cpp: the model {model!r} brings no GGUF file along: name one with --gguf")
    path = str(embedded_gguf(model))
    return [Gguf(_type_of(path), path), Gguf("BF16", path, in_bf16=True)]


def _type_of(path: str) -> str:
    try:
        from gguf import GGUFReader, LlamaFileType
    except ImportError as error:
        raise UsageError(f"--llama-cpp needs the package 'gguf': pip install gguf ({error})") from error
    try:
        field = GGUFReader(path).get_field("general.file_type")
    except (OSError, ValueError) as error:
        raise UsageError(f"--gguf {path}: it cannot be read as GGUF: {error}") from error
    if field is None:
        return Path(path).stem
    return LlamaFileType(int(field.contents())).name.removeprefix("MOSTLY_").removeprefix("ALL_")
