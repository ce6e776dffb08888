"""vLLM on the benchmark's prompts. Runs in an environment of its own (`make rivals`) that has vLLM and not us.

    .venv-rivals/bin/python pipelines/benchmarking/vllm_script.py WORK.json

WORK.json is written by benchmark.py: the model, and for every way of asking a list of [prompt token ids, tokens to
write]. Prints one JSON line when it is ready; then, for every line of standard input, which names a way of asking,
runs it with an empty prefix cache and prints its seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, TextIO


def main(path: str) -> None:
    """Loads the model, then answers standard input line by line."""
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
    )
    runs = {name: _requests(vllm, items) for name, items in work["runs"].items()}
    for prompts, parameters in runs.values():
        engine.generate(prompts[:2], parameters[:2], use_tqdm=False)
    _say(answers, {"version": vllm.__version__, "load_seconds": time.perf_counter() - started})
    for line in sys.stdin:
        prompts, parameters = runs[line.strip()]
        if engine.reset_prefix_cache() is False:
            raise RuntimeError("vLLM's prefix cache could not be emptied")
        started = time.perf_counter()
        outputs = engine.generate(prompts, parameters, use_tqdm=False)
        seconds = time.perf_counter() - started
        written = [len(output.outputs[0].token_ids) for output in outputs]
        if written != [parameter.max_tokens for parameter in parameters]:
            raise RuntimeError("vLLM wrote other lengths than it was asked for")
        _say(answers, {"seconds": seconds})


def _requests(vllm: Any, items: list[tuple[list[int], int]]) -> tuple[list[Any], list[Any]]:
    prompts = [{"prompt_token_ids": prompt} for prompt, _ in items]
    parameters = [
        vllm.SamplingParams(temperature=0.0, max_tokens=count, min_tokens=count, ignore_eos=True, detokenize=False)
        for _, count in items
    ]
    return prompts, parameters


def _private_stdout() -> TextIO:
    """Standard output for answers alone; whatever libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _say(answers: TextIO, message: dict[str, Any]) -> None:
    print(json.dumps(message), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
