"""Extraction in a terminal: the run, a preview of a few products, and the outcome."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from pipelines.console.terminal import print_notes
from pipelines.job import summary
from pipelines.job.driver import run_job
from pipelines.job.preflight import PlannedJob
from pipelines.job.preview import preview_table


def run_and_tell(job: PlannedJob, console: Console, *, show: int) -> tuple[int, dict[str, Any]]:
    """Run the job and print its outcome, with the attributes of `show` products. Returns (exit code, outcome as plain
    data)."""
    print_notes(console, [*job.warnings, *job.sample_warnings])
    outcome = run_job(job, console)
    code = summary.exit_code(outcome, job.config.max_dead_letter_share)
    if show and (table := preview_table(job.output, show)) is not None:
        console.print(table)
    summary.print_outcome(console, job, outcome)
    return code, summary.outcome_json(job, outcome, code)
