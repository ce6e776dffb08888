"""Damaged files of a run's folder: reported by name, with what to do, whoever reads them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pipelines.errors import UsageError
from pipelines.store.folders import Folder

_MAX_REASON = 200  # characters
_WAY_OUT = "Restore the file from a copy of the run, or extract anew into another output folder"


@contextmanager
def named_damage(folder: Folder, name: str, way_out: str = _WAY_OUT) -> Iterator[None]:
    """Raise `UsageError` if reading the object in the block fails because it is damaged or has another format."""
    try:
        yield
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:_MAX_REASON]
        raise UsageError(
            f"cannot read {folder.describe(name)}: it is damaged, or of another version of this project ({reason}). "
            f"{way_out}"
        ) from error
