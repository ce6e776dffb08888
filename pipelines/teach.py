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
from collections.abc import Mapping
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
    """Runs rounds until the user declines another."""

    def work() -> int:
        from pipelines.config.extraction import JobConfig
        from pipelines.config.loading import load_config

        if ":/" in str(out):
            raise UsageError(f"--out {out}: a local folder is needed")
        job = out / "job.yaml"
        if not job.exists():
            _save_job(load_config(JobConfig, config, []), job)
        kept = load_config(JobConfig, str(job), [])
        _extract(job, rows, out / "before")
        # What people say of a run counts as its answers: the model is scored by a run of which nothing is said.
        if not (out / "reviewed").exists():
            shutil.rmtree(out / "copying", ignore_errors=True)
            shutil.copytree(out / "before", out / "copying").rename(out / "reviewed")
        number = 1
        while True:
            folder = out / f"round-{number}"
            if _label(folder, out / f"round-{number - 1}", batch, port):
                _train_and_judge(folder, job, rows, kept)
            number += 1
            if not (out / f"round-{number}").exists() and not typer.confirm(f"Label {batch} more products?"):
                return EXIT_CLEAN

    run_command(work)


def _save_job(config: JobConfig, job: Path) -> None:
    """Write the job beside what it makes, with its schemas. Raise `UsageError` if no model can be trained for it."""
    if config.cascade is not None:
        raise UsageError("hpd teach is for one model: leave out `cascade`")
    _finetune_document(config, job.parent)
    job.parent.mkdir(parents=True, exist_ok=True)
    schemas = job.with_name("schemas.yaml")
    shutil.copyfile(config.schemas, schemas)
    kept = config.model_dump(mode="json", exclude_unset=True, exclude={"base", "retry_failed"})
    document = {**kept, "schemas": str(schemas), "calibration": None}
    job.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")  # fields are read in their order


def _finetune_document(config: JobConfig, folder: Path) -> dict[str, Any]:
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


def _label(folder: Path, previous: Path, batch: int, port: int) -> bool:
    """Have people label a round's products. Return whether they are enough to train and to judge with."""
    if (folder / "gold.train.jsonl").exists():
        return True
    gold, known = folder / "gold.jsonl", previous / "gold.jsonl"
    num_known = known.read_bytes().count(b"\n") if known.exists() else 0
    review = ("review", str(folder.with_name("reviewed")), "--sample", str(num_known + batch))
    _do(*review, "--port", str(port))
    _do(*review, "--gold", str(gold))
    num_labelled = gold.read_bytes().count(b"\n")
    if num_labelled <= num_known:
        raise UsageError(f"no more products are labelled than the {num_known} of before")
    if not typer.confirm(f"{num_labelled} products are labelled. Train with them now?", default=True):
        raise typer.Exit(EXIT_STOPPED)
    return _run("label", "--split", str(gold), "--split-share", "0.33") != EXIT_USAGE


def _train_and_judge(folder: Path, job: Path, rows: int, config: JobConfig) -> None:
    """Fine-tune, extract the same rows anew, compare on what was not trained on, and learn a confidence."""
    before, after, test = str(folder.with_name("before")), folder / "after", str(folder / "gold.test.jsonl")
    file, adapter = folder / "finetune.yaml", folder / "trained" / "model"
    file.write_text(yaml.safe_dump(_finetune_document(config, folder), sort_keys=False), encoding="utf-8")
    _do("finetune", "--config", str(file), "--few")
    _extract(job, rows, after, {"adapter": str(adapter)})
    _do("evaluate", before, str(after), "--gold", test, "--limit", "5")
    learned = _run("evaluate", str(after), "--gold", test, "--calibrate", "--precision", "0.9", "--force") == EXIT_CLEAN
    changes = {"adapter": str(adapter), "output": str(folder / "catalog")}
    promise = {"calibration": "auto", "accept.precision": 0.9} if learned else {}
    print(f"The whole catalog with what it knows now{'' if learned else ', without a promise: label more for one'}:")
    print(" ", shlex.join(["hpd", "extract", "--config", str(job), *_set(changes | promise)]))


def _extract(job: Path, rows: int, run: Path, changes: Mapping[str, Any] | None = None) -> None:
    """Extract `rows` rows into `run`. Skip a finished run, because the catalog may have changed since."""
    if not (run / "manifest.json").exists():
        settings = _set({"output": str(run), **(changes or {})})
        _do("extract", "--config", str(job), *settings, "--limit", str(rows), "--run-id", run.name)


def _set(changes: Mapping[str, Any]) -> list[str]:
    return [part for key, value in changes.items() for part in ("--set", f"{key}={json.dumps(value)}")]


def _do(*arguments: str) -> None:
    """Run one of our commands. Exit with its code if it failed; dead letters are no failure here."""
    if (code := _run(*arguments)) not in (EXIT_CLEAN, EXIT_INCOMPLETE):
        raise typer.Exit(code)


def _run(*arguments: str) -> int:
    """Run one of our commands and return its exit code. The terminal sends Ctrl-C to it; SIGTERM is passed on."""
    print("$", shlex.join(["hpd", *arguments]), flush=True)
    handler = signal.signal(signal.SIGINT, lambda *_: None)  # SIG_IGN would be inherited
    process = subprocess.Popen([sys.executable, "-m", "pipelines.cli", *arguments])
    try:
        return process.wait()
    except KeyboardInterrupt:  # SIGTERM, by `run_command`
        process.terminate()
        process.wait()
        raise
    finally:
        signal.signal(signal.SIGINT, handler)
