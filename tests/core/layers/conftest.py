"""What tests of layers by Triton's interpreter share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch


@pytest.fixture(scope="module")
def torch_rounds() -> Iterator[None]:
    """The interpreter drops the carry where a number is rounded up to the next power of two in FP8, and more below."""
    import triton.language as tl
    from triton.runtime import interpreter

    convert = interpreter._convert_float

    def converted(numbers: Any, source: Any, target: Any, rounding: Any) -> Any:
        if target != tl.float8e4nv:
            return convert(numbers, source, target, rounding)
        wide = torch.from_numpy(np.ascontiguousarray(numbers).view(np.float32).copy())
        return wide.to(torch.float8_e4m3fn).view(torch.uint8).numpy().reshape(numbers.shape)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_convert_float", converted)
        yield
