"""Teaches the model a catalog: people label some products, most of them train it, the others judge it.

    hpd teach --config mine/catalog.yaml --out mine/taught

A round has 15 more products, drawn at random, that people review on a page; Ctrl-C ends the page, not the command. A
third of them is never trained on: it says what the model has gained, and its confidence is learned from it. Every step
is a command of its own, which is printed; the same command goes on after a stop. Exit codes: 0 taught; 1 stopped, run
it again to continue; otherwise that of the step that failed.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from pipelines.console.exit_codes import EXIT_CLEAN, EXIT_STOPPED, run_command
from pipelines.errors import UsageError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(help=__doc__.split("\n\n", maxsplit=1)[0] if __doc__ else None)
def main(
    config: Annotated[str, typer.Option(help="the job's YAML file")],
    out: Annotated[Path, typer.Option(help="local folder of all that is made: runs, labels, adapters")],
    rows: Annotated[int, typer.Option(min=1, help="rows to draw from, evenly spaced over the catalog")] = 200,
    batch: Annotated[int, typer.Option(min=1, help="products to label in a round")] = 15,
    port: Annotated[int, typer.Option(min=0, max=65535, help="port of the page; 0: a free one")] = 8710,
) -> None:
    """Goes round after round, as long as somebody wants to label more."""

    def work() -> int:
        from pipelines.config.extraction import JobConfig
        from pipelines.config.loading import load_config

        job = load_config(JobConfig, config, [])
        if job.cascade is not None:
            raise UsageError("hpd teach is for one model: leave out `cascade`")
        before = str(out / "before")
        _extract(config, rows, before)
        number = 1
        while True:
            adapter = _round(out / f"round-{number}", job, config, rows, before, batch * number, port)
            print(f"The whole catalog with what it knows now: hpd extract --config {config} --set adapter={adapter}")
            number += 1
            if not (out / f"round-{number}").exists() and not typer.confirm(f"Label {batch} more products?"):
                return EXIT_CLEAN

    run_command(work)


def _round(folder: Path, job: Any, config: str, rows: int, before: str, num_products: int, port: int) -> Path:
    """Label, train, judge. Return the trained adapter's folder."""
    gold, train, test = (str(folder / name) for name in ("gold.jsonl", "gold.train.jsonl", "gold.test.jsonl"))
    if not Path(test).exists():
        drawn = ("--sample", str(num_products))
        _do("review", before, *drawn, "--port", str(port))
        labelled = _ask("review", before, *drawn, "--gold", gold)
        print(f"{labelled['products']} of {num_products} products are labelled, {labelled['answers']} answers.")
        if not typer.confirm("Train with them now?", default=True):
            raise typer.Exit(EXIT_STOPPED)
        _do("label", "--split", gold, "--split-share", "0.33")
    training = {
        "model": job.model,
        "datasets": [{"gold": train, "schemas": job.schemas}],
        "labels": {"unlabelled": "untaught"},
        "engine": job.engine.model_dump(mode="json", exclude_unset=True),
        "output": str(folder / "trained"),
        **({"adapter": job.adapter} if job.adapter else {}),
    }
    file = folder / "finetune.yaml"
    file.write_text(yaml.safe_dump(training), encoding="utf-8")
    _do("finetune", "--config", str(file), "--few")
    adapter, after = folder / "trained" / "model", str(folder / "after")
    _extract(config, rows, after, f"adapter={adapter}", "calibration=null")
    scored = [_ask("evaluate", run, "--gold", test) for run in (before, after)]
    shown = " -> ".join(
        "{value:.3f} [{low:.3f}, {high:.3f}]".format(**each["scores"][0]["micro"]["f1"]) for each in scored
    )
    print(f"F1 on {scored[0]['num_products']} products that it was not taught: {shown}")
    learned = _run("evaluate", after, "--gold", test, "--calibrate", "--precision", "0.9", "--force")
    if learned.returncode:
        print("So it has no confidence of its own yet.")
    return adapter


def _extract(config: str, rows: int, run: str, *changes: str) -> None:
    settings = [part for each in (f"output={run}", *changes) for part in ("--set", each)]
    _do("extract", "--config", config, *settings, "--limit", str(rows), "--run-id", Path(run).name)


def _do(*arguments: str, **streams: Any) -> str:
    """Run a command of ours, and return what it wrote to a pipe. Exit as it does if it fails."""
    done = _run(*arguments, **streams)
    if done.returncode:
        raise typer.Exit(done.returncode)
    return done.stdout or ""


def _ask(*arguments: str) -> Any:
    """Run a command of ours with --json, and return what it says."""
    return json.loads(_do(*arguments, "--json", stdout=subprocess.PIPE).splitlines()[-1])


def _run(*arguments: str, **streams: Any) -> subprocess.CompletedProcess[str]:
    """Run a command of ours to its end: of Ctrl-C it hears from the terminal, of SIGTERM from us."""
    print("$ hpd", *arguments, flush=True)
    with subprocess.Popen([sys.executable, "-m", "pipelines.cli", *arguments], text=True, **streams) as process:
        ours = {
            signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
            signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: process.terminate()),
        }
        try:
            written, _ = process.communicate()
        finally:
            for number, handler in ours.items():
                signal.signal(number, handler)
    return subprocess.CompletedProcess(arguments, process.returncode, written)
