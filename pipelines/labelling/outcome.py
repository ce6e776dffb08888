"""How a labelling session ended: as data, in words, as JSON for machines, and as an exit code."""

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
    """How a session ended.

    Attributes:
        chosen: rows that this session was to label.
        asked: products that the teacher was asked about in this session.
        was_finished: nothing was left to do.
        stopped: why the money's limit stopped it; None if it went to the end.
        faults: error answers of the endpoint that were overcome or not, by HTTP status.
        left_out: what lies in the input folders and is not read.
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
        """Rows that were chosen for labelling, now or by an earlier session that chose more."""
        return max(self.chosen, len(self.totals.labelled) + len(self.totals.rejected))

    @property
    def open_products(self) -> int:
        """Of these, neither labelled nor rejected yet, or without their second question."""
        unasked = sum(reason in ENDING for reason in self.totals.rejected.values())
        return self.products - len(self.totals.labelled) - len(self.totals.rejected) + unasked


def exit_code(outcome: LabelOutcome) -> int:
    """0, 3 if products have no labels, 4 if the money's limit stopped the run."""
    if outcome.stopped is not None:
        return EXIT_BUDGET
    return EXIT_INCOMPLETE if outcome.totals.rejected else EXIT_CLEAN


def print_outcome(console: Console, config: LabelConfig, outcome: LabelOutcome) -> None:
    """What happened, and where the labels are."""
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
    """The totals for machines."""
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
