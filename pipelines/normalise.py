"""Brings the values of a finished run to their units, vocabularies and forms anew, without a model.

    hpd normalise runs/demo
    hpd normalise s3://bucket/enriched/2026-11-21 --schemas edited.yaml --dry-run

`extract` does it already; this does it again after an edit of the schemas (a synonym, an id, a unit) or with newer
rules, in place. Only the normalised columns of `attributes` change (docs/values.md), and `confidence` and
`decision`, which follow. It may be killed at any moment and started again. Exit code: 0 done, 1 stopped (the same
command continues), 2 no finished run, or no schemas of what it asked for.
"""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from pipelines.config.schema_file import load_schemas
from pipelines.console.exit_codes import EXIT_CLEAN, run_command
from pipelines.console.terminal import printable
from pipelines.normalising.measured_text import NORM_STATUSES
from pipelines.quality.run_confidence import RunConfidence
from pipelines.reviewing.decided_run import decide_run
from pipelines.reviewing.normalised_run import NormalisedRun, normalise_run
from pipelines.store.folders import Folder

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(help=__doc__.split("\n\n", maxsplit=1)[0] if __doc__ else None)
def main(
    run: Annotated[str, typer.Argument(help="output folder of the run: a local path or any fsspec URI")],
    schemas: Annotated[str | None, typer.Option(help="schema file with edited attributes; the run keeps them")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="count what would change, write nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="end with one line of JSON")] = False,
) -> None:
    """Does it, prints what changed and exits."""

    def work() -> int:
        asked = load_schemas(schemas) if schemas is not None else None
        console = Console(markup=False, highlight=False, emoji=False)
        found = normalise_run(run, asked, console, place=schemas or "the schemas", is_trial=dry_run)
        _print(console, found, dry_run)
        decided = None if dry_run else _decide(run, console)
        if as_json:
            typer.echo(json.dumps(found.to_dict() | {"decided_otherwise": decided}))
        return EXIT_CLEAN

    run_command(work)


def _decide(run: str, console: Console) -> int | None:
    """Update confidences and decisions, because the normalised form is one of their features.

    Returns the number of changed answers; None if the run stores no calibration or acceptance rule.
    """
    kept = RunConfidence.read(Folder(run))
    if kept is None or not (kept.calibrations or kept.accept):
        return None
    changed = decide_run(run, kept, console).num_changed
    console.print(f"confidence and decision by the run's own calibration: {changed:,} answers have another one")
    return changed


def _print(console: Console, found: NormalisedRun, is_trial: bool) -> None:
    for note in found.notes:
        console.print(f"NOTE: {printable(note)}", style="bold yellow", soft_wrap=True)
    verb = "would change" if is_trial else "changed"
    console.print(
        f"{found.num_values:,} values, {found.num_changed:,} {verb}; "
        f"{found.num_rewritten:,} of {found.num_parts:,} parts {'would be ' if is_trial else ''}written"
    )
    if found.num_unknown:
        console.print(f"  {found.num_unknown:,} are of attributes that no schema has; they stay as they were")
    for name in (*NORM_STATUSES, None):
        if found.before[name] or found.after[name]:
            console.print(f"  {name or '(none)':<10} {found.before[name]:>12,} -> {found.after[name]:>12,}")
