"""Extracts attribute values from a catalog.

    python pipelines/extract.py --config configs/demo.yaml
    python pipelines/extract.py --config job.yaml --set engine.layout=stacked --limit 1000 --dry-run
    ray job submit --address http://head:8265 --working-dir . -- python pipelines/extract.py --config job.yaml

Exit codes: 0 clean; 1 stopped before the end, run it again to continue; 2 wrong usage, configuration or
input; 3 finished, but with more dead-lettered rows than the configuration allows, or counts that do not add up;
4 stopped because the budget is spent, a larger one continues; 130 interrupted (Ctrl-C or SIGTERM), run it again to
continue.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer
from rich.console import Console

from pipelines.console.exit_codes import EXIT_CLEAN, run_command

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(help=__doc__.split("\n\n", maxsplit=1)[0] if __doc__ else None)
def extract(
    config: Annotated[str, typer.Option(help="the job's YAML file")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="change a key of the file; may be repeated")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="only N rows, evenly spaced over the catalog")] = None,
    first: Annotated[int | None, typer.Option(min=1, help="only the first N rows")] = None,
    run_id: Annotated[str | None, typer.Option(help="name of the run")] = None,
    base: Annotated[
        str | None, typer.Option(metavar="RUN", help="take over what has not changed since this earlier run")
    ] = None,
    retry_failed: Annotated[
        str | None, typer.Option(metavar="RUN", help="take only the dead-lettered rows of this earlier run")
    ] = None,
    max_cost_usd: Annotated[
        float | None, typer.Option(min=0, help="stop when the run's engines have cost so much")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="check and plan, start nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="totals as JSON in the last line of stdout")] = False,
    show: Annotated[int, typer.Option(min=0, help="print the attributes of N products at the end")] = 0,
) -> None:
    """Runs the job and exits with its code."""
    console = Console(stderr=as_json)
    named = {"run_id": run_id, "base": base, "retry_failed": retry_failed, "cost.max_usd": max_cost_usd}
    changes = [*(overrides or []), *(f"{key}={json.dumps(value)}" for key, value in named.items() if value is not None)]
    if limit is not None and first is not None:
        raise typer.BadParameter("--limit and --first exclude each other")

    def work() -> int:
        # Imported here: `--help` and wrong options answer at once, without torch.
        from pipelines.config.extraction import JobConfig
        from pipelines.config.loading import load_config
        from pipelines.job import summary
        from pipelines.job.named_models import check_named, wanted_confidence
        from pipelines.job.preflight import count_categories, plan_job
        from pipelines.job.summary import run_and_tell

        job = plan_job(load_config(JobConfig, config, changes), limit or first, is_spread=limit is not None)
        if dry_run:
            if job.is_new:
                check_named(job.config, wanted_confidence(job.config))
            counts = count_categories(job.plan, job.config.input, job.schemas)
            summary.print_plan(console, job, counts)
            answer, code = summary.plan_json(job, counts), EXIT_CLEAN
        else:
            code, answer = run_and_tell(job, console, show=show)
        if as_json:
            print(json.dumps(answer, ensure_ascii=False))
        return code

    run_command(work)


if __name__ == "__main__":
    app()
