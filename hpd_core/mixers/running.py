"""Patching of transformers' own modules to call our functions, while the engine runs them over packed rows.

A module's projections, gates and norms are the family's own code. Only what carries over from token to token is a
function, and each file of transformers has its own by the same few names. Some families have a method instead. Our
functions replace them, and call the originals for any run outside of the engine: the oracle, a baseline, another
thread.
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
    """Layer in one forward.

    Attributes:
        layer: its number among the mixers.
        plans: plans of the cohorts, in the order of the packed row.
        has_convolved: whether such a function of ours was called.
        num_recurred: number of heads of its recurrent state that such functions have computed.
    """

    layer: int
    plans: Sequence[MixerPlan]
    has_convolved: bool = False
    num_recurred: int = 0

    def call(self, ours: PackedFunction, *args: Any, **kwargs: Any) -> Any:
        """Call one of our functions for this layer. Training replaces those that write to a cohort's memory."""
        return ours(self, *args, **kwargs)


PackedFunction = Callable[..., Any]
"""Function called with the layer's step, transformers' function, and that function's arguments. If it replaces a
method, the second argument is the part that has the method.
"""


class Step(Protocol):
    """Context that modules run with: a `LayerStep`, or a training's batch."""

    def call(self, ours: PackedFunction, *args: Any, **kwargs: Any) -> Any:
        """Call one of our functions, or its replacement."""
        ...


class _Running(threading.local):
    """Steps of the modules that this thread runs, by the modules' ids, and the step of the module that is running."""

    steps: Mapping[int, Step] = {}
    step: Step | None = None


_RUNNING = _Running()


def install(
    modules: Sequence[Any], functions: Mapping[str, PackedFunction], methods: Mapping[str, PackedFunction]
) -> None:
    """Replace the functions of these names in the files of these modules, once per process, and methods of the modules.

    The modules note from now on when they are entered. Outside of the engine that costs one lookup in an empty mapping.

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
                setattr(file, name, _dispatching(ours, original, original))
                getattr(file, name).hpd_original = original
    for module in modules:
        _change_method(module, "forward", "hpd_enters", _entering)


def _put_method(module: Any, name: str, ours: PackedFunction) -> None:
    if not hasattr(module, name):
        raise ModelError(f"a {type(module).__name__} has no {name} in this version of transformers")
    _change_method(module, name, "hpd_dispatches", functools.partial(_dispatching, ours))


def _change_method(part: Any, name: str, mark: str, change: Callable[[Any], Any]) -> None:
    """Replace a method once; `mark` shows that it was done. A copy of the module gets a method of its own."""
    own = getattr(part, name)
    if hasattr(own, mark):
        return
    changed = change(own.__func__ if getattr(own, "__self__", None) is part else _without_self(own))
    setattr(changed, mark, True)
    setattr(part, name, MethodType(changed, part))


def _dispatching(ours: PackedFunction, own: Any, *before: Any) -> Any:
    """Return a function that calls `ours`, with `before` in front, while a module runs, and else `own`."""

    @functools.wraps(own)
    def dispatch(*args: Any, **kwargs: Any) -> Any:
        step = _RUNNING.step
        return own(*args, **kwargs) if step is None else step.call(ours, *before, *args, **kwargs)

    return dispatch


@contextmanager
def running(steps: Mapping[int, Step]) -> Iterator[None]:
    """Run modules over packed rows in this thread while the context is entered. `steps`: by the modules' ids."""
    before, _RUNNING.steps = _RUNNING.steps, steps
    try:
        yield
    finally:
        _RUNNING.steps = before


def step_of(module: Any) -> Step | None:
    """Return the module's step in this thread, or None."""
    return _RUNNING.steps.get(id(module))


def running_anew() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Return the `context_fn` of torch's checkpoint: backward recomputes, in any thread, with the forward's steps."""
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
    """Adapt a hook, which is bound to its module, to a call with the module."""

    @functools.wraps(forward)
    def run(_module: Any, *args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs)

    return run
