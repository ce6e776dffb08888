"""Catalog text on a terminal: characters that would steer the terminal are shown as "�"."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, OverflowMethod
from rich.markup import escape
from rich.table import Table

_STEERING = {code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    """Return `text` without control characters (an escape sequence in a title could rewrite the screen)."""
    return text.translate(_STEERING)


def data_console() -> Console:
    """Return a console for product text: brackets are not markup. Without a terminal, the width is 160, not 80."""
    return Console(markup=False, highlight=False, emoji=False, width=None if sys.stdout.isatty() else 160)


def print_notes(console: Console, notes: Iterable[str]) -> None:
    """Print notes for whoever watches, one line each."""
    for note in notes:
        console.print(f"[bold yellow]Note:[/] {escape(printable(note))}", highlight=False, soft_wrap=True)


def print_beginning(console: Console, what: str) -> None:
    """Print what is being waited for before work can start."""
    console.print(f"starting: {escape(printable(what))}", highlight=False, soft_wrap=True)


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
