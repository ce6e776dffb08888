"""A larger model beside the tiny one: the same with an adapter, so that some of its answers are others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.conftest import Workplace, products
from tests.pipelines.job.test_adapter import make_adapter

NUM_PRODUCTS = 24


@pytest.fixture(scope="session")
def larger(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Path:
    """The larger model's adapter."""
    return make_adapter(tmp_path_factory.mktemp("larger") / "adapter", tiny_model_dir)


@pytest.fixture
def cascade(workplace: Workplace, larger: Path) -> Workplace:
    """A job of two models in this process."""
    workplace.write_parquet("a.parquet", products(NUM_PRODUCTS))
    workplace.changes = {"executor": "local", "cascade": settings(workplace, larger)}
    return workplace


@pytest.fixture
def cascade_on_ray(cascade: Workplace, shared_ray: None) -> Workplace:
    """The same on Ray: one actor each, that leave its two CPUs room for tasks."""
    cascade.changes |= {"executor": "ray", "actors": {"num_cpus": 0.5}}
    return cascade


def settings(workplace: Workplace, larger: Path, **changes: Any) -> Mapping[str, Any]:
    """The section `cascade`."""
    return {"model": str(workplace.model), "adapter": str(larger), "below": 0.05, **changes}
