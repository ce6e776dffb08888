"""Reports on a run: which values can be taken, how good each attribute is, products to look at, and what it cost.

    hpd report runs/demo --gold sample/gold.jsonl
    hpd report s3://bucket/run --usd-per-hour 3.77

Writes report.html (one file that needs nothing else) and report.json into the run's folder. Works on a run
that is still going, too. Exit code: 0 written, 2 usage (no such run, gold that does not belong, an unreadable part).
"""

from __future__ import annotations

import json
import math
import sys
from typing import Annotated

import typer

from pipelines.console.exit_codes import EXIT_USAGE
from pipelines.errors import UsageError
from pipelines.reporting import formats
from pipelines.reporting.gather_facts import ReportWishes, gather
from pipelines.reporting.page import print_report, write_report
from pipelines.store.folders import Folder

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(help=__doc__.split("\n\n", maxsplit=1)[0] if __doc__ else None)
def main(
    run: Annotated[str, typer.Argument(help="output folder of the run: a local path or any fsspec URI")],
    gold: Annotated[str | None, typer.Option(help="gold file: adds the scores")] = None,
    forecast: Annotated[str | None, typer.Option(help="forecast.json, if not where hpd plan puts it")] = None,
    usd_per_hour: Annotated[
        float | None, typer.Option(min=0, help="price of an engine's hour, instead of the run's own")
    ] = None,
    sample: Annotated[int, typer.Option(min=0, max=2000, help="products to show")] = 200,
    seed: Annotated[int, typer.Option(help="of the random ones among them")] = 0,
    out: Annotated[str | None, typer.Option(help="folder for the report, if not the run's")] = None,
    brief: Annotated[bool, typer.Option("--brief", help="say where the report is, nothing else")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object instead of text")] = False,
) -> None:
    """Writes the report and says where it is."""
    wishes = ReportWishes(gold, forecast, usd_per_hour, sample, seed)
    try:
        if usd_per_hour is not None and not math.isfinite(usd_per_hour):
            raise UsageError(f"--usd-per-hour: {usd_per_hour} is no price")
        facts = gather(run, wishes)
        folder = Folder(out if out is not None else run)
        folder.require()
        places = write_report(facts, folder)
    except (UsageError, OSError) as error:
        print(f"Error: {formats.plain(str(error))}", file=sys.stderr)
        raise typer.Exit(EXIT_USAGE) from None
    if as_json:
        data = facts.to_dict() | {"sample": {"seed": seed, "size": facts.sample.size}, "files": places}
        print(json.dumps(data, ensure_ascii=False))
    else:
        print_report(facts, places, brief)
