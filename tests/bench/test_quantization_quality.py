"""What a quantization costs: the scores are a job's, differences are to the first, and layers stay as they were."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from click.testing import Result
from typer.testing import CliRunner

from bench import quantization_quality
from bench.gold_sets import CONFIG
from hpd_core import Engine, EngineConfig
from hpd_core.layers.fp8 import Fp8Linear
from pipelines.quality.evaluation import evaluate_run
from pipelines.quality.gold import read_gold
from pipelines.schemas.from_gold import schemas_from_gold
from pipelines.schemas.schema_file import dump_schemas
from tests.pipelines.conftest import Workplace
from tests.tables import table

NUM_PRODUCTS = 24


def write_set(folder: Path) -> Path:
    """A training and a test set; of the labels some are what the tiny model answers."""
    folder.mkdir(exist_ok=True)
    lines = []
    for number in range(NUM_PRODUCTS):
        colour, size = ("red", "blue", "n/a")[number % 3], ("42", "n/a")[number % 2]
        labels = {"Colour": {colour: 1}, "Size": {size: 1}, "Brand": {"Velor": 1}}
        text = "" if number == 5 else f"Velor item {number} {colour} {number * 7 % 50}"
        lines.append({"input": text, "category": ("Shoes", "Coffee")[number % 2], "target_scores": labels})
    for part in ("train", "test"):
        (folder / f"made.{part}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


def call(data: Path, model: Path, *options: str) -> Result:
    common = ("--model", str(model), "--adapter", "", "--sets", "made", "--device", "cpu")
    return CliRunner().invoke(quantization_quality.app, [str(data), *common, *options])


def results(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


def test_scores_are_those_of_a_job_and_its_evaluation(workplace: Workplace) -> None:
    data = write_set(workplace.folder / "data")
    gold = data / "made.test.jsonl"
    schemas = workplace.folder / "made.yaml"
    schemas.write_text(dump_schemas(schemas_from_gold(read_gold(str(data / "made.train.jsonl")))))
    shipped = yaml.safe_load(CONFIG.read_text())
    workplace.run(
        schemas=str(schemas),
        input=shipped["input"] | {"path": str(gold)},
        # In bfloat16, company that makes sums in another order may move an answer of random weights.
        engine=shipped["engine"] | {"dtype": "float32", "device": "cpu"},
    )
    expected = evaluate_run(str(workplace.folder / "out"), str(gold))

    options = ("--quantizations", "none", "--dtype", "float32", "--out", str(workplace.folder / "measured"))
    result = call(data, workplace.model, *options)
    assert result.exit_code == 0, result.output
    (row,) = results(workplace.folder / "measured")
    f1 = expected.exact.micro.f1
    assert row["f1"] == {"value": f1.value, "low": f1.low, "high": f1.high}
    assert 0 < f1.value < 1, "all wrong or all right would prove little"
    assert (row["products"], row["given_up"]) == (NUM_PRODUCTS, len(expected.dead_lettered))
    assert row["given_up"] == 1


def test_differences_are_to_the_first_and_rows_are_added(tmp_path: Path, tiny_model_dir: Path) -> None:
    data, out = write_set(tmp_path / "data [1]"), tmp_path / "out"
    for _ in range(2):
        result = call(
            *(data, tiny_model_dir, "--quantizations", "none,fp8"),
            *("--keep-in-bf16", "down_proj|v_proj", "--limit", "9", "--out", str(out)),
        )
        assert result.exit_code == 0, result.output
    lines = [line for line in result.stdout.splitlines() if line.startswith("| made")]
    assert [re.split(r"(?<!\\)\|", line)[2].strip() for line in lines] == [
        *("none", "fp8", r"fp8, down_proj\|v_proj in bf16")
    ]
    plain, *others = results(out)[:3]
    assert len(results(out)) == 6
    assert plain["difference"] is None
    assert plain["products"] == 9
    for row in others:
        assert row["difference"]["value"] == pytest.approx(row["f1"]["value"] - plain["f1"]["value"])
        assert row["difference"]["low"] <= row["difference"]["value"] <= row["difference"]["high"]
        assert 0 < row["same_answers"] <= 1
        assert row["seconds"] > 0


def test_layers_that_match_stay_in_bfloat16(tiny_model_dir: Path) -> None:
    kept = quantization_quality.Variant("fp8", re.compile(r"down_proj|layers\.0\.self_attn\.v"))
    with quantization_quality.load_engine(kept, str(tiny_model_dir), None, "cpu") as engine:
        model = engine._weights.model
    layers = {name: part for name, part in model.named_modules() if name.endswith("_proj")}
    plain = {name for name, layer in layers.items() if type(layer) is torch.nn.Linear}
    assert plain == {
        *("model.layers.0.mlp.down_proj", "model.layers.1.mlp.down_proj", "model.layers.0.self_attn.v_proj")
    }
    assert all(layers[name].weight.dtype == torch.bfloat16 for name in plain)
    config = EngineConfig(dtype="bfloat16", device="cpu", quantization="fp8")
    with Engine.from_pretrained(str(tiny_model_dir), config) as whole:
        wholly = whole._weights.model
    for name in layers.keys() - plain:
        layer, same = layers[name], wholly.get_submodule(name)
        assert isinstance(layer, Fp8Linear)
        assert torch.equal(layer.weight8.view(torch.uint8), same.weight8.view(torch.uint8))
        assert torch.equal(layer.weight_scales, same.weight_scales)


@table(
    ("options", "message"),
    [
        (["--quantizations", "none,fp9"], "no 'fp9'; there are none, nf4, int8, fp8"),
        (["--keep-in-bf16", "("], "'(' is no regular expression"),
        (["--keep-in-bf16", "embed"], "'embed' matches no linear layer's name; they are such as model.layers.0."),
        (["--keep-in-bf16", "."], "'.' matches all linear layers' names"),
        (["--sets", "made,other"], "no such gold file"),
        (["--device", "tpu9x"], "no such device: 'tpu9x'"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is(
    tmp_path: Path, tiny_model_dir: Path, options: list[str], message: str
) -> None:
    result = call(write_set(tmp_path), tiny_model_dir, *options)
    assert result.exit_code == 2
    assert message in result.output
    assert "| made" not in result.output


def test_neither_ray_nor_duckdb_is_needed() -> None:
    code = "import sys; sys.modules.update(ray=None, duckdb=None); import bench.quantization_quality"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=CONFIG.parent.parent)
