"""A cascade at several thresholds beside each of its models alone: F1, time and dollars, from whole runs of the job.

    python -m bench.cascade_thresholds --config configs/cascade.yaml --gold sample/gold.jsonl --output runs/thresholds

Prints a table in Markdown. Every engine has one thread, so that an engine's second is the same in all runs, and costs
`--usd-per-engine-hour`; loading apart.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from pipelines.cascading.larger_model import larger_model
from pipelines.config.extraction import JobConfig
from pipelines.config.loading import load_config
from pipelines.job.driver import run_job
from pipelines.job.preflight import plan_job
from pipelines.job.ray_cluster import ray_cluster
from pipelines.quality.evaluation import evaluate_run
from pipelines.store.totals import Totals


@dataclass(frozen=True, slots=True)
class Measured:
    """One run. `below`: None for a model alone."""

    name: str
    below: float | None
    totals: Totals
    f1: tuple[float, float, float]

    def row(self, usd_per_hour: float) -> str:
        """As a line of the table. `usd_per_hour`: of an engine."""
        metrics, products = self.totals.metrics, self.totals.products
        asked = "" if self.below is None else f"{self.totals.cascade['asked'] / self.totals.cascade['answers']:.0%}"
        changed = "" if self.below is None else f"{self.totals.cascade['changed']:,}"
        value, low, high = self.f1
        cells = (
            *(self.name, asked, changed, f"{value:.3f} ({low:.3f} to {high:.3f})"),
            f"{1000 * metrics['busy_seconds'] / products:,.0f} s",
            f"${1000 * metrics['busy_seconds'] / products * usd_per_hour / 3600:.3f}",
        )
        return "| " + " | ".join(cells) + " |"


def configurations(config: JobConfig, below: list[float]) -> Iterator[tuple[str, float | None, JobConfig]]:
    """Name, threshold and job of every run."""
    cascade = config.cascade
    if cascade is None:
        raise SystemExit("the configuration has no cascade")
    one_thread = {"num_threads": 1}
    cascade = cascade.model_copy(update={"actors": cascade.actors.model_copy(update=one_thread)})
    config = config.model_copy(update={"cascade": cascade, "actors": config.actors.model_copy(update=one_thread)})
    yield "first model alone", None, config.model_copy(update={"cascade": None})
    for each in below:
        changed = cascade.model_copy(update={"below": each})
        yield f"below {each:g}", each, config.model_copy(update={"cascade": changed})
    yield "larger model alone", None, larger_model(config)


def main() -> None:
    """Runs what is left of the runs, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="configs/cascade.yaml")
    parser.add_argument("--gold", default="sample/gold.jsonl")
    parser.add_argument("--output", default="runs/thresholds")
    parser.add_argument("--below", type=float, nargs="+", default=[0.05, 0.2, 0.5, 0.8])
    parser.add_argument("--usd-per-engine-hour", type=float, default=1.0)
    arguments = parser.parse_args()
    config, console = load_config(JobConfig, arguments.config), Console(stderr=True)
    with ray_cluster(2):
        print("| asked again | of the answers | changed | micro F1 (95%) | computing, 1,000 products | cost of it |")
        print("|---|---|---|---|---|---|")
        for name, below, job in configurations(config, arguments.below):
            output = str(Path(arguments.output) / name.replace(" ", "-"))
            outcome = run_job(plan_job(job.model_copy(update={"output": output})), console)
            f1 = evaluate_run(output, arguments.gold).exact.micro.f1
            measured = Measured(name, below, outcome.totals, (f1.value, f1.low, f1.high))
            print(measured.row(arguments.usd_per_engine_hour), flush=True)


if __name__ == "__main__":
    main()
