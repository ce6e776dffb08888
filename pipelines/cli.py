"""The `hpd` command: every command of this folder under one name, `hpd extract` for `python pipelines/extract.py`.

A command's module is imported when the command is called, not before: `hpd --help` and completion answer at once.
"""

from __future__ import annotations

import importlib
from typing import Any

import typer
from typer.core import TyperGroup

COMMANDS = {
    "Start": {
        "init": "write a config and schemas for your own catalog",
        "demo": "extract the shipped sample, score it, report on it",
    },
    "Before a run": {
        "schema": "make, check and compare the attributes to ask for",
        "plan": "forecast dollars and hours from a small pilot",
    },
    "Run": {
        "extract": "extract attribute values from a catalog",
        "status": "tell how far a run is",
        "normalise": "bring a run's values to units and vocabularies, anew",
        "serve": "fill in JSON schemas for clients of OpenAI's API",
    },
    "Judge": {
        "report": "show cost, quality and products of a run on a page",
        "review": "have people look at answers, the least certain first",
        "evaluate": "score a run, compare two, calibrate, or ask a judge",
    },
    "Use": {
        "export": "write the answers as files that other systems take",
    },
    "Improve": {
        "label": "have a teacher label products, split them for a test",
        "finetune": "fine-tune the model on labelled products",
        "teach": "label some products, fine-tune and judge, in rounds",
    },
}
"""Groups of commands by the user's task, each command with a line of help."""


class _Commands(TyperGroup):
    """Command group that lists commands by name and line, and imports only the one that is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, known, rest = super().resolve_command(ctx, args)
        if known is None or name is None:
            return name, known, rest
        return name, typer.main.get_command(importlib.import_module(f"pipelines.{name}").app), rest

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands in their groups, and the options in a line, so that all fits one screen."""
        for group, commands in COMMANDS.items():
            for index, (name, line) in enumerate(commands.items()):
                formatter.write(f"  {group if index == 0 else '':<14}{name:<10}{line}\n")
        formatter.write(f"  {'Shell':<14}--install-completion, --show-completion: for bash, zsh and fish\n")


app = typer.Typer(
    cls=_Commands,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    subcommand_metavar="COMMAND ...",
    help="Attribute values for whole catalogs. `hpd COMMAND --help` says more.",
)


def _is_imported_when_called() -> None:
    """Serve as placeholder for a command until `resolve_command` has imported it."""


for _commands in COMMANDS.values():
    for _name, _line in _commands.items():
        app.command(_name, help=_line)(_is_imported_when_called)


def main() -> None:
    """Run `hpd`."""
    app(prog_name="hpd")


if __name__ == "__main__":
    main()
