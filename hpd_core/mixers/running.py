"""Has transformers' own modules call our functions, while the engine runs them over packed rows.

A module's projections, gates and norms are the family's own code; only what carries over from token to token is a
function, and each file of transformers has its own by the same few names. Some families have a method in its place.
Ours stand in their place, and hand on to them whoever runs the model outside of the engine: the oracle, a baseline,
another thread.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import MethodType
from typing import Any, Protocol

from hpd_core.errors import ModelError
from hpd_core.mixers.states import MixerPlan


@dataclass(slots=True)
class LayerStep:
    """One layer in one forward.

    Attributes:
        layer: its number among the mixers.
        plans: of the cohorts, in the order of the packed row.
        has_convolved, has_recurred: which of our functions were called.
        num_scanned: channels that scans of a part of them each are through with.
    """

    layer: int
    plans: Sequence[MixerPlan]
    has_convolved: bool = False
    has_recurred: bool = False
    num_scanned: int = 0

    def call(self, ours: PackedFunction, *args: Any, **kwargs: Any) -> Any:
        """One of our functions, of this layer. Training has others in place of those that write what a cohort keeps."""
        return ours(self, *args, **kwargs)


PackedFunction = Callable[..., Any]
"""Called with the layer's step, transformers' function, and what that would be called with; in place of a method, with
the part whose method it is in place of the function."""


class Step(Protocol):
    """What modules run with: a `LayerStep`, or a training's batch."""

    def call(self, ours: PackedFunction, *args: Any, **kwargs: Any) -> Any:
        """One of our functions, or what stands in its place."""
        ...


class _Running(threading.local):
    """Of each thread: the steps of the modules that it runs, by their ids, and that of the module that it is in."""

    steps: Mapping[int, Step] = {}
    step: Step | None = None


_RUNNING = _Running()


def install(
    modules: Sequence[Any], functions: Mapping[str, PackedFunction], methods: Mapping[str, PackedFunction]
) -> None:
    """Puts our functions in place of those by their names in the files of these modules, once for the process, and of
    methods of the modules or of their parts ("part.method").

    The modules tell from now on when they are entered; that is a look into an empty mapping for whoever runs them else.

    Raises:
        ModelError: this version of transformers has none by such a name.
    """
    for module in modules:
        for name, ours in methods.items():
            _put_method(module, name, ours)
    for home in {type(module).__module__ for module in modules}:
        file = sys.modules[home]
        for name, ours in functions.items():
            original = getattr(file, name, None)
            if original is None:
                raise ModelError(f"{home} has no function {name} in this version of transformers")
            if not hasattr(original, "hpd_original"):
                setattr(file, name, _dispatching(original, ours))
    for module in modules:
        _change_method(module, "forward", "hpd_enters", _entering)


def _put_method(module: Any, name: str, ours: PackedFunction) -> None:
    path, _, method = name.rpartition(".")
    part = dict(module.named_modules()).get(path)
    if not hasattr(part, method):
        raise ModelError(f"a {type(module).__name__} has no {name} in this version of transformers")
    _change_method(part, method, "hpd_dispatches", functools.partial(_dispatching_method, ours))


def _change_method(part: Any, name: str, mark: str, change: Callable[[Any], Any]) -> None:
    """Once, which the mark tells; a copy of the module has a method of its own."""
    own = getattr(part, name)
    if hasattr(own, mark):
        return
    changed = change(own.__func__ if getattr(own, "__self__", None) is part else _without_self(own))
    setattr(changed, mark, True)
    setattr(part, name, MethodType(changed, part))


def _dispatching_method(ours: PackedFunction, own: Any) -> Any:
    @functools.wraps(own)
    def dispatch(part: Any, *args: Any, **kwargs: Any) -> Any:
        step = _RUNNING.step
        return own(part, *args, **kwargs) if step is None else step.call(ours, part, *args, **kwargs)

    return dispatch


def _dispatching(original: Any, ours: PackedFunction) -> Any:
    @functools.wraps(original)
    def dispatch(*args: Any, **kwargs: Any) -> Any:
        step = _RUNNING.step
        return original(*args, **kwargs) if step is None else step.call(ours, original, *args, **kwargs)

    dispatch.hpd_original = original  # type: ignore[attr-defined]
    return dispatch


@contextmanager
def running(steps: Mapping[int, Step]) -> Iterator[None]:
    """While it is entered, modules run over packed rows, in this thread. `steps`: by the modules' ids."""
    before, _RUNNING.steps = _RUNNING.steps, steps
    try:
        yield
    finally:
        _RUNNING.steps = before


def step_of(module: Any) -> Step | None:
    """What the module runs with in this thread, where anything does."""
    return _RUNNING.steps.get(id(module))


def running_anew() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """The `context_fn` of torch's checkpoint: what backward runs anew, in any thread, runs as it did in the forward."""
    return nullcontext(), running(_RUNNING.steps)


def _entering(forward: Any) -> Any:
    @functools.wraps(forward)
    def run(module: Any, *args: Any, **kwargs: Any) -> Any:
        before, _RUNNING.step = _RUNNING.step, _RUNNING.steps.get(id(module))
        is_training = module.training
        if _RUNNING.step is not None:
            module.training = False  # where kernels are installed, some call a single fused one in training
        try:
            return forward(module, *args, **kwargs)
        finally:
            _RUNNING.step, module.training = before, is_training

    return run


def _without_self(forward: Any) -> Any:
    """Of a hook, which knows its module."""

    @functools.wraps(forward)
    def run(_module: Any, *args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs)

    return run
