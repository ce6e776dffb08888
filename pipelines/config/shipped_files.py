"""Location of the shipped files: the sample catalog, the adapter and the example configurations."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_IN_WHEEL = _PACKAGE / "shipped"  # where pyproject.toml puts them


def shipped_file(name: str) -> str:
    """Return the path of a file or folder such as "sample/gold.jsonl": beside the packages in a checkout, inside an
    installed package. Paths below the working directory are relative to it."""
    path = (_IN_WHEEL if _IN_WHEEL.is_dir() else _PACKAGE.parent) / name
    here = Path.cwd().resolve()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
