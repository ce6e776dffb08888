"""Input files of a run, found again to be filled in: they must be the same, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from fsspec.implementations.local import LocalFileSystem
from pydantic import ValidationError

from pipelines.catalog.staging import hash_content, measure
from pipelines.config.catalog_input import InputConfig
from pipelines.errors import UsageError
from pipelines.exporting.answers import ExportedProduct
from pipelines.exporting.filled_csv import DelimitedOriginal
from pipelines.exporting.filled_feed import FeedOriginal
from pipelines.exporting.targets import Filler, TargetColumn
from pipelines.job.run_plan import PlannedFile
from pipelines.runs.run import Run
from pipelines.store.folders import open_filesystem

_PACKED = (".gz", ".zst", ".bz2", ".xz", ".lz4")
_DELIMITED = ("csv", "shopify")


class Original(Protocol):
    """Input file of the run that is filled in."""

    @property
    def header(self) -> Sequence[str]:
        """Names of its columns."""

    @property
    def id_columns(self) -> Sequence[str]:
        """Names of the columns that the products' ids are made of."""

    def fill(
        self,
        columns: Sequence[TargetColumn],
        products: Iterator[ExportedProduct],
        filler: Filler,
        overwrites: bool,
        path: Path,
    ) -> None:
        """Write the file to `path` with the products' answers."""


def open_original(
    side: Run, file: PlannedFile, moved_to: str | None, is_one: Callable[[str, Sequence[str], str], bool]
) -> Original | None:
    """Open the file that the run read; return None if it is not of the wanted kind.

    Args:
        moved_to: its present place; None for the place where the run read it.
        is_one: function that tells the kind by format, columns and delimiter.

    Raises `UsageError` if it cannot be read or has changed.
    """
    name = moved_to or file.name
    if file.format not in (*_DELIMITED, "xml"):
        if moved_to is not None:
            raise UsageError(f"--original {name}: the run read {file.name} ({file.format}), which has other rows")
        return None
    config = _input_config(side)
    _check_content(file, moved_to, config.anonymous)
    if file.format == "xml":
        return FeedOriginal(name, config) if is_one("xml", (), "") else None
    original = DelimitedOriginal.open(name, config)
    return original if is_one(file.format, original.header, original.dialect.delimiter) else None


def _input_config(side: Run) -> InputConfig:
    settings = side.input_settings
    fields = settings.get("fields")
    # A plan keeps the fields as pairs: their order counts.
    given = {**settings, "fields": dict(fields) if isinstance(fields, list) else fields}
    try:
        return InputConfig.model_validate(given)
    except ValidationError as error:
        raise UsageError(f"{side.uri}: its input settings have {error.error_count()} errors: {error}") from error


def _check_content(file: PlannedFile, moved_to: str | None, anonymous: bool) -> None:
    name = moved_to or file.name
    filesystem, path = open_filesystem(name, anonymous=anonymous)
    try:
        if moved_to is None:
            found = measure(filesystem, path)
        else:
            found = int(filesystem.info(path)["size"]), _fingerprint_elsewhere(file, filesystem, path)
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror or error
        raise UsageError(
            f"cannot read {name}: {reason}; --original names the file that the run read, if it was moved"
        ) from error
    if found == (file.size, file.fingerprint):
        return
    if moved_to is not None:
        raise UsageError(f"--original {name} is not the file that the run read, {file.name}: its content is another")
    raise UsageError(
        f"{name} has changed since the run; --original names the file that the run read, or run again on this one"
    )


def _fingerprint_elsewhere(file: PlannedFile, filesystem: object, path: str) -> str:
    """Return the plan's fingerprint of a file that was moved; the plan's own one if it cannot be computed."""
    # A remote storage has its own fingerprints for files, which differ at another place.
    is_content = isinstance(open_filesystem(file.name)[0], LocalFileSystem)
    return hash_content(filesystem, path) if is_content else file.fingerprint


def file_names(originals: Iterable[str]) -> dict[str, str]:
    """Return the name of each filled file: the original's without a packer's ending, numbered if names repeat."""
    names: dict[str, str] = {}
    for original in originals:
        leaf = original.rstrip("/").rsplit("/", 1)[-1]
        for ending in _PACKED:
            leaf = leaf.removesuffix(ending)
        name, number = leaf, 1
        while name in names.values():
            number += 1
            stem, dot, suffix = leaf.rpartition(".")
            name = f"{stem}-{number}{dot}{suffix}" if dot else f"{leaf}-{number}"
        names[original] = name
    return names
