"""Labels a catalog with a teacher: training data, and a gold file, from products without labels.

    hpd label --config label.yaml --limit 20
    hpd label --config label.yaml --set teacher.max_cost_usd=5
    hpd label --split labels/catalog.jsonl

--split asks no teacher: it keeps products of a gold file apart for the test that a fine-tuning is judged by. Beside the
file or into --split-out it writes the lines as they are into NAME.train.jsonl and NAME.test.jsonl, and the products of
the latter as a catalog, NAME.test-products.jsonl, for a job to run over. Which product is for the test depends on
categories and texts alone: variants of one product are on one side, and what was for the test stays so when the gold
file grows, unless its text changes or a sibling comes up.

Run it again to continue: only what is missing is asked. Exit codes: 0 clean; 1 stopped before the end, run it again;
2 wrong usage, configuration, input or teacher; 3 finished, but some products have no labels; 4 stopped at
teacher.max_cost_usd.
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
def label(
    config: Annotated[str | None, typer.Option(help="the job's YAML file")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="change a key of the file; may be repeated")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="only the first N rows of the catalog")] = None,
    retry_rejected: Annotated[
        bool, typer.Option("--retry-rejected", help="ask again about products whose answers were of no use")
    ] = False,
    split: Annotated[str | None, typer.Option(metavar="FILE", help="split this gold file, which has its texts")] = None,
    split_share: Annotated[float, typer.Option(help="of the products that is for the test, between 0 and 1")] = 0.1,
    split_group: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="that variants of one product share; default: near-equal titles"),
    ] = None,
    split_out: Annotated[str | None, typer.Option(help="folder for the files; default: the gold file's own")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="totals as JSON in the last line of stdout")] = False,
) -> None:
    """Runs the job and exits with its code."""
    if split is not None:
        run_command(lambda: _split(split, split_share, split_group, split_out))
    run_command(lambda: _run(config, overrides or [], limit, retry_rejected, as_json))


def _split(gold: str, share: float, group: str | None, out: str | None) -> int:
    from pipelines.quality.gold_split import split_gold
    from pipelines.store.folders import Folder

    folder = out or gold.removesuffix(gold.rsplit("/", 1)[-1]) or "."
    for line in split_gold(gold, share, Folder(folder), group):
        typer.echo(line)
    return EXIT_CLEAN


def _run(config_path: str | None, changes: list[str], limit: int | None, retry_rejected: bool, as_json: bool) -> int:
    if config_path is None:
        raise UsageError("name --config FILE, the job; or --split FILE, a gold file")
    console = Console(stderr=as_json)
    # Imported here: `--help` and wrong options answer at once, without torch.
    from pipelines.config.labelling import LabelConfig
    from pipelines.config.loading import load_config
    from pipelines.labelling.label_files import exit_code, outcome_json, print_outcome
    from pipelines.labelling.label_run import run_labelling

    config = load_config(LabelConfig, config_path, changes)
    outcome = run_labelling(config, console, limit=limit, retry_rejected=retry_rejected)
    print_outcome(console, config, outcome)
    if as_json:
        print(json.dumps(outcome_json(config, outcome), ensure_ascii=False))
    return exit_code(outcome)
