"""A cascade at several thresholds beside each of its models alone: F1, time and dollars, from whole runs of the job.

    python -m bench.cascade_thresholds --config configs/cascade.yaml --gold sample/gold.jsonl --output runs/thresholds

Prints a table in Markdown. Every engine has one thread, so that an engine's second is the same in all runs, and costs
`--usd-per-engine-hour`; loading apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pipelines.cascading.larger_model import larger_model
from pipelines.config.extraction import JobConfig
from pipelines.config.loading import load_config
from pipelines.costing.pilot import read_metrics
from pipelines.job.driver import run_job
from pipelines.job.preflight import plan_job
from pipelines.job.ray_cluster import ray_cluster
from pipelines.quality.evaluation import evaluate_run
from pipelines.store.folders import Folder
from pipelines.store.totals import Totals

THRESHOLDS = (0.05, 0.2, 0.5, 0.8)
_LARGER = "larger model alone"
_HEAD = (
    *("asked again", "of the answers", "changed", "micro F1 (95%)"),
    *("small model, 1,000 products", "larger model", "both", "cost"),
)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@dataclass(frozen=True, slots=True)
class Measured:
    """One run.

    Attributes:
        below: None for a model alone.
        seconds: of computing, of the small model's engines and the larger one's.
    """

    name: str
    below: float | None
    totals: Totals
    seconds: tuple[float, float]
    f1: tuple[float, float, float]

    def row(self, usd_per_hour: float) -> str:
        """As a line of the table. `usd_per_hour`: of an engine."""
        per_1k = 1000 / self.totals.products
        asked = "" if self.below is None else f"{self.totals.cascade['asked'] / self.totals.cascade['answers']:.0%}"
        changed = "" if self.below is None else f"{self.totals.cascade['changed']:,}"
        value, low, high = self.f1
        cells = (
            *(self.name, asked, changed, f"{value:.3f} ({low:.3f} to {high:.3f})"),
            *(f"{per_1k * seconds:,.0f} s" if seconds else "" for seconds in self.seconds),
            f"{per_1k * sum(self.seconds):,.0f} s",
            f"${per_1k * sum(self.seconds) * usd_per_hour / 3600:.3f}",
        )
        return "| " + " | ".join(cells) + " |"


def configurations(config: JobConfig, below: Sequence[float]) -> Iterator[tuple[str, float | None, JobConfig]]:
    """Name, threshold and job of every run."""
    cascade = config.cascade
    if cascade is None:
        raise SystemExit("the configuration has no cascade")
    one_thread = {"num_threads": 1}
    cascade = cascade.model_copy(update={"actors": cascade.actors.model_copy(update=one_thread)})
    config = config.model_copy(update={"cascade": cascade, "actors": config.actors.model_copy(update=one_thread)})
    yield "small model alone", None, config.model_copy(update={"cascade": None})
    for each in below:
        changed = cascade.model_copy(update={"below": each})
        yield f"below {each:g}", each, config.model_copy(update={"cascade": changed})
    yield _LARGER, None, larger_model(config)


def _seconds(run: str, *, is_larger: bool) -> tuple[float, float]:
    """Of computing, by model. `is_larger`: the run has the larger one alone."""
    first, second = (sum(row["busy_seconds"] for row in read_metrics(Folder(run), number)) for number in (1, 2))
    return (0.0, first) if is_larger else (first, second)


@app.command(help=__doc__.split("\n\n", maxsplit=1)[0] if __doc__ else None)
def main(
    config: Annotated[str, typer.Option(help="a job with a cascade")] = "configs/cascade.yaml",
    gold: Annotated[str, typer.Option(help="the labels")] = "sample/gold.jsonl",
    output: Annotated[str, typer.Option(help="folder of the runs, none of which is done twice")] = "runs/thresholds",
    below: Annotated[list[float] | None, typer.Option(help="a threshold; may be repeated")] = None,
    usd_per_engine_hour: Annotated[float, typer.Option(help="what an engine's hour costs")] = 1.0,
) -> None:
    """Runs what is left of the runs, and prints the table."""
    loaded, console = load_config(JobConfig, config), Console(stderr=True)
    with ray_cluster(2):
        print(f"| {' | '.join(_HEAD)} |")
        print("|---" * len(_HEAD) + "|")
        for name, threshold, job in configurations(loaded, below or THRESHOLDS):
            place = str(Path(output) / name.replace(" ", "-"))
            outcome = run_job(plan_job(job.model_copy(update={"output": place, "executor": "ray"})), console)
            f1 = evaluate_run(place, gold).exact.micro.f1
            seconds = _seconds(place, is_larger=name == _LARGER)
            measured = Measured(name, threshold, outcome.totals, seconds, (f1.value, f1.low, f1.high))
            print(measured.row(usd_per_engine_hour), flush=True)


if __name__ == "__main__":
    app()
