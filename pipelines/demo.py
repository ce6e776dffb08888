"""Extracts the shipped sample catalog with the shipped adapter, scores the answers and writes the report.

    hpd demo
    hpd demo --output runs/try --limit 40

Nothing is needed but this package; the embedded model is fetched once. What is done already in the output folder is
not done again. Exit codes: those of extract.py; 2 also where the run does not fit the sample's gold values.
"""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from pipelines.console.exit_codes import EXIT_CLEAN, run_command

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_SHOWN_PRODUCTS = 8


@app.command(help=__doc__.split("\n\n", maxsplit=1)[0] if __doc__ else None)
def demo(
    output: Annotated[str, typer.Option(help="folder of the run: a local path or any fsspec URI")] = "runs/demo",
    limit: Annotated[int | None, typer.Option(min=1, help="only the first N products")] = None,
) -> None:
    """Runs the three steps and exits with the code."""
    run_command(lambda: _run(output, limit))


def _run(output: str, limit: int | None) -> int:
    # Imported here: `--help` and wrong options answer at once, without torch.
    from pipelines.config.catalog_input import shipped_file
    from pipelines.config.extraction import JobConfig
    from pipelines.config.loading import load_config
    from pipelines.job.preflight import plan_job
    from pipelines.job.summary import run_and_tell
    from pipelines.quality.evaluation import evaluate_run
    from pipelines.quality.score_tables import print_brief
    from pipelines.reporting.gather_facts import ReportWishes, gather
    from pipelines.reporting.page import print_report, write_report

    places = {
        "input.path": shipped_file("sample/products.parquet"),
        "schemas": shipped_file("sample/schemas.yaml"),
        "adapter": shipped_file("adapters/smollm2-generalist"),
        "output": output,
    }
    config = load_config(
        JobConfig, shipped_file("configs/demo.yaml"), [f"{key}={json.dumps(value)}" for key, value in places.items()]
    )
    job = plan_job(config, limit)
    code, _ = run_and_tell(job, Console(), show=_SHOWN_PRODUCTS)
    if code != EXIT_CLEAN:
        return code
    gold = shipped_file("sample/gold.jsonl")
    print_brief(Console(markup=False, highlight=False, emoji=False, soft_wrap=True), evaluate_run(output, gold))
    facts = gather(output, ReportWishes(gold))
    print_report(facts, write_report(facts, job.output), brief=True)
    return EXIT_CLEAN
