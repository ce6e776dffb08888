"""The program that measures a GPU, rehearsed on the CPU: its parts run, and none takes the others along."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner, Result

from bench.gpu import plan
from bench.gpu.loaded import base_config
from bench.gpu.supervisor import Done, Settings, Supervisor
from bench.measure_gpu import app
from pipelines.errors import UsageError
from tests.tables import table


def rehearse(out: Path, parts: str, tokenizer: Path, *options: str) -> Result:
    arguments = [str(out), "--rehearse", "--parts", parts, "--tokenizer", str(tokenizer), "--records", "6", *options]
    return CliRunner().invoke(app, arguments)


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


def facts(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


def workers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "bench.gpu.worker" in " ".join(child.cmdline())]


def test_a_part_that_hangs_or_dies_or_fails_does_not_take_the_others_along(
    tmp_path: Path, tiny_model_dir: Path
) -> None:
    out = tmp_path / "out"
    result = rehearse(out, "hang,die,fail,gemm,8b:tree,8b:floor", tiny_model_dir)
    assert result.exit_code == 1, result.output
    found = facts(result)
    outcomes = {item["part"]: item["outcome"] for item in found["parts"]}
    assert outcomes == {
        "hang": "too long",
        "die": "died",
        "fail": "failed",
        "gemm": "ok",
        "8b:tree": "ok",
        "8b:floor": "ok",
    }
    hanging = next(item for item in found["parts"] if item["part"] == "hang")
    assert plan.parse("hang").limit <= hanging["seconds"] < 3 * plan.parse("hang").limit + 20
    assert "_go_wrong" in result.output, "where it hung is told"
    assert f"killed by {signal.SIGSEGV.name}" in result.output
    assert "RuntimeError: as a part fails" in result.output
    assert not workers()
    assert [row["part"] for row in rows(out)] == ["gemm", "8b:tree", "8b:floor"]
    tree, floor = rows(out)[1:]
    assert tree["records"] == 6
    assert tree["products_per_second"] == pytest.approx(6 / tree["seconds"])
    assert sum(tokens for _, tokens in tree["steps"]) == tree["tokens"] == floor["tokens"]
    assert floor["rows"] == tree["large_steps"]["tokens"]
    [rated] = [rate for rate in found["rates"] if rate["part"] == "8b:tree"]
    assert rated["of floor"] == pytest.approx(floor["seconds"] / tree["seconds"])
    assert found["estimates"]["parts"][0]["part"] == "8b:tree"
    # Measured later into the same folder, it stands in the same table.
    again = rehearse(out, "8b:titles:tree+short-keys", tiny_model_dir)
    assert again.exit_code == 0, again.output
    assert [rate["part"] for rate in facts(again)["rates"]] == ["8b:tree", "8b:floor", "8b:titles:tree+short-keys"]


@pytest.mark.full
@pytest.mark.parametrize(
    "parts",
    [
        "8b:ceiling,8b:generate,8b:single,8b:small-steps",
        "1.7b:profile,1.7b:launches",
        "0.6b:tree+fp8,0.6b:floor+fp8",
    ],
)
def test_every_part_runs(parts: str, tmp_path: Path, tiny_model_dir: Path) -> None:
    result = rehearse(tmp_path, parts, tiny_model_dir)
    assert result.exit_code == 0, result.output
    assert list(dict.fromkeys(row["part"] for row in rows(tmp_path))) == parts.split(",")


def test_what_no_longer_fits_is_left_out_and_said(tmp_path: Path, tiny_model_dir: Path) -> None:
    result = rehearse(tmp_path, "8b:tree", tiny_model_dir, "--budget", "1")
    assert result.exit_code == 0
    assert facts(result)["parts"][0]["outcome"] == "no time"
    assert "8b:tree: no time: 1 s of 1 are left" in result.output
    assert not (tmp_path / "results.jsonl").exists()
    cut = rehearse(tmp_path, "hang", tiny_model_dir, "--budget", "1.5")
    assert facts(cut)["parts"][0]["outcome"] == "no time", "it is ended by the budget, not by its own limit"
    assert cut.exit_code == 0


@table(
    ("parts", "said"),
    [
        ("8b:tre", "--parts '8b:tre': nothing is called 'tre'; there are tree, generate, vllm"),
        ("tree", "--parts 'tree': 'tree' needs a model in front, as in 8b:tree"),
        ("7b:tree", "--parts '7b:tree': no model '7b'; there are 8b, 1.7b, 0.6b"),
        ("8b:prose:tree", "--parts '8b:prose:tree': no workload 'prose'; there are listings, titles"),
        ("8b:tree+fast", "--parts '8b:tree+fast': no option 'fast'"),
        ("gemm+fp8", "--parts 'gemm+fp8': 'gemm' takes no options"),
        ("8b:tree@0", "--parts '8b:tree@0': a part is called like 8b:tree"),
        ("8b:vllm", "--parts '8b:vllm' needs --vllm"),
    ],
)
def test_a_part_that_nobody_knows_is_an_error_before_anything_runs(parts: str, said: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [str(tmp_path / "out"), "--parts", parts])
    assert result.exit_code == 2
    assert f"Error: {said}" in result.output
    assert not (tmp_path / "out").exists()


def test_faults_belong_to_a_rehearsal(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [str(tmp_path), "--parts", "hang"])
    assert result.exit_code == 2
    assert "--parts 'hang' belongs to a rehearsal" in result.output


@table(
    ("option", "said"),
    [
        ("max_tokens=5", "engine.max_tokens: Extra inputs are not permitted"),
        ("layout=ring", "engine.layout: Input should be 'tree' or 'stacked'"),
        ("prompt.keys=tiny", "engine.prompt.keys: Input should be "),
    ],
)
def test_a_setting_that_the_engine_does_not_know_is_told_by_its_key(option: str, said: str) -> None:
    with pytest.raises(UsageError, match=f"^{said}"):
        base_config(Settings("cpu", True, 4, "none", None, "."), plan.parse(f"8b:tree+{option}").settings)


def test_settings_in_a_name_are_the_engines() -> None:
    part = plan.parse("1.7b:titles:tree+short-keys+max_tokens_per_step=512+overlap_steps=false+fp8@3")
    config = base_config(Settings("cpu", True, 4, "none", None, "."), part.settings)
    assert (part.shape, part.workload, part.kind, part.rounds) == ("1.7b", "titles", "tree", 3)
    assert part.process == "1.7b, fp8"
    assert (config.prompt.keys, config.max_tokens_per_step, config.overlap_steps) == ("short", 512, False)
    assert config.quantization == "fp8"
    assert config.device == "cpu"


def test_nobody_is_left_behind_when_it_is_told_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings("cpu", True, 4, "none", None, str(tmp_path))
    supervisor = Supervisor(settings, 300, print, print)
    seen: list[psutil.Process] = []
    before = signal.getsignal(signal.SIGTERM)

    def told_to_end(_: Any, part: plan.Part, left: float, later: str | None) -> Done:
        supervisor._worker_for("card", 60)
        seen.extend(workers())
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("it goes on")

    monkeypatch.setattr(Supervisor, "_run", told_to_end)
    with pytest.raises(SystemExit):
        supervisor.run([plan.parse("gemm")])
    assert len(seen) == 1
    assert not workers()
    assert signal.getsignal(signal.SIGTERM) is before
