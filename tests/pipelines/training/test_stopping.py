"""Trainings that are stopped before their end, by a signal, and go on as if nothing had happened."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file

from tests.pipelines.commands import ROOT, wait_until
from tests.pipelines.training.test_finetune import command
from tests.pipelines.training.trainings import Training


@pytest.fixture
def training(tmp_path: Path, tiny_model_dir: Path) -> Training:
    return Training(tmp_path, tiny_model_dir)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model/adapter_model.safetensors")


def assert_equal_weights(one: Path, other: Path) -> None:
    expected, found = weights(one), weights(other)
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, atol=1e-8, rtol=1e-4)


class Driver:
    """The real command in a process of its own."""

    def __init__(self, training: Training, **changes: Any) -> None:
        self._log = training.folder / "driver.log"
        self._log.write_bytes(b"")
        with self._log.open("wb") as file:
            self._process = subprocess.Popen(command(training, **changes), cwd=ROOT, stdout=file, stderr=file)

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def said(self) -> str:
        return self._log.read_text()

    def signal_at(self, words: str, number: signal.Signals) -> None:
        """Sends the signal once the words were said."""
        wait_until(lambda: words in self.said or self._process.poll() is not None)
        self._process.send_signal(number)

    def stop_while_the_worker_is_frozen(self, words: str) -> None:
        """Freezes the worker once the words were said, and lets it go on when it is to stop."""
        wait_until(lambda: words in self.said or self._process.poll() is not None)
        below = psutil.Process(self._process.pid).children(recursive=True)
        (worker,) = [process for process in below if "TrainWorker" in " ".join(process.cmdline())]
        worker.suspend()
        try:
            self._process.send_signal(signal.SIGTERM)
            wait_until(lambda: "stopping: " in self.said or self._process.poll() is not None)
        finally:
            worker.resume()

    def end(self) -> int:
        return self._process.wait(timeout=300)


@pytest.mark.full
@pytest.mark.ray
def test_signals_at_a_step_and_in_a_validation_and_the_same_weights(training: Training) -> None:
    """Four starts of the command: SIGINT at a step, SIGTERM in a validation, and to the end; beside an undisturbed one.

    It costs two minutes where others work beside it.
    """
    # 1,500 products are decoded: a validation takes seconds, and is hit.
    lines = [training.line(number) | {"input": {"title": f"item {number} red"}} for number in range(8000)]
    (training.folder / "gold.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    training.document["validation"] |= {"max_products": 1500, "evaluations_per_epoch": 0.25}
    optimizer = training.document["optimizer"] | {"epochs": 0.04}
    options = {"optimizer": optimizer, "checkpoint_minutes": 60, "log_seconds": 1e-6}
    with Driver(training, **options, output=str(training.folder / "undisturbed")) as undisturbed:
        assert undisturbed.end() == 0, undisturbed.said
    last = training.result("undisturbed")["num_steps"]
    with Driver(training, **options) as first:
        first.signal_at("step 3/", signal.SIGINT)
        assert first.end() == 130, first.said
        assert "Interrupted. Run the same command again to continue." in first.said
    with Driver(training, **options) as second:
        second.stop_while_the_worker_is_frozen(f"step {last}/{last} (epoch")
        assert second.end() == 130, second.said
        assert "continues at step " in second.said
    assert not any("validation" in entry for entry in training.log()), "given up"
    assert not (training.folder / "out/result.json").exists()
    with Driver(training, **options) as third:
        assert third.end() == 0, third.said
        assert f"continues at step {last} of {last}" in third.said
    assert [entry["step"] for entry in training.log() if "validation" in entry] == [last]
    assert training.result()["best_step"] == training.result("undisturbed")["best_step"]
    assert_equal_weights(training.folder / "undisturbed", training.folder / "out")
