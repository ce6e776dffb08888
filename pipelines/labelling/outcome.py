"""Outcome of a labelling session: as data, in words, as JSON for machines, and as an exit code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from pipelines.catalog.left_out import LeftOutFiles
from pipelines.config.labelling import LabelConfig
from pipelines.console.exit_codes import EXIT_BUDGET, EXIT_CLEAN, EXIT_INCOMPLETE
from pipelines.console.progress import describe_counts, format_seconds
from pipelines.labelling.label_files import LabelFiles, LabelTotals
from pipelines.labelling.progress_lines import format_cost
from pipelines.labelling.teachers import ENDING


@dataclass(frozen=True, slots=True)
class LabelOutcome:
    """Outcome of a session.

    Attributes:
        chosen: number of rows that this session was to label.
        asked: number of products that the teacher was asked about in this session.
        was_finished: whether nothing was left to do.
        stopped: reason why the budget stopped it; None if it reached the end.
        faults: number of the endpoint's error answers, resolved or not, by HTTP status.
        left_out: files in the input folders that are not read.
    """

    totals: LabelTotals
    chosen: int
    asked: int
    seconds: float
    faults: Mapping[str, int]
    was_finished: bool = False
    stopped: str | None = None
    left_out: LeftOutFiles = field(default_factory=LeftOutFiles)

    @property
    def products(self) -> int:
        """Number of rows chosen for labelling, now or by an earlier session that chose more."""
        return max(self.chosen, len(self.totals.labelled) + len(self.totals.rejected))

    @property
    def open_products(self) -> int:
        """Number of them that are neither labelled nor rejected yet, or lack their second question."""
        unasked = sum(reason in ENDING for reason in self.totals.rejected.values())
        return self.products - len(self.totals.labelled) - len(self.totals.rejected) + unasked


def exit_code(outcome: LabelOutcome) -> int:
    """Return 0, 3 if products have no labels, or 4 if the budget stopped the run."""
    if outcome.stopped is not None:
        return EXIT_BUDGET
    return EXIT_INCOMPLETE if outcome.totals.rejected else EXIT_CLEAN


def print_outcome(console: Console, config: LabelConfig, outcome: LabelOutcome) -> None:
    """Print what happened, and where the labels are."""
    totals = outcome.totals

    def say(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True, markup=False)

    if outcome.was_finished:
        say(f"{config.output} is finished already; nothing was done.")
    speed = ""
    if outcome.asked:
        pace = outcome.asked / outcome.seconds
        speed = f"; {outcome.asked:,} asked in {format_seconds(outcome.seconds)} ({pace:,.2f} products/s)"
    say(f"{len(totals.labelled):,} labelled and {len(totals.rejected):,} rejected of {outcome.products:,}{speed}")
    data = totals.to_dict()
    count = totals.values + totals.absent + totals.unlabelled
    share = f" ({totals.values / count:.0%} value, {totals.absent / count:.0%} absent)" if count else ""
    say(f"  attributes  {describe_counts(data['values'])}{share}")
    say(f"  problems    {describe_counts(data['problems'])}")
    say(f"  rejected    {describe_counts(data['rejected_by_reason'])}")
    if outcome.faults:
        say(f"  faults      {describe_counts({f'HTTP {code}': count for code, count in outcome.faults.items()})}")
    if config.teacher.kind == "openai":
        say(f"  tokens      {totals.input_tokens:,} in, {totals.output_tokens:,} out")
        say(f"  cost        {format_cost(totals.cost_usd)}")
    if outcome.left_out.files:
        say(f"  left out    {outcome.left_out}")
    say(f"  labels      {config.output}")
    if totals.rejected:
        say(f"  rejections  {config.output}{LabelFiles.REJECTED_SUFFIX}")
    if outcome.stopped is not None:
        say(
            f"Stopped at teacher.max_cost_usd: {outcome.stopped}. {outcome.open_products:,} products are left: "
            "raise it and run the same command again to go on."
        )


def outcome_json(config: LabelConfig, outcome: LabelOutcome) -> dict[str, Any]:
    """Return the totals for machines."""
    return {
        "output": config.output,
        "exit_code": exit_code(outcome),
        "was_finished": outcome.was_finished,
        "stopped": outcome.stopped,
        "products": outcome.products,
        "asked": outcome.asked,
        "open": outcome.open_products,
        "seconds": round(outcome.seconds, 3),
        "faults": dict(outcome.faults),
        "left_out": outcome.left_out.to_dict(),
        **outcome.totals.to_dict(),
    }
