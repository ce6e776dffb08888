"""Learns the calibration beside the shipped adapter, for catalogs that nobody labelled: each category is a catalog.

    python -m adapters.recipe.calibrate OUT RUN GOLD [RUN GOLD ...]

The runs are of products that the adapter never saw. Prints, of each catalog, what a calibration of the others says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pipelines.job.run_plan import find_finished
from pipelines.quality.answer_features import LabelledAnswer
from pipelines.quality.calibration_file import CalibratedModel
from pipelines.quality.learning import curve_of, learn
from pipelines.quality.run_answers import gold_answers
from pipelines.quality.run_confidence import Decider

app = typer.Typer(add_completion=False)


@app.command()
def main(
    out: Annotated[Path, typer.Argument(help="file of the calibration")],
    runs: Annotated[list[str], typer.Argument(help="runs, each followed by its gold file")],
    precisions: Annotated[str, typer.Option(help="precisions to try, with commas between")] = "0.9,0.8",
) -> None:
    """Learn the calibration. Print first how one learned from the other catalogs does on each."""
    pairs = list(zip(runs[::2], runs[1::2], strict=True))
    model = CalibratedModel.of(find_finished(runs[0])[2]["engine"])
    labels = [
        replace(each, catalog=each.answer.category) for run, gold in pairs for each in gold_answers(run, gold, model)
    ]
    wanted = [float(each) for each in precisions.split(",")]
    for name in sorted({each.answer.category for each in labels}):
        print(_judged(name, labels, model, wanted), flush=True)
    learned = learn(labels, model, {"sources": [{"gold": Path(gold).name} for _, gold in pairs]})
    for precision in wanted:
        print(f"{precision:g}: {Decider(learned, precision).unseen}")
    print({name: learned.about[name] for name in ("labels", "folds", "curve", "log_loss", "ece")})
    out.write_bytes(learned.to_json())


def _judged(name: str, labels: Sequence[LabelledAnswer], model: CalibratedModel, precisions: Sequence[float]) -> str:
    own = [each for each in labels if each.catalog == name]
    learned = learn([each for each in labels if each.catalog != name], model)
    rights, before = [each.is_right for each in own], [each.answer.probability or 0.0 for each in own]
    confidences = [learned.confidence(each.answer) or 0.0 for each in own]
    ece = " -> ".join(f"{curve_of(said, rights).ece:.3f}" for said in (before, confidences))
    accepted = []
    for precision in precisions:
        unseen = Decider(learned, precision).unseen
        taken = [right for sure, right in zip(confidences, rights, strict=True) if unseen and sure >= unseen.confidence]
        accepted.append(f"at {precision:g} {sum(taken)} of {len(taken)} right")
    return f"{name}: {len(own)} values, ECE {ece}; accepted {', '.join(accepted)}"


if __name__ == "__main__":
    app()
