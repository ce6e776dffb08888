"""vLLM on the same records: whole answers (AR), and a request for each attribute (fan-out)."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.gpu.loaded import base_config, model_shape
from bench.gpu.parts import timed
from bench.gpu.plan import LISTINGS, TITLES, GpuSettings, Part
from bench.random_model import random_config
from bench.rivals.vllm_process import Requests, VllmProcess, autoregressive, fan_out
from bench.speed.contenders import VLLM_AR, VLLM_FAN_OUT
from bench.workloads.made_up import make_workload
from hpd_core.models import loading

_BLOCK_SIZE = 16
_SHARE_OF_GPU = 0.9
"""Its own default: nobody else is there."""

_WARM_REQUESTS = 256
"""It has compiled and captured all when it is ready."""

_OPTIONS = {"load_format": "dummy", "skip_tokenizer_init": True, "max_num_seqs": 1024, "max_num_batched_tokens": 16_384}
"""Random weights, made on the GPU; and as many sequences and tokens as a large GPU is fast with."""

_ROPE_THETA = 1_000_000.0


def run_vllm(part: Part, settings: GpuSettings, say: Callable[[str], object]) -> Iterator[dict[str, Any]]:
    """Yield a row for each way of asking. vLLM loads for a minute, so the default workload brings the titles, too."""
    assert part.shape is not None
    assert settings.vllm is not None
    config = base_config(settings, part.settings)
    tokenizer = loading.load_tokenizer(settings.tokenizer, config)
    shape = model_shape(part.shape, settings.rehearsal)
    model_config = random_config(shape, tokenizer)
    requests: dict[tuple[str, str], Requests] = {}
    for name in (LISTINGS, TITLES) if part.workload == LISTINGS else (part.workload,):
        workload = make_workload(name, tokenizer, config.max_value_tokens, settings.records)
        forced = workload.forced(model_config, config)
        requests[name, VLLM_AR] = autoregressive(forced)
        requests[name, VLLM_FAN_OUT] = fan_out([record.layout for record in forced])
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        # As the transformers of its environment reads it, an older one maybe.
        architecture = {"architectures": ["Qwen3ForCausalLM"], "rope_theta": _ROPE_THETA, "torch_dtype": "bfloat16"}
        Path(folder, "config.json").write_text(json.dumps({**shape, **architecture}))
        share = _SHARE_OF_GPU if settings.device == "cuda" else None
        runs = {f"{workload} {name}": asked for (workload, name), asked in requests.items()}
        options = _OPTIONS | ({"quantization": part.quantization} if part.quantization else {})
        process = VllmProcess(
            settings.vllm, folder, "bfloat16", runs, _BLOCK_SIZE, share, options=options, num_warm=_WARM_REQUESTS
        )
    say(f"vLLM {process.facts['version']}, ready in {time.perf_counter() - started:.0f} s")
    try:
        for workload_name, name in requests:
            seconds = [process.run(f"{workload_name} {name}").seconds for _ in range(part.rounds)]
            row = {
                "shape": part.shape,
                "kind": part.kind,
                "workload": workload_name,
                "options": list(part.options),
                "quantization": part.quantization,
                "name": name if workload_name == part.workload else f"{workload_name}, {name}",
                "asked": name,
                **timed(seconds, settings.records),
                "version": process.facts["version"],
            }
            say(f"{workload_name}, {name}: {row['products_per_second']:.1f} products/s, {row['seconds']:.2f} s")
            yield row
    finally:
        process.close()
