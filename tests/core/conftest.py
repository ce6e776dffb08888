"""Fixtures of the engine's tests: the tiny tokenizer, and the embedded model where it can be had."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpd_core import Engine
from hpd_core.attention import kv_cache
from hpd_core.errors import ModelError
from hpd_core.models.embedded import embedded_model_folder
from tests.tiny_model import build_tokenizer

from .engines import LAYOUTS, config


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


@pytest.fixture(scope="module", params=LAYOUTS)
def engine(request: pytest.FixtureRequest, tiny_model_dir: Path) -> Iterator[Engine]:
    with Engine.from_pretrained(str(tiny_model_dir), config(request.param)) as engine:
        yield engine


@pytest.fixture(scope="module")
def tree(tiny_model_dir: Path) -> Iterator[Engine]:
    with Engine.from_pretrained(str(tiny_model_dir), config()) as engine:
        yield engine


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache that holds nothing is full of large numbers, or of none at all: whoever reads it is found out."""
    monkeypatch.setattr(kv_cache, "UNUSED_FILL", 1e4)
    take = kv_cache.CachePool.take

    def poisoned(pool: kv_cache.CachePool, num_prompts: int, capacity: int) -> kv_cache.CacheBlock:
        block = take(pool, num_prompts, capacity)
        if not pool.order.fills:
            block.memory.fill_(math.nan)
        return block

    monkeypatch.setattr(kv_cache.CachePool, "take", poisoned)
