"""Catalog text on a terminal: characters that would steer the terminal are shown as "�"."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from rich.console import Console, ConsoleOptions, OverflowMethod, RenderResult
from rich.markdown import Markdown, MarkdownElement, TableElement
from rich.markup import escape
from rich.table import Table

_STEERING = {code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    """Return `text` without control characters (an escape sequence in a title could rewrite the screen)."""
    return text.translate(_STEERING)


def data_console(*, soft_wrap: bool = False) -> Console:
    """Return a console for product text: brackets are not markup. Without a terminal, the width is 160, not 80."""
    width = None if sys.stdout.isatty() else 160
    return Console(markup=False, highlight=False, emoji=False, width=width, soft_wrap=soft_wrap)


class _FoldedTable(TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            assert isinstance(table, Table)
            for column in table.columns:
                column.overflow = "fold"  # rich cuts long words, and two of them may differ at their ends
            yield table


class FoldedMarkdown(Markdown):
    """Markdown whose tables lose no text in a narrow terminal."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "table_open": _FoldedTable}


def quoted_markup(text: str) -> str:
    """Return text of a catalog, or of a user, for a line with markup: printable, its brackets no markup."""
    return escape(printable(text))


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines with markup, numbers in no other colour, none of them wrapped."""
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)


def print_notes(console: Console, notes: Iterable[str]) -> None:
    """Print notes for whoever watches, one line each."""
    print_lines(console, (f"[bold yellow]Note:[/] {quoted_markup(note)}" for note in notes))


def print_beginning(console: Console, what: str) -> None:
    """Print what is being waited for before work can start."""
    print_lines(console, [f"starting: {quoted_markup(what)}"])


class SafeTable(Table):
    """A table whose cells may come from a catalog."""

    def add_column(self, *arguments: Any, overflow: OverflowMethod = "fold", **options: Any) -> None:
        """Add a column as rich does, but fold long words: if they were cut, two names could look alike."""
        super().add_column(*arguments, overflow=overflow, **options)

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Add a row as rich does, with every text cell made printable."""
        super().add_row(*(printable(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def titled_table(title: str, texts: Sequence[str], numbers: Sequence[str]) -> SafeTable:
    """Return a table under its title, with columns of texts, then of right-aligned numbers."""
    table = SafeTable(title=title, title_justify="left")
    for name in texts:
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def dollars(value: float) -> str:
    """Format dollars with three significant digits, or with cents from a dollar on and whole dollars from 1,000 on."""
    if value < 0:
        return f"-{dollars(-value)}"
    if value == 0 or round(value, 2) >= 1000:
        return f"${abs(value):,.0f}"
    return f"${value:,.2f}" if round(value, 3) >= 1 else f"${three_digits(value)}"


def three_digits(value: float) -> str:
    """Format a number with three significant digits, zeros included: 0.160, 0.0329, 2.61, 35.7."""
    if value == 0:
        return "0"
    decimals = 2 - math.floor(math.log10(abs(value)))
    return f"{value:.{decimals}f}" if decimals <= 8 else f"{value:.2g}"


def rows_table(title: str, texts: Sequence[str], numbers: Sequence[str], rows: Iterable[Sequence[str]]) -> SafeTable:
    """Return a `titled_table` with rows."""
    table = titled_table(title, texts, numbers)
    for row in rows:
        table.add_row(*row)
    return table
