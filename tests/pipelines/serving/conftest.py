"""One tiny engine for all tests of the server, and one server on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.generate_clients import ADAPTER
from hpd_core import Engine, EngineConfig, ModelError
from tests.pipelines.serving.served import REAL_MODEL, Served, serving_here


@pytest.fixture(scope="session")
def engine(tiny_model_dir: Path) -> Iterator[Engine]:
    config = EngineConfig(dtype="float32", device="cpu", max_value_tokens=8)
    with Engine.from_pretrained(str(tiny_model_dir), config) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[Served]:
    with serving_here(engine) as served:
        yield served


@pytest.fixture(scope="session")
def real_server() -> Iterator[Served]:
    """The shipped model and adapter: what a tiny random model writes is seldom of use. 5 s."""
    try:
        engine = Engine.from_pretrained(REAL_MODEL, EngineConfig(device="cpu"), ADAPTER)
    except ModelError as error:
        pytest.skip(f"no embedded model here: {error}")
    with engine, serving_here(engine, name=REAL_MODEL) as served:
        yield served
