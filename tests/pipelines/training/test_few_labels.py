"""`finetune.py --few`: what is chosen for few labels, and what stays."""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from pipelines.config.finetuning import FinetuneConfig
from pipelines.config.loading import apply_override, parse_config
from pipelines.finetune import app
from pipelines.training.few_settings import with_few_labels
from tests.pipelines.training.trainings import Training


class PlainTraining(Training):
    """With nothing set that is chosen."""

    def __init__(self, folder: Path, model: Path) -> None:
        super().__init__(folder, model)
        for key in ("optimizer", "lora", "validation"):
            del self.document[key]


@pytest.fixture
def training(tmp_path: Path, tiny_model_dir: Path) -> Training:
    return PlainTraining(tmp_path, tiny_model_dir)


def chosen(training: Training, **changes: Any) -> tuple[FinetuneConfig, str]:
    text = io.StringIO()
    return with_few_labels(training.config(**changes), Console(file=text, width=300, soft_wrap=True)), text.getvalue()


def test_what_is_printed_gives_the_same_settings(training: Training) -> None:
    config, said = chosen(training, model="smollm2")
    document = training.document | {"model": "smollm2"}
    lines = [line for line in said.splitlines() if line.startswith("  --set ")]
    assert len(lines) == 5
    for line in lines:
        apply_override(document, shlex.split(line)[1])
    assert parse_config(FinetuneConfig, document, "finetune.yaml").deciding() == config.deciding()


def test_what_the_user_has_set_stays(training: Training) -> None:
    config, said = chosen(training, optimizer={"epochs": 3, "weight_decay": 0.1}, validation={"patience": 5})
    assert (config.optimizer.epochs, config.optimizer.weight_decay, config.validation.patience) == (3, 0.1, 5)
    assert (config.optimizer.learning_rate, config.validation.share) == (1e-3, 0.1), "not set, though others there are"
    assert "optimizer.epochs stays 3.0, as you have set it; here it would be 6" in said
    assert "validation.patience stays 5" in said
    assert "--set optimizer.epochs" not in said
    written = config.model_dump(mode="json")
    assert chosen(training, **{key: written[key] for key in ("optimizer", "validation", "labels")})[1].startswith(
        "80 labelled products; what is not set is chosen for so few: nothing\n"
    )


def test_an_adapter_of_the_user_s_is_continued(training: Training) -> None:
    config, _ = chosen(training, adapter="mine")
    assert (config.adapter, config.optimizer.learning_rate) == ("mine", 5e-4)


def test_a_dry_run_of_the_command(training: Training) -> None:
    path = training.folder / "finetune.yaml"
    path.write_text(yaml.safe_dump(training.document))
    result = CliRunner().invoke(app, ["--config", str(path), "--few", "--dry-run", "--set", "optimizer.epochs=2"])
    assert result.exit_code == 0, result.output
    assert "80 labelled products; what is not set is chosen for so few:" in result.output
    assert "optimizer.epochs stays 2.0" in result.output
    held_out = re.search(r"validation\.share=0\.1 +(\d+) products are not trained on", result.output)
    assert held_out is not None
    assert f"validations of {held_out[1]} products" in result.output, "as the training itself has it"
