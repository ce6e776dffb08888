"""Says what a run will cost before it starts: dollars and hours, with an interval.

    hpd plan --config job.yaml --pilot 2000
    hpd plan --config job.yaml --pilot 2000 --deadline 8
    hpd plan --config job.yaml --from-run s3://bucket/enriched/2026-11-20
    hpd plan --config job.yaml --pilot 200 --on g6e.48xlarge --set cost.market=spot

A pilot runs evenly spaced rows of the catalog through the real engine, in <output>.pilot/run; killed, it continues;
finished, the same command only computes anew. Exit codes: 0 clean; 1 stopped, run it again; 2 wrong usage,
configuration or input.
"""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from pipelines.console.exit_codes import EXIT_CLEAN, run_command
from pipelines.errors import UsageError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(help=__doc__.split("\n\n", maxsplit=1)[0] if __doc__ else None)
def plan(
    config: Annotated[str, typer.Option(help="the job's YAML file")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="change a key of the file; may be repeated")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="only N rows, evenly spaced over the catalog")] = None,
    pilot: Annotated[int | None, typer.Option(min=1, help="evenly spaced rows to run")] = None,
    from_run: Annotated[
        str | None, typer.Option(metavar="RUN", help="no pilot: what this finished run's products cost")
    ] = None,
    folder: Annotated[str | None, typer.Option(help="where the pilot is kept; by default <output>.pilot")] = None,
    deadline: Annotated[
        list[float] | None, typer.Option(min=0.01, help="hours in which the run has to be done; may be repeated")
    ] = None,
    utilisation: Annotated[
        float | None, typer.Option(min=0.01, max=1, help="share of an engine's time in which it computes")
    ] = None,
    on: Annotated[
        str | None, typer.Option(metavar="INSTANCE_TYPE", help="a machine that is not at hand: assumed, not measured")
    ] = None,
    efficiency: Annotated[
        float | None, typer.Option(min=0.01, max=1, help="with --on: share of its GPUs' peak; 0.4 if not given")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="the forecast as JSON in the last line of stdout")] = False,
) -> None:
    """Prints the forecast and exits with its code."""
    console = Console(stderr=as_json)

    def work() -> int:
        if (pilot is None) == (from_run is None):
            raise UsageError("one of --pilot N and --from-run RUN is needed")
        if efficiency is not None and on is None:
            raise UsageError("--efficiency goes with --on")
        # Imported here: `--help` and wrong options answer at once, without torch.
        from pipelines.console.terminal import print_notes
        from pipelines.reporting import forecast_text
        from pipelines.reporting.cost_plan import PILOT_RUN, Planner
        from pipelines.reporting.forecast import DEADLINES

        planner = Planner.open(config, overrides or [], limit, folder, on, console, has_pilot=pilot is not None)
        print_notes(console, [*planner.job.warnings, *planner.job.sample_warnings])
        if pilot is not None:
            forecast = planner.from_pilot(pilot, utilisation)
        else:
            forecast = planner.from_run(str(from_run), utilisation)
        forecast, place = planner.store(forecast, on, efficiency)
        hours = deadline or list(DEADLINES)
        forecast_text.print_forecast(console, forecast, hours, place)
        if pilot is not None:
            base = planner.folder.describe(PILOT_RUN)
            console.print(f"The run takes the pilot's answers over with --base {base}", highlight=False, soft_wrap=True)
        answer = forecast_text.forecast_json(forecast, hours, place) | {"left_out": planner.job.left_out.to_dict()}
        if as_json:
            print(json.dumps(answer, ensure_ascii=False))
        return EXIT_CLEAN

    run_command(work)
