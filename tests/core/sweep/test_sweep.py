"""No model type of transformers is decoded wrongly, or ends in an error without words; what worked still does."""

from __future__ import annotations

from collections.abc import Collection

import pytest
import transformers

from docs.generate_models import PAGE, page
from tests.core.sweep.__main__ import swept
from tests.core.sweep.record import Record
from tests.core.sweep.types import model_types

RECORD = Record.read()

_QUICK = ("gemma4_text", "deepseek_v3")
"""Heads of two sizes with shared keys and values; latent attention."""
_OTHERS = (
    *("deepseek_v32", "diffllama", "gpt_bigcode", "jetmoe", "llama4_text", "lfm2", "mimo_v2_flash"),
    *("minimax_m3_vl_text",),
)
"""Of each kind of attention that tests/core/families.py does not have, one."""


def _marks(name: str) -> Collection[pytest.MarkDecorator]:
    return () if name in _QUICK else [pytest.mark.full if name in _OTHERS else pytest.mark.soak]


@pytest.mark.parametrize("name", [pytest.param(name, marks=_marks(name)) for name in RECORD.by_type])
def test_type_decodes_as_recorded(name: str) -> None:
    """Seconds for a type, in a process of its own."""
    found = swept(name)
    faults = [item for item in found if item.kind in ("wrong", "crash")]
    assert not faults
    if RECORD.transformers == transformers.__version__:
        kinds = {(item.layout, item.reach): item.kind for item in found}
        assert kinds == {(item.layout, item.reach): item.kind for item in RECORD.by_type[name]}


def test_every_type_is_recorded_and_none_is_wrong() -> None:
    if RECORD.transformers == transformers.__version__:
        assert set(RECORD.by_type) == set(model_types()), (
            "python -m tests.core.sweep --out tests/core/sweep/outcomes.json"
        )
    faults = [item for found in RECORD.by_type.values() for item in found if item.kind in ("wrong", "crash")]
    assert not faults


def test_the_page_says_what_was_found() -> None:
    assert PAGE.read_text("utf-8") == page(RECORD), "python -m docs.generate_models"
