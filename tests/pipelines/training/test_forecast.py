"""What a dry run says of a training that has not begun, and of one that has."""

from __future__ import annotations

import io
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pipelines.errors import UsageError
from pipelines.store.folders import Folder
from pipelines.training.driver import run_finetuning
from pipelines.training.forecast import earlier_pace
from tests.pipelines.training.trainings import Training


@pytest.fixture
def training(tmp_path: Path, tiny_model_dir: Path) -> Training:
    return Training(tmp_path, tiny_model_dir)


def dry_run(training: Training, **changes: Any) -> str:
    text = io.StringIO()
    run_finetuning(training.config(**changes), Console(file=text, width=300), dry_run=True)
    return text.getvalue()


def test_steps_tokens_and_time_are_said_and_nothing_is_kept(training: Training) -> None:
    said = dry_run(training)
    # 62 products, 8 a step, 8 epochs; an evaluation every second one.
    assert "64 steps (8 an epoch), 496 products forwarded: " in said
    tokens, learned = re.search(r"forwarded: ([\d,]+) tokens, ([\d,]+) of them learned from", said).groups()  # type: ignore[union-attr]
    assert int(tokens.replace(",", "")) > int(learned.replace(",", "")) > 496
    assert "for 4 validations of 16 products" in said
    assert re.search(r"^about .* training, .* Measured here, on .*: \d+ steps? in [\d.]+ s\.$", said, re.MULTILINE)
    for what in ("loading the model", "reading the data", "taking a few steps, to measure"):
        assert f"starting: {what}" in said
    assert not (training.folder / "out/config.json").exists()


def test_a_run_that_has_begun_says_its_own_pace(training: Training) -> None:
    (training.folder / "out").mkdir()
    entries = [
        {"step": step, "loss": 1.0, "documents_per_second": speed}
        for step, speed in enumerate((1.0, 4.0, 5.0), start=1)
    ]
    entries.append({"step": 3, "validation": {"products_per_second": 8.0}})
    (training.folder / "out/log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    said = dry_run(training)
    # 496 products at the middle one of three paces, 4 x 16 decoded.
    assert "about 2 min 12 s: 2 min 04 s training, 8 s for 4 validations" in said
    assert "By the pace of this run so far" in said
    assert "to measure" not in said
    (training.folder / "out/log.jsonl").write_text("")
    assert earlier_pace(Folder(str(training.folder / "out"))) is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", ""),
        ("config.json", '{"architectures": ["LlamaForCausalLM"]}'),  # a model's folder
        ("config.json", "[]"),
        ("result.json", '{"st'),
        ("result.json", '{"is_finished": true}'),
        ("log.jsonl", '{"step": 1}\n{"st'),
    ],
)
def test_a_damaged_file_of_the_output_is_named(training: Training, name: str, content: str) -> None:
    (training.folder / "out").mkdir()
    (training.folder / "out" / name).write_text(content)
    start = training.run if name == "result.json" else partial(dry_run, training)  # a dry run reads no result
    with pytest.raises(UsageError, match=rf"cannot read .*out/{name}: it is damaged.* or train into another output"):
        start()
