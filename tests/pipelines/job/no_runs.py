"""Every command that reads a run, and how it is asked to read one that may not be there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from typer.testing import CliRunner

from pipelines import evaluate, export, extract, normalise, plan, report, review, status
from tests.pipelines.conftest import Workplace, products
from tests.pipelines.evaluating.made_runs import Row, write_run


def readers(workplace: Workplace) -> dict[str, Callable[[str], tuple[int, str]]]:
    """By name: asks the command for the run at a place, and returns its exit code and all that it says."""
    folder = workplace.folder
    workplace.write_jsonl("c.jsonl", products(2))
    job = str(workplace.write_config())
    gold = folder / "gold.jsonl"
    gold.write_text(json.dumps({"product_id": "p0", "category": "Coffee", "values": {"Brand": ["Acme"]}}) + "\n")
    other = write_run(folder / "other", [Row("p0", {"Brand": "Acme"})])
    commands: dict[str, tuple[object, Sequence[str]]] = {
        "status": (status.app, ["{run}"]),
        "status --json": (status.app, ["{run}", "--json"]),
        "report": (report.app, ["{run}"]),
        "evaluate, first": (evaluate.app, ["{run}", other]),
        "evaluate, second": (evaluate.app, [other, "{run}"]),
        "evaluate": (evaluate.app, ["{run}", "--gold", str(gold)]),
        "evaluate --judge": (evaluate.app, ["{run}", "--judge", "http://localhost:1/v1", "--judge-set", "model=m"]),
        "evaluate --recheck": (evaluate.app, ["{run}", "--gold", str(gold), "--recheck"]),
        "evaluate --calibrate": (
            evaluate.app,
            ["{run}", "--gold", str(gold), "--calibrate", "--out", str(folder / "calibration.json")],
        ),
        "evaluate --apply": (evaluate.app, ["{run}", "--apply", "--precision", "0.9"]),
        "review": (review.app, ["{run}", "--port", "0"]),
        "review --write": (review.app, ["{run}", "--write"]),
        "review --gold": (review.app, ["{run}", "--gold", str(folder / "reviewed.jsonl")]),
        "export": (export.app, ["{run}", "--to", "csv"]),
        "normalise": (normalise.app, ["{run}"]),
        "plan --from-run": (plan.app, ["--config", job, "--from-run", "{run}"]),
        "extract --base": (extract.app, ["--config", job, "--base", "{run}", "--dry-run"]),
        "extract --retry-failed": (extract.app, ["--config", job, "--retry-failed", "{run}", "--dry-run"]),
    }
    return {name: _asking(app, arguments) for name, (app, arguments) in commands.items()}


def _asking(app: object, arguments: Sequence[str]) -> Callable[[str], tuple[int, str]]:
    def ask(run: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, [each.format(run=run) for each in arguments])  # type: ignore[arg-type]
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.output

    return ask


def assert_all_refuse(asked: Mapping[str, Callable[[str], tuple[int, str]]], place: str, told: str) -> None:
    """Every command says that there is no run in the place, then these words, and ends with code 2."""
    for command, ask in asked.items():
        code, text = ask(place)
        flat = " ".join(text.split())
        assert code == 2, (command, place, text)
        assert f"there is no run in {place}" in flat, (command, place, text)
        assert told in flat, (command, place, text)
        assert "use another" not in flat, (command, place, text)
        assert "Traceback" not in text, (command, place, text)


def places(folder: Path) -> dict[str, tuple[str, str]]:
    """By name: a place without a run, and what is said of it."""
    (folder / "empty").mkdir()
    (folder / "file.txt").write_text("x")
    (folder / "its.yaml").write_text("model: m\noutput: runs/tuesday\n")
    (folder / "odd.yaml").write_text("output: [")
    (folder / "full").mkdir()
    (folder / "full" / "notes.txt").write_text("x")
    for name in ("monday", "tuesday"):
        write_run(folder / "nights" / name, [Row("p0", {"Brand": "Acme"})])
    return {
        "missing": (f"{folder}/nowhere", "there is no such folder; name the output folder of a run"),
        "missing below a file": (f"{folder}/file.txt/run", "there is no such folder"),
        "empty": (f"{folder}/empty", "the folder is empty; name the output folder of a run"),
        "a file": (f"{folder}/file.txt", "it is a file, a folder is needed; name the output folder"),
        "a configuration": (f"{folder}/its.yaml", "it is a file, a folder is needed; the configuration's run is in"),
        "a broken configuration": (f"{folder}/odd.yaml", "it is a file, a folder is needed; name the output folder"),
        "other things": (f"{folder}/full", "it has no _plan.json); name the output folder of a run"),
        "runs": (f"{folder}/nights", f"there is one in {folder}/nights/monday, {folder}/nights/tuesday"),
        "a part of a run": (f"{folder}/nights/monday/products", f"the run is in {folder}/nights/monday"),
        "a file of a run": (f"{folder}/nights/monday/manifest.json", f"the run is in {folder}/nights/monday"),
    }
