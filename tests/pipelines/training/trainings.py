"""A fine-tuning of a tiny model, small enough for a test."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from pipelines.config.finetuning import FinetuneConfig
from pipelines.config.loading import parse_config
from pipelines.store.folders import Folder
from pipelines.training import finetune_run
from pipelines.training.finetune_run import run_finetuning


def train_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Ray Train run its worker here, without Ray's processes: it keeps no checkpoint then."""
    import ray
    from ray.train import ScalingConfig
    from ray.train.torch import TorchTrainer

    from pipelines.training.worker import train_worker

    class Lines:
        def __init__(self, console: Console) -> None:
            self.console = console

        def put(self, said: object) -> None:
            if isinstance(said, str):
                self.console.print(said)

    @ray.remote
    class Board:
        def read(self) -> None:
            return None

    def train(config: FinetuneConfig, output: Folder, console: Console, *_: object) -> None:
        told = {"lines": Lines(console), "board": Board.remote(), "deadline": None, "num_threads": 1}
        settings = told | {"config": config, "output": output.absolute_uri}
        TorchTrainer(train_worker, train_loop_config=settings, scaling_config=ScalingConfig(num_workers=0)).fit()

    monkeypatch.setattr(finetune_run, "train", train)


COLOURS = ("red", "blue")


class Training:
    """A gold file from which a tiny model can learn which of two colours a text names, or that it names none."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder = folder
        self.document: dict[str, Any] = {
            "model": str(model),
            "datasets": [{"gold": str(folder / "gold.jsonl"), "schemas": str(folder / "schemas.yaml")}],
            "output": str(folder / "out"),
            "engine": {"dtype": "float32", "device": "cpu", "max_value_tokens": 8, "stack_size": 2},
            "optimizer": {"epochs": 8, "learning_rate": 0.01, "documents_per_step": 8, "max_tokens_per_pack": 900},
            "lora": {"rank": 8, "alpha": 16},
            "validation": {"share": 0.2, "max_products": 16, "evaluations_per_epoch": 0.5},
            "scaling": {"num_threads": 1},
            "log_seconds": 0.2,
        }
        (folder / "schemas.yaml").write_text(yaml.safe_dump({"categories": {"Shoes": ["Colour"]}}))
        lines = [self.line(number) for number in range(80)]
        (folder / "gold.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    @staticmethod
    def line(number: int) -> dict[str, Any]:
        colour = [*COLOURS, None][number % 3]
        text = f"{colour or 'soft'} item {number * 7 % 50}"
        values = {"Colour": [colour] if colour else None}
        return {"product_id": str(number), "category": "Shoes", "input": {"title": text}, "values": values}

    def config(self, **changes: Any) -> FinetuneConfig:
        return parse_config(FinetuneConfig, self.document | changes, "finetune.yaml")

    def run(self, **changes: Any) -> str:
        """Runs in this process, on the shared Ray, and returns what was printed."""
        text = io.StringIO()
        run_finetuning(self.config(**changes), Console(file=text, width=300))
        return text.getvalue()

    def log(self, output: str = "out") -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / output / "log.jsonl").read_text().splitlines()]

    def result(self, output: str = "out") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / output / "result.json").read_text())
        return found
