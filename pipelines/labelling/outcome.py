"""Outcome of a labelling session: as data, in words, as JSON for machines, and as an exit code."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from pipelines.catalog.listing import LeftOutFiles
from pipelines.config.labelling import LabelConfig
from pipelines.console.exit_codes import EXIT_BUDGET, EXIT_CLEAN, EXIT_INCOMPLETE
from pipelines.console.progress import describe_counts, format_seconds
from pipelines.labelling.label_files import LabelFiles, LabelTotals
from pipelines.labelling.teachers import ENDING
from pipelines.labelling.under_way import UnderWay


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


class LabelProgress:
    """A live bar on a terminal, one plain line every few seconds elsewhere."""

    def __init__(self, console: Console, totals: LabelTotals, num_products: int) -> None:
        self._console, self._totals, self._num_products = console, totals, num_products
        self._started, self._done_before = time.monotonic(), self._done
        self._stack = ExitStack()
        self._bar: Progress | None = None
        self._under_way: UnderWay | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            columns = (SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TextColumn("products{task.description}"))
            self._bar = self._stack.enter_context(Progress(*columns, console=self._console))
            self._task = self._bar.add_task("", total=self._num_products)
        return self

    def __exit__(self, *_: object) -> None:
        self._show()
        self._stack.close()

    async def keep_showing(self, seconds: float, under_way: UnderWay) -> None:
        """Show progress until it is cancelled, beside the work."""
        self._under_way = under_way
        while True:
            await asyncio.sleep(0.25 if self._bar is not None else seconds)
            self._show()
            if self._bar is None:
                now = time.strftime("%H:%M:%S")
                line = f"{now}  {self._done:,} of {self._num_products:,} products{self._pace()}"
                self._console.print(line, highlight=False, soft_wrap=True)

    @property
    def _done(self) -> int:
        return len(self._totals.labelled) + len(self._totals.rejected)

    def _show(self) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, description=self._pace())

    def _pace(self) -> str:
        done, elapsed = self._done - self._done_before, time.monotonic() - self._started
        speed = f", {done / elapsed:,.1f} products/s" if done and elapsed else ""
        cost = f", {format_cost(self._totals.cost_usd)}" if self._totals.cost_usd is not None else ""
        asked = f", {self._under_way.describe()}" if self._under_way is not None else ""
        return f"{speed}, {len(self._totals.rejected):,} rejected{cost}{asked}"


def format_cost(dollars: float | None) -> str:
    """Format dollars: 0.0123 -> "$0.0123", 12.3 -> "$12.30"."""
    if dollars is None:
        return "unknown (no prices in the configuration)"
    return f"${dollars:,.2f}" if dollars >= 1 else f"${dollars:.4f}"
