"""`finetune.py --few`: what is chosen for few labels, what stays, and what is said of the measured curve."""

from __future__ import annotations

import io
import json
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
from pipelines.errors import UsageError
from pipelines.finetune import app
from pipelines.training.few_settings import FewCurve, FewPoint, with_few_labels
from tests.pipelines.training.test_stopping import assert_equal_weights, interrupted
from tests.pipelines.training.trainings import Training
from tests.tables import table


class PlainTraining(Training):
    """With nothing set that is chosen."""

    def __init__(self, folder: Path, model: Path) -> None:
        super().__init__(folder, model)
        for key in ("optimizer", "lora", "validation"):
            del self.document[key]


class FewTraining(PlainTraining):
    """Each of its runs is one with `--few`."""

    def config(self, **changes: Any) -> FinetuneConfig:
        return with_few_labels(super().config(**changes), Console(file=io.StringIO()))


@pytest.fixture
def training(tmp_path: Path, tiny_model_dir: Path) -> Training:
    return PlainTraining(tmp_path, tiny_model_dir)


def write_gold(training: Training, count: int) -> None:
    lines = []
    for number in range(count):
        line = training.line(number)
        line["input"]["title"] += f" of {number}"
        lines.append(json.dumps(line) + "\n")
    (training.folder / "gold.jsonl").write_text("".join(lines))


def chosen(training: Training, **changes: Any) -> tuple[FinetuneConfig, str]:
    text = io.StringIO()
    return with_few_labels(training.config(**changes), Console(file=text, width=300, soft_wrap=True)), text.getvalue()


def test_what_is_printed_gives_the_same_settings(training: Training) -> None:
    config, said = chosen(training, model="smollm2")
    document = training.document | {"model": "smollm2"}
    lines = [line for line in said.splitlines() if line.startswith("  --set ")]
    assert len(lines) == 6
    for line in lines:
        apply_override(document, shlex.split(line)[1])
    assert parse_config(FinetuneConfig, document, "finetune.yaml").deciding() == config.deciding()


def test_more_than_a_thousand_are_not_few(training: Training) -> None:
    write_gold(training, 1001)
    config, said = chosen(training)
    assert config == training.config()
    assert said.startswith("1,001 labelled products are not few: --few chooses nothing")
    assert all(key in said for key in ("optimizer.epochs", "validation.patience"))


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


def test_validation_that_the_user_wants_has_patience(training: Training) -> None:
    write_gold(training, 30)
    config, _ = chosen(training, validation={"share": 0.3})
    assert (config.validation.share, config.validation.patience) == (0.3, 2)
    config, said = chosen(training, validation={"share": 0})
    assert (config.validation.share, config.validation.patience) == (0, None)
    assert "stays" not in said


@pytest.mark.parametrize(
    ("changes", "adapter", "learning_rate"),
    [
        ({}, True, 5e-4),
        ({"lora": {"dropout": 0.1}}, True, 5e-4),
        ({"lora": {"rank": 8}}, False, 1e-3),
        ({"adapter": None}, False, 1e-3),
        ({"method": "lora"}, False, 1e-3),
        ({"method": "full"}, False, 2e-4),
        ({"layout": "stacked"}, False, 1e-3),
        ({"engine": {"prompt": {"keys": "short"}}}, False, 1e-3),
        ({"engine": {"document_attention": "bidirectional"}}, True, 5e-4),
        ({"engine": {"document_attention": "causal"}}, False, 1e-3),
        ({"model": "gemma3-270m"}, False, 1e-3),
    ],
)
def test_the_shipped_adapter_is_the_start_where_it_fits(
    training: Training, changes: dict[str, Any], adapter: bool, learning_rate: float
) -> None:
    config, _ = chosen(training, **{"model": "smollm2", **changes})
    assert (config.adapter is not None) == adapter
    assert config.adapter is None or (Path(config.adapter) / "adapter_model.safetensors").is_file()
    assert config.optimizer.learning_rate == learning_rate


def test_an_adapter_of_the_user_s_is_continued(training: Training) -> None:
    config, _ = chosen(training, adapter="mine")
    assert (config.adapter, config.optimizer.learning_rate) == ("mine", 5e-4)


def test_no_product_at_all(training: Training) -> None:
    training.document["datasets"][0]["input"] = {
        "path": str(training.folder / "catalog.jsonl"),
        "id": "id",
        "fields": ["title"],
    }
    row = {"id": "other", "category": "Shoes", "title": "red"}
    (training.folder / "catalog.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(UsageError, match=r"nothing to train on\n  left out, the catalog has no such product: \d+ "):
        chosen(training)


CURVE = FewCurve(
    model="smollm2",
    command="bench --few",
    points=tuple(
        FewPoint(set=name, labels=labels, f1=round(0.4 + labels / 10_000, 3), low=0.3, high=0.9)
        for name, labels in (("oa", 10), ("ae", 100), ("ae", 10), ("ae", 1500))
    ),
)


@table(
    ("counts", "said"),
    [
        ([9], "to train on you have 9 of a category, fewer than the 10 that were measured at least: what they bring"),
        ([1501], "you have 1,501 of a category, more than the 1,500 that were measured at most: what they bring"),
        ([10], "to train on you have 10 of a category: as in the line 10"),
        ([99], "to train on you have 99 of a category: between 10 and 100"),
        ([300, 12, 2, 40], "you have 12 of a category (the middle one of 4; 2 to 300): between 10 and 100"),
    ],
)
def test_where_the_labels_are_on_the_curve(counts: list[int], said: str) -> None:
    *_, last = CURVE.lines("smollm2", {str(number): count for number, count in enumerate(counts)})
    assert said in last


def test_without_points_nothing_was_measured() -> None:
    (line,) = CURVE.model_copy(update={"points": ()}).lines("smollm2", {"Shoes": 10})
    assert "was not measured" in line


def test_a_dry_run_of_the_command(training: Training) -> None:
    path = training.folder / "finetune.yaml"
    path.write_text(yaml.safe_dump(training.document))
    result = CliRunner().invoke(app, ["--config", str(path), "--few", "--dry-run", "--set", "optimizer.epochs=2"])
    assert result.exit_code == 0, result.output
    assert "80 labelled products; what is not set is chosen for so few:" in result.output
    assert "optimizer.epochs stays 2.0" in result.output
    assert "what to expect" in result.output
    held_out = re.search(r"validation\.share=0\.1 +(\d+) products are not trained on", result.output)
    assert held_out is not None
    assert f"validations of {held_out[1]} products" in result.output, "as the training itself has it"


@pytest.mark.soak
@pytest.mark.usefixtures("shared_ray")
def test_a_run_from_few_labels_continues_under_the_same_settings(tmp_path: Path, tiny_model_dir: Path) -> None:
    training = FewTraining(tmp_path, tiny_model_dir)
    said = interrupted(training, "tokens right", log_seconds=1e-6)
    assert "stopping: a checkpoint is kept first" in said
    record = json.loads((training.folder / "out/config.json").read_text())["config"]
    assert (record["optimizer"]["epochs"], record["optimizer"]["learning_rate"]) == (6, 1e-3)
    assert (record["validation"]["share"], record["validation"]["patience"]) == (0.1, 2)
    text = training.run()
    assert "continues at step" in text
    training.run(output=str(training.folder / "undisturbed"))
    assert training.result()["best_step"] == training.result("undisturbed")["best_step"]
    assert_equal_weights(training.folder / "undisturbed", training.folder / "out")
    with (training.folder / "gold.jsonl").open("a") as file:
        file.write(json.dumps(training.line(99)) + "\n")
    with pytest.raises(UsageError, match="the data, or how this version reads them, have changed"):
        training.run()
    write_gold(training, 30)
    with pytest.raises(UsageError, match=r"another configuration: .*validation\.share: 0\.1 -> 0"):
        training.run()
