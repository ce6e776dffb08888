"""Fine-tunes a model for hyper-parallel decoding.

    hpd finetune --config finetune.yaml
    hpd finetune --config finetune.yaml --set layout=stacked --set optimizer.epochs=5
    hpd finetune --config finetune.yaml --few

Run the same command again to continue a run that was stopped. Ctrl-C (or SIGTERM) keeps a checkpoint first, twice ends
at once. Exit codes: 0 finished; 1 stopped before the end, run it again to continue; 2 wrong
usage, configuration or data; 130 interrupted, run it again to continue.
"""

from __future__ import annotations

import warnings
from typing import Annotated

import typer
from rich.console import Console

from pipelines.console.exit_codes import EXIT_CLEAN, run_command

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(help=__doc__.split("\n\n", maxsplit=1)[0] if __doc__ else None)
def finetune(
    config: Annotated[str, typer.Option(help="the fine-tuning's YAML file")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="change a key of the file; may be repeated")
    ] = None,
    few: Annotated[
        bool,
        typer.Option("--few", help="for some ten to a thousand labelled products: what is not set is chosen for them"),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="read and check the data, say steps, tokens and time; train nothing")
    ] = False,
) -> None:
    """Runs the fine-tuning and exits with its code."""
    console = Console(markup=False, highlight=False, emoji=False, soft_wrap=True)
    # peft asks transformers by a name that is to change.
    warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)

    def work() -> int:
        # Imported here: `--help` and wrong options answer at once, without torch.
        from pipelines.config.finetuning import FinetuneConfig
        from pipelines.config.loading import load_config
        from pipelines.training.few_settings import with_few_labels
        from pipelines.training.finetune_run import run_finetuning

        loaded = load_config(FinetuneConfig, config, overrides or [])
        if few:
            loaded = with_few_labels(loaded, console)
        run_finetuning(loaded, console, dry_run=dry_run)
        return EXIT_CLEAN

    run_command(work)
