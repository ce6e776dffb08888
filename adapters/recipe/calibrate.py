"""Learns the calibration beside the shipped adapter, for catalogs that nobody labelled: each category is a catalog.

    python -m adapters.recipe.calibrate OUT RUN GOLD [RUN GOLD ...]

The runs are of products that the adapter never saw.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pipelines.job.run_plan import find_finished
from pipelines.quality.calibration_file import CalibratedModel
from pipelines.quality.learning import learn
from pipelines.quality.run_answers import gold_answers
from pipelines.reviewing.learned_calibration import Learned, print_learned

app = typer.Typer(add_completion=False)


@app.command()
def main(
    out: Annotated[Path, typer.Argument(help="file of the calibration")],
    runs: Annotated[list[str], typer.Argument(help="runs, each followed by its gold file")],
) -> None:
    """Learn it, and print what it says and promises of each catalog, learned from the others."""
    pairs = list(zip(runs[::2], runs[1::2], strict=True))
    model = CalibratedModel.of(find_finished(runs[0])[2]["engine"])
    labels = [
        replace(each, catalog=each.answer.category) for run, gold in pairs for each in gold_answers(run, gold, model)
    ]
    about = {"sources": [{"gold": gold} for _, gold in pairs], "labels_of_earlier_definitions": 0}
    learned = Learned(learn(labels, model, about), str(out))
    for precision in (0.95, 0.9, 0.8):
        print_learned(Console(), learned, precision)
    out.write_bytes(learned.calibration.to_json())


if __name__ == "__main__":
    app()
