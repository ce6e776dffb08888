"""Fixtures of the engine's tests: the tiny tokenizer, and the embedded model where it can be had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpd_core.embedded import embedded_model_folder
from hpd_core.errors import ModelError
from tests.tiny_model import build_tokenizer


@pytest.fixture(scope="session")
def tiny_tokenizer() -> Any:
    return build_tokenizer()


@pytest.fixture(scope="session")
def smollm2_dir() -> Path:
    """The embedded model's folder; tests that want it are skipped where it is not cached and cannot be downloaded."""
    try:
        return embedded_model_folder("smollm2")
    except ModelError as error:
        pytest.skip(f"no embedded model here: {error}")
