"""Where the files are that come along: the sample catalog, the adapter and the example configurations."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_IN_WHEEL = _PACKAGE / "shipped"  # where pyproject.toml puts them


def shipped_file(name: str) -> str:
    """The path of a file or folder such as "sample/gold.jsonl": in a checkout beside the packages, in an installed
    package inside it. Relative to the working directory where it is below that."""
    path = (_IN_WHEEL if _IN_WHEEL.is_dir() else _PACKAGE.parent) / name
    here = Path.cwd().resolve()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
