"""`hpd evaluate --judge`: judge, print, and return the exit code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import typer
from rich.console import Console

from pipelines.console.exit_codes import EXIT_CLEAN, EXIT_INCOMPLETE
from pipelines.judging.driver import JudgeWishes, judge_run
from pipelines.judging.terminal_text import print_judgement


def judge_and_print(
    console: Console,
    run: str,
    wishes: JudgeWishes,
    gold: str | None,
    by_attribute: bool,
    beside: Mapping[str, Any] | None,
) -> int:
    """Judge and print. Returns exit code 3 if some products could not be asked about. Raises as `judge_run`.

    `beside`: further content of the last line of JSON; None: no such line.
    """
    judgement, place = judge_run(run, wishes, gold, console)
    print_judgement(console, judgement, place, by_attribute)
    if beside is not None:
        typer.echo(json.dumps({**beside, "judge": judgement.summary()}, ensure_ascii=False))
    return EXIT_INCOMPLETE if judgement.num_unanswered else EXIT_CLEAN
