"""Progress of a labelling: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from pipelines.labelling.label_files import LabelTotals
from pipelines.labelling.under_way import UnderWay


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
