"""Key biases and the other families' attention by the kernels in Triton, in its interpreter."""

from __future__ import annotations

import pytest

from hpd_core.config import EngineConfig
from tests.core.triton import needs_interpreter

from .own_attention import check

pytestmark = needs_interpreter


@pytest.mark.parametrize(
    "family", ["bloom", *(pytest.param(name, marks=pytest.mark.full) for name in ("mpt", "falcon-rw", "gpt_neo"))]
)
@pytest.mark.usefixtures("poison")
def test_family_equals_oracle(family: str) -> None:
    config = EngineConfig(attention="triton", max_tokens_per_step=60, max_prompts_per_cohort=2)
    check(family, "tree", config, count=2, k_max=2)
