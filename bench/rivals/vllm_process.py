"""vLLM as a rival: a process in an environment of its own (`make rivals`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import torch
from transformers import PreTrainedModel

from bench.rivals.outside_process import OutsideProcess
from bench.rivals.vllm_requests import Requests
from hpd_core.models import loading


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


class VllmProcess(OutsideProcess):
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
        super().__init__("vLLM", "--vllm", python, "vllm_script.py", work, measures_memory=gpu_share is None)

    @classmethod
    def of_model(
        cls, python: str, source: str, model: PreTrainedModel, runs: Mapping[str, Requests], block_size: int
    ) -> Self:
        """With the model `source`, in the dtype that `model` was loaded from there in."""
        dtype = str(model.dtype).removeprefix("torch.")
        share = _SHARE_OF_GPU if model.device.type == "cuda" else None
        return cls(python, loading.resolve_source(source), dtype, runs, block_size, share)

    def run(self, name: str) -> VllmRun:
        """All requests of one run, with an empty prefix cache; returns when nothing of vLLM is running any more.

        Raises:
            UsageError: it has ended.
        """
        answer, peak = self.ask(name)
        return VllmRun(**answer, peak_bytes=peak)
