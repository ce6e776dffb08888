"""What the options of the benchmark may say together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from bench.speed.sweeps import Swept
from pipelines.errors import UsageError

_EXCLUSIVE = (
    ("--sweep", "--vllm"),
    ("--sweep", "--natural"),
    ("--sweep", "--profile"),
    ("--sweep", "--workload single"),
    ("--natural", "--vllm"),
    ("--natural", "--profile"),
    ("--natural", "--workload single"),
    ("--profile", "--workload single"),
    ("--natural", "--draft-model"),
    ("--vllm", "--profile"),
    *(("--llama-cpp", option) for option in ("--sweep", "--natural", "--profile", "--workload single")),
    ("--llama-cpp", "--compare-answers"),
    *(
        (trained, option)
        for trained in ("--lexical-units", "--block-diffusion")
        for option in ("--sweep", "--natural", "--profile", "--workload single", "--compare-answers")
    ),
    ("--only", "--profile"),
    ("--only", "--compare-answers"),
    ("--only", "--all"),
    ("--all", "--natural"),
    *(("--sweep", option) for option in ("--draft-model", "--all", "--compare-answers")),
    *(("--workload single", option) for option in ("--draft-model", "--all", "--compare-answers")),
    *(("--profile", option) for option in ("--draft-model", "--all", "--compare-answers")),
    *(("--compare-answers", option) for option in ("--natural", "--draft-model", "--all")),
    *(("--compiled", option) for option in ("--sweep", "--workload single", "--profile", "--compare-answers")),
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
    for option in ("--points", "--out"):
        if option in there and "--sweep" not in there:
            raise UsageError(f"{option} belongs to a sweep: name one with --sweep")
    if "--gguf" in there and "--llama-cpp" not in there:
        raise UsageError("--gguf is for llama.cpp: name the interpreter of its environment with --llama-cpp")


def whole_numbers(option: str, text: str | None) -> list[int] | None:
    """The numbers of an option like `1,2,4`.

    Raises:
        UsageError: something else stands there.
    """
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{option} {text!r}: whole numbers with commas between them are needed, as in 1,2,4") from None


def plotter(folder: str) -> Callable[[Swept, str, str], Path]:
    """Writes the plot of a sweep (of this workload, under this title) to the folder; returns the file.

    Raises:
        UsageError: nothing can be drawn, or nothing written there.
    """
    try:
        from bench.speed.plots import draw_sweep
    except ImportError as error:
        raise UsageError(f"--out: plots are drawn by matplotlib, pip install matplotlib ({error})") from error
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {folder}: {error.strerror}") from error

    def write(swept: Swept, workload: str, title: str) -> Path:
        file = path / f"{swept.sweep.name}-{Path(workload).stem}.svg"
        try:
            file.write_bytes(draw_sweep(swept, title))
        except OSError as error:
            raise UsageError(f"--out {folder}: {error}") from error
        return file

    return write
