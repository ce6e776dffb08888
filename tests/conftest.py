"""Fixtures for all tests: a tiny model folder that loads in a moment and answers with valid and invalid values."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import settings

from tests.tiny_model import build_tiny_model

# The models here are tiny: a second thread would mostly be waited for. (Jobs have processes of their own.)
torch.set_num_threads(1)

# A slow machine is no failure.
settings.register_profile("hpd", deadline=None)
settings.load_profile("hpd")


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny Llama (random weights, safetensors) and a byte-level tokenizer with a chat template."""
    return build_tiny_model(tmp_path_factory.mktemp("tiny-model"))
