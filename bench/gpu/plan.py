"""The parts of a measurement: their names, in which process they run, and how long they may take.

    [SHAPE:[WORKLOAD:]]KIND[+OPTION...][@ROUNDS]        8b:tree    8b:titles:tree+fp8+short-keys@2    gemm

Imports no torch: the process that supervises has no use for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from pipelines.errors import UsageError

SHAPES = {"8b": "qwen3-8b", "1.7b": "qwen3-1.7b", "0.6b": "qwen3-0.6b"}
"""Names in `bench/random_model.py`."""

LISTINGS = "listings"
TITLES = "titles"
WORKLOADS = (LISTINGS, TITLES, "variants", "categories", "skewed", "wide")
"""Names in `bench/workloads/made_up.py`."""

TREE, GENERATE, VLLM, CEILING, FLOOR = "tree", "generate", "vllm", "ceiling", "floor"
SMALL_STEPS, SINGLE, PROFILE = "small-steps", "single", "profile"
GEMM, EXACT = "gemm", "exact"
OF_A_MODEL = (TREE, GENERATE, VLLM, CEILING, FLOOR, SMALL_STEPS, SINGLE, PROFILE)
OF_THE_CARD = (GEMM, EXACT)
FAULTS = ("fail", "hang", "die")
"""Parts of a rehearsal that do so, to see what becomes of the others."""

_SECONDS: Mapping[str, tuple[float, float]] = {
    GEMM: (4, 40),
    EXACT: (60, 150),
    TREE: (20, 90),
    GENERATE: (35, 90),
    VLLM: (120, 300),
    CEILING: (14, 60),
    FLOOR: (10, 50),
    SMALL_STEPS: (6, 60),
    SINGLE: (8, 60),
    PROFILE: (12, 90),
    "fail": (1, 10),
    "hang": (1, 2),
    "die": (1, 10),
}
"""Kind -> seconds that it is expected to take, and those after which it is ended."""

SECONDS_TO_LOAD = 60.0
"""More seconds for the first part of a process: torch, the workload, the model, what is compiled."""

_SHARE_OF_SECONDS = {"8b": 1.0, "1.7b": 0.6, "0.6b": 0.5}
"""Share of its seconds that a smaller model is expected to take."""

PLANS: Mapping[str, tuple[str, ...]] = {
    "call1": (
        *("gemm", "exact", "8b:tree", "8b:floor", "8b:tree+max_cached_tokens=262144", "8b:profile"),
        *("8b:tree+fp8", "8b:floor+fp8", "8b:profile+fp8", "1.7b:tree", "1.7b:floor", "0.6b:tree", "0.6b:floor"),
    ),
    "call2": (
        *("8b:vllm", "8b:tree", "8b:tree+short-keys", "8b:single"),
        *("8b:vllm+fp8", "8b:tree+fp8", "8b:tree+fp8+short-keys"),
    ),
    "rest": (
        *("1.7b:vllm", "1.7b:tree", "1.7b:small-steps", "1.7b:titles:tree", "0.6b:vllm", "0.6b:tree"),
        *("8b:titles:tree", "8b:titles:floor", "8b:ceiling", "8b:small-steps", "8b:generate"),
    ),
}
"""Parts to measure, by the plan's name; the first two take 400 seconds each. What decides most comes first. Parts of
one process stand side by side, since a model takes half a minute to load and to compile."""

PLANNED_SECONDS = 400.0


class PartError(Exception):
    """A part has found something wrong, which is said in one line."""


@dataclass(frozen=True, slots=True)
class GpuSettings:
    """Settings of a worker process.

    Attributes:
        device: "cuda", or "cpu" in a rehearsal.
        rehearsal: tiny models of the shapes' names.
        records: of a workload.
        tokenizer: a model's name or folder.
        vllm: the Python of an environment that has it.
        out: the folder for what is too long for a line.
    """

    device: str
    rehearsal: bool
    records: int
    tokenizer: str
    vllm: str | None
    out: str


@dataclass(frozen=True, slots=True)
class Part:
    """One part.

    Attributes:
        name: as it was asked for.
        kind: what is measured.
        shape: of the model, of SHAPES; None: no model.
        options: of the engine, as they stand in the name.
        settings: the same, as `EngineConfig` takes them.
        rounds: of what is timed; the median counts.
    """

    name: str
    kind: str
    shape: str | None = None
    workload: str = LISTINGS
    options: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 1

    @property
    def process(self) -> str:
        """Return the name of its process. It has one model, and vLLM needs the GPU for itself."""
        if self.shape is None:
            return "card"
        if self.kind == VLLM:
            return f"{self.shape}, vllm"
        return f"{self.shape}, {self.quantization or 'bf16'}"

    @property
    def quantization(self) -> str | None:
        """Return the model's quantization."""
        found: str | None = self.settings.get("quantization")
        return found

    @property
    def seconds(self) -> float:
        """Return the seconds that it is expected to take."""
        return _SECONDS[self.kind][0] * (1.0 if self.shape is None else _SHARE_OF_SECONDS[self.shape])

    @property
    def limit(self) -> float:
        """Return the seconds after which it is ended."""
        return _SECONDS[self.kind][1]


_NAME = re.compile(
    r"(?:(?P<shape>[\w.]+):(?:(?P<workload>\w+):)?)?(?P<kind>[a-z-]+)(?P<options>(?:\+[^+@]+)*)(?:@(?P<rounds>[1-9]\d*))?"
)


def parse(name: str) -> Part:
    """Return the part of that name.

    Raises:
        UsageError: there is none.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise UsageError(f"--parts {name!r}: a part is called like 8b:tree, 8b:titles:tree+short-keys or gemm")
    shape, workload, kind = found["shape"], found["workload"] or LISTINGS, found["kind"]
    options = tuple(found["options"].split("+")[1:])
    if shape is None:
        _one_of(name, kind, (*OF_THE_CARD, *FAULTS), f"{kind!r} needs a model in front, as in 8b:{kind}")
        if options:
            raise UsageError(f"--parts {name!r}: {kind!r} takes no options")
        return Part(name, kind)
    _one_of(name, shape, SHAPES, f"no model {shape!r}")
    _one_of(name, workload, WORKLOADS, f"no workload {workload!r}")
    _one_of(name, kind, OF_A_MODEL, f"nothing is called {kind!r}")
    return Part(name, kind, shape, workload, options, _settings(name, options), int(found["rounds"] or 1))


def _one_of(name: str, word: str, known: Mapping[str, Any] | tuple[str, ...], problem: str) -> None:
    if word not in known:
        raise UsageError(f"--parts {name!r}: {problem}; there are {', '.join(known)}")


def _settings(name: str, options: tuple[str, ...]) -> dict[str, Any]:
    """Return the settings for fp8, short-keys, or KEY=VALUE, as in --set engine.KEY=VALUE."""
    settings: dict[str, Any] = {}
    for option in options:
        key, has_value, value = option.partition("=")
        if option == "fp8":
            settings["quantization"] = option
        elif option == "short-keys":
            settings.setdefault("prompt", {})["keys"] = "short"
        elif has_value:
            *above, last = key.split(".")
            inner = settings
            for word in above:
                inner = inner.setdefault(word, {})
            inner[last] = yaml.safe_load(value)
        else:
            raise UsageError(
                f"--parts {name!r}: no option {option!r}; there are fp8, short-keys and KEY=VALUE, an engine setting"
            )
    return settings


def parts(names: str | None, plan: str, *, has_vllm: bool, rehearsal: bool) -> list[Part]:
    """Return what is to be measured.

    Args:
        names: with commas between them; None: those of the plan, without what cannot be had here.
        plan: a name of PLANS.

    Raises:
        UsageError: a name that means nothing, or what is missing for it here.
    """
    asked = [name.strip() for name in names.split(",") if name.strip()] if names is not None else PLANS[plan]
    found = [parse(name) for name in asked]
    if names is None:
        found = [part for part in found if has_vllm or part.kind != VLLM]
    for part in found:
        if part.kind == VLLM and not has_vllm:
            raise UsageError(f"--parts {part.name!r} needs --vllm, the Python of an environment that has vLLM")
        if part.kind in FAULTS and not rehearsal:
            raise UsageError(f"--parts {part.name!r} belongs to a rehearsal (--rehearse)")
    return found
