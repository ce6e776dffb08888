"""Labels a catalog with a teacher: training data, and a gold file, from products without labels.

    python pipelines/label.py --config label.yaml --limit 20
    python pipelines/label.py --config label.yaml --set teacher.max_cost_usd=5

Run it again to continue: only what is missing is asked. Exit codes: 0 clean; 1 stopped before the end, run it again;
2 wrong usage, configuration, input or teacher; 3 finished, but some products have no labels; 4 stopped at
teacher.max_cost_usd.
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

from pipelines.console.exit_codes import run_command

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(help=__doc__.split("\n\n", maxsplit=1)[0] if __doc__ else None)
def label(
    config: Annotated[str, typer.Option(help="the job's YAML file")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="change a key of the file; may be repeated")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="only the first N rows of the catalog")] = None,
    retry_rejected: Annotated[
        bool, typer.Option("--retry-rejected", help="ask again about products whose answers were of no use")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="totals as JSON in the last line of stdout")] = False,
) -> None:
    """Runs the job and exits with its code."""
    console = Console(stderr=as_json)
    run_command(lambda: _run(console, config, overrides or [], limit, retry_rejected, as_json))


def _run(
    console: Console, config_path: str, changes: list[str], limit: int | None, retry_rejected: bool, as_json: bool
) -> int:
    # Imported here: `--help` and wrong options answer at once, without torch.
    from pipelines.config.labelling import LabelConfig
    from pipelines.config.loading import load_config
    from pipelines.labelling.driver import run_labelling
    from pipelines.labelling.outcome import exit_code, outcome_json, print_outcome

    config = load_config(LabelConfig, config_path, changes)
    outcome = run_labelling(config, console, limit=limit, retry_rejected=retry_rejected)
    print_outcome(console, config, outcome)
    if as_json:
        print(json.dumps(outcome_json(config, outcome), ensure_ascii=False))
    return exit_code(outcome)


if __name__ == "__main__":
    app()
