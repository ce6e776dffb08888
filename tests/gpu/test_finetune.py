"""Fine-tuning on a GPU. Skipped, with the reason, where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from tests.pipelines.training.trainings import Training

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]


@pytest.fixture
def training(tmp_path: Path, tiny_model_dir: Path) -> Training:
    pytest.importorskip("ray")  # bench/pack_gpu.py does not pack it
    from tests.pipelines.training.trainings import Training

    return Training(tmp_path, tiny_model_dir)


@pytest.mark.parametrize(
    ("method", "quantization", "rate"), [("lora", None, 0.01), ("full", None, 0.003), ("lora", "nf4", 0.01)]
)
def test_a_tiny_model_learns(method: str, quantization: Any, rate: float, training: Training) -> None:
    """In bf16, as 'auto' chooses; validation by the engine on the same GPU."""
    if quantization:
        pytest.importorskip("bitsandbytes")
    training.document["engine"] |= {"dtype": "auto", "device": "auto", "quantization": quantization}
    training.document["optimizer"] |= {"learning_rate": rate}
    text = training.run(method=method)
    assert f"on 1 x {torch.cuda.get_device_name()}" in text
    assert training.result()["dtype"] == "bfloat16"
    assert training.result()["best_f1"] > 0.9, text


def test_all_gpus_learn_together(training: Training) -> None:
    if (count := torch.cuda.device_count()) < 2:
        pytest.skip("one GPU alone")
    training.document["engine"] |= {"dtype": "auto", "device": "auto"}
    text = training.run(scaling={"num_workers": count})
    assert f"on {count} x {torch.cuda.get_device_name()}" in text
    assert training.result()["best_f1"] > 0.9, text
