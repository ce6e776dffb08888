"""Teaches the model a catalog: people label some products, most of them train it, the others judge it.

    hpd teach --config mine/catalog.yaml --out mine/taught

A round has 15 more products, drawn at random, that people review on a page; Ctrl-C ends the page, not the command. A
third of them is never trained on: it says what the model has gained, and its confidence is learned from it. Every step
is a command of its own, which is printed; the same command goes on after a stop, with the job and schemas that it began
with. Exit codes: 0 taught; 1 stopped, run it again to continue; otherwise that of the step that failed.
"""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from pipelines.console.exit_codes import EXIT_CLEAN, EXIT_INCOMPLETE, EXIT_STOPPED, EXIT_USAGE, run_command
from pipelines.errors import UsageError

if TYPE_CHECKING:
    from pipelines.config.extraction import JobConfig

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

        if "://" in str(out):
            raise UsageError(f"--out {out}: a local folder is needed")
        job = out / "job.yaml"
        if not job.exists():
            _keep(load_config(JobConfig, config, []), job)
        _extract(job, rows, out / "before")
        number = 1
        while True:
            round_ = _Round(out / f"round-{number}", job, rows, load_config(JobConfig, str(job), []))
            if round_.label(out / f"round-{number - 1}", batch, port):
                round_.train_and_judge()
            number += 1
            if not (out / f"round-{number}").exists() and not typer.confirm(f"Label {batch} more products?"):
                return EXIT_CLEAN

    run_command(work)


def _keep(config: JobConfig, job: Path) -> None:
    """Write the job beside what it makes, with its schemas. Raise `UsageError` if no model can be trained for it."""
    if config.cascade is not None:
        raise UsageError("hpd teach is for one model: leave out `cascade`")
    _training(config, job.parent)
    job.parent.mkdir(parents=True, exist_ok=True)
    schemas = job.with_name("schemas.yaml")
    shutil.copyfile(config.schemas, schemas)
    kept = config.model_dump(mode="json", exclude_unset=True, exclude={"base", "retry_failed", "calibration"})
    job.write_text(yaml.safe_dump({**kept, "schemas": str(schemas), "calibration": None}), encoding="utf-8")


def _training(config: JobConfig, folder: Path) -> dict[str, Any]:
    """Return the configuration of a fine-tuning for the job. Raise `UsageError` if there can be none."""
    from pipelines.config.finetuning import FinetuneConfig
    from pipelines.config.loading import parse_config

    document = {
        "model": config.model,
        "layout": "ar" if config.decoding == "ar" else config.engine.layout,
        "datasets": [{"gold": str(folder / "gold.train.jsonl"), "schemas": config.schemas}],
        "labels": {"unlabelled": "untaught"},
        "engine": config.engine.model_dump(mode="json", exclude_unset=True, exclude={"layout"}),
        "output": str(folder / "trained"),
        **({"adapter": config.adapter} if config.adapter else {}),
    }
    parse_config(FinetuneConfig, document, "the fine-tuning for this job")
    return document


class _Round:
    """One round, in a folder of its own."""

    def __init__(self, folder: Path, job: Path, rows: int, config: JobConfig) -> None:
        self._folder, self._job, self._rows, self._config = folder, job, rows, config
        self._before = str(job.with_name("before"))
        self._gold = folder / "gold.jsonl"

    def label(self, previous: Path, batch: int, port: int) -> bool:
        """Have people label; return whether there is enough to train and to judge with."""
        if (self._folder / "gold.train.jsonl").exists():
            return True
        known = previous / self._gold.name
        num_known = known.read_bytes().count(b"\n") if known.exists() else 0
        drawn = ("--sample", str(num_known + batch))
        _do("review", self._before, *drawn, "--port", str(port))
        _do("review", self._before, *drawn, "--gold", str(self._gold))
        labelled = self._gold.read_bytes().count(b"\n")
        if labelled <= num_known:
            raise UsageError(f"no more products are labelled than the {num_known} of before")
        if not typer.confirm(f"{labelled} products are labelled. Train with them now?", default=True):
            raise typer.Exit(EXIT_STOPPED)
        return _run("label", "--split", str(self._gold), "--split-share", "0.33") != EXIT_USAGE

    def train_and_judge(self) -> None:
        """Fine-tune, extract the same rows anew, compare on what was not trained on, and learn a confidence."""
        test, after = str(self._folder / "gold.test.jsonl"), self._folder / "after"
        file, adapter = self._folder / "finetune.yaml", self._folder / "trained" / "model"
        file.write_text(yaml.safe_dump(_training(self._config, self._folder)), encoding="utf-8")
        _do("finetune", "--config", str(file), "--few")
        _extract(self._job, self._rows, after, f"adapter={json.dumps(str(adapter))}")
        _do("evaluate", self._before, str(after), "--gold", test)
        _run("evaluate", str(after), "--gold", test, "--calibrate", "--precision", "0.9", "--force")
        settings = {
            "adapter": adapter,
            "output": self._folder / "catalog",
            "calibration": "auto",
            "accept.precision": 0.9,
        }
        changes = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        print("The whole catalog with what it knows now:")
        print(" ", shlex.join(["hpd", "extract", "--config", str(self._job), *changes]))


def _extract(job: Path, rows: int, run: Path, *changes: str) -> None:
    """Extract some rows, unless it is done: a catalog may have changed since."""
    if (run / "manifest.json").exists():
        return
    settings = [part for each in (f"output={json.dumps(str(run))}", *changes) for part in ("--set", each)]
    _do("extract", "--config", str(job), *settings, "--limit", str(rows), "--run-id", run.name, may=EXIT_INCOMPLETE)


def _do(*arguments: str, may: int = EXIT_CLEAN) -> None:
    """Run a command of ours. Exit as it does if it fails; `may`: another code than 0 that is none."""
    if (code := _run(*arguments)) not in (EXIT_CLEAN, may):
        raise typer.Exit(code)


def _run(*arguments: str) -> int:
    """Run a command of ours to its end, and return its exit code: of Ctrl-C it hears from the terminal."""
    print("$", shlex.join(["hpd", *arguments]), flush=True)
    told: list[int] = []
    with subprocess.Popen([sys.executable, "-m", "pipelines.cli", *arguments]) as process:

        def end(number: int, _: Any) -> None:
            told.append(number)
            process.terminate()

        before = signal.signal(signal.SIGTERM, end), signal.signal(signal.SIGINT, lambda *_: None)
        code = process.wait()
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
            signal.signal(number, handler)
    if told:
        raise KeyboardInterrupt
    return code
