"""What 'auto' takes on a GPU, whatever this machine has: Triton and its driver are stood in for."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from hpd_core.attention.dispatch import way_to_attend
from hpd_core.attention.kv_cache import CacheShape, LayerShape
from hpd_core.errors import ModelError


def on_gpu(dtype: torch.dtype = torch.bfloat16) -> CacheShape:
    return CacheShape.uniform(2, 2, 16, 16, dtype, torch.device("cuda", 0))


class Driver:
    """Triton's, which compiles a module when it is first asked for."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    @property
    def active(self) -> Any:
        if self._error is not None:
            raise self._error
        return SimpleNamespace(get_current_target=lambda: "a GPU")


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """A runtime of Triton that works, on an L40S."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernels, package, runtime = ModuleType("triton"), ModuleType("triton"), ModuleType("triton.runtime")
    kernels.DTYPES = (torch.float32, torch.bfloat16, torch.float16)  # type: ignore[attr-defined]
    runtime.driver = Driver()  # type: ignore[attr-defined]
    package.runtime = runtime  # type: ignore[attr-defined]
    package.knobs = SimpleNamespace(compilation=SimpleNamespace(listener=None))  # type: ignore[attr-defined]
    for name, module in (("hpd_core.attention.triton", kernels), ("triton", package), ("triton.runtime", runtime)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 9))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA L40S")
    return runtime


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_on_a_gpu_auto_is_triton(
    triton: ModuleType, dtype: torch.dtype, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert way_to_attend("auto", on_gpu(dtype)) == way_to_attend("triton", on_gpu(dtype)) == "triton"
    assert not caplog.records
    caplog.set_level(logging.INFO, "hpd_core")
    sys.modules["triton"].knobs.compilation.listener(cache_hit=False)
    assert f"compiling kernels for this GPU: some seconds, once; they are kept in {tmp_path}" in caplog.text


def _no_compiler(triton: ModuleType, _: pytest.MonkeyPatch) -> None:
    triton.driver = Driver(RuntimeError("Failed to find C compiler. Please specify via CC"))  # type: ignore[attr-defined]


def _no_triton(_: ModuleType, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(sys.modules, "hpd_core.attention.triton", None)


def _old_gpu(_: ModuleType, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    patch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")


@pytest.mark.parametrize(
    ("missing", "dtype", "reason"),
    [
        (_no_triton, torch.bfloat16, "Triton is not here"),
        (_no_compiler, torch.bfloat16, "Failed to find C compiler.*it needs a C compiler and Python's header files"),
        (_old_gpu, torch.float16, "compute capability 8.0 or newer, which Tesla T4 is not"),
        (lambda *_: None, torch.float64, "the kernel in Triton takes no torch.float64"),
    ],
)
def test_where_triton_cannot_be_had_it_is_eager_and_the_log_says_why(
    triton: ModuleType,
    missing: Any,
    dtype: torch.dtype,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    missing(triton, monkeypatch)
    assert way_to_attend("auto", on_gpu(dtype)) == "eager"
    [record] = caplog.records
    assert record.getMessage().startswith("decoding is slower than it could be: ")
    with pytest.raises(ModelError, match=reason) as caught:
        way_to_attend("triton", on_gpu(dtype))
    assert record.getMessage().removeprefix("decoding is slower than it could be: ") in str(caught.value)


def test_layers_of_several_shapes_are_attended_to_without_triton(
    triton: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    layers = (LayerShape(2, 16, 16), LayerShape(1, 32, 32))
    mixed = CacheShape(layers, torch.bfloat16, torch.device("cuda", 0), (0, 1))
    assert way_to_attend("auto", mixed) == "eager"
    assert "takes one size of heads" in caplog.text
    shared = CacheShape(layers[:1], torch.bfloat16, torch.device("cuda", 0), (0, 0))
    with pytest.raises(ModelError, match="keys and values of its own in each layer"):
        way_to_attend("triton", shared)
