"""What the options of the benchmark may say together."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.errors import UsageError

_EXCLUSIVE = (
    ("--natural", "--vllm"),
    ("--natural", "--profile"),
    ("--natural", "--workload single"),
    ("--profile", "--workload single"),
    ("--natural", "--draft-model"),
    ("--vllm", "--profile"),
    *(("--llama-cpp", option) for option in ("--natural", "--profile", "--workload single")),
    ("--llama-cpp", "--compare-answers"),
    *(
        (trained, option)
        for trained in ("--lexical-units", "--block-diffusion")
        for option in ("--natural", "--profile", "--workload single", "--compare-answers")
    ),
    ("--only", "--profile"),
    ("--only", "--compare-answers"),
    ("--only", "--all"),
    ("--all", "--natural"),
    *(("--workload single", option) for option in ("--draft-model", "--all", "--compare-answers")),
    *(("--profile", option) for option in ("--draft-model", "--all", "--compare-answers")),
    *(("--compare-answers", option) for option in ("--natural", "--draft-model", "--all")),
    *(("--compiled", option) for option in ("--workload single", "--profile", "--compare-answers")),
)


def refuse_conflicts(given: Mapping[str, object]) -> None:
    """Raises `UsageError` on options that do not go together.

    Args:
        given: option -> its value; None or False: it is not there.
    """
    there = {option for option, value in given.items() if value is not None and value is not False}
    if ("--gold" in there) == ("--workload" in there):
        raise UsageError("exactly one of --gold FILE and --workload NAME is needed")
    for one, other in _EXCLUSIVE:
        if {one, other} <= there:
            raise UsageError(f"{one} and {other} exclude each other: leave one of them out")
    if "--gguf" in there and "--llama-cpp" not in there:
        raise UsageError("--gguf is for llama.cpp: name the interpreter of its environment with --llama-cpp")
