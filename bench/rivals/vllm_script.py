"""vLLM on the benchmark's prompts. Runs in an environment of its own (`make rivals`) that has vLLM and not us.

    .venv-rivals/bin/python bench/rivals/vllm_script.py WORK.json

WORK.json is written by rivals/vllm_process.py: the model, and for every way of asking its requests. Prints a JSON line
when it is ready; then, for every line of standard input, which names a way of asking, runs it with an empty prefix
cache and prints its seconds and answers. What was never asked costs nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, TextIO


def main(path: str) -> None:
    """Load the model, then answer standard input line by line."""
    with open(path, encoding="utf-8") as file:
        work = json.load(file)
    answers = _private_stdout()
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    # All threads that torch has in the other process, too; vLLM's own choice keeps a core for itself.
    os.environ["OMP_NUM_THREADS"] = str(work["num_threads"])
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "4")
    started = time.perf_counter()
    # Imported late: it reads the environment.
    import vllm

    engine = vllm.LLM(
        model=work["model"],
        dtype=work["dtype"],
        max_model_len=work["max_model_len"],
        block_size=work["block_size"],
        enable_prefix_caching=True,
        disable_log_stats=True,
        **({} if work["gpu_share"] is None else {"gpu_memory_utilization": work["gpu_share"]}),
        **work["options"],
    )
    _say(answers, {"version": vllm.__version__, "load_seconds": time.perf_counter() - started})
    warm: set[str] = set()
    for line in sys.stdin:
        name = line.strip()
        run = work["runs"][name]
        prompts = [{"prompt_token_ids": prompt} for prompt in run["prompts"]]
        parameters = _parameters(run)
        if name not in warm:
            count = work["num_warm"]
            engine.generate(prompts[:count], parameters[:count], use_tqdm=False)
            warm.add(name)
        if engine.reset_prefix_cache() is False:
            raise RuntimeError("vLLM's prefix cache could not be emptied")
        started = time.perf_counter()
        outputs = engine.generate(prompts, parameters, use_tqdm=False)
        seconds = time.perf_counter() - started
        written = [list(output.outputs[0].token_ids) for output in outputs]
        if not run["schemas"] and [len(ids) for ids in written] != run["limits"]:
            raise RuntimeError("vLLM wrote other lengths than it was asked for")
        num_cut = sum(output.outputs[0].finish_reason == "length" for output in outputs)
        _say(answers, {"seconds": seconds, "answers": written, "num_cut": num_cut})


def _parameters(run: dict[str, Any]) -> list[Any]:
    """Return greedy parameters: exactly the limit's tokens unless a schema ends an answer."""
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    shared: dict[str, Any] = {"temperature": 0.0, "detokenize": False}
    if run["schemas"]:
        shapes = [StructuredOutputsParams(json=schema) for schema in run["schemas"]]
        return [
            SamplingParams(max_tokens=limit, structured_outputs=shapes[number], **shared)
            for limit, number in zip(run["limits"], run["schema_of"], strict=True)
        ]
    return [SamplingParams(max_tokens=limit, min_tokens=limit, ignore_eos=True, **shared) for limit in run["limits"]]


def _private_stdout() -> TextIO:
    """Keep standard output for answers; whatever libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _say(answers: TextIO, message: dict[str, Any]) -> None:
    print(json.dumps(message), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
