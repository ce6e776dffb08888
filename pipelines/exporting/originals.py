"""The files that a run read, found again to be filled in: the same, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from fsspec.implementations.local import LocalFileSystem
from pydantic import ValidationError

from pipelines.catalog.staging import hash_content, measure
from pipelines.comparing.compared_run import Side
from pipelines.config.catalog_input import InputConfig
from pipelines.errors import UsageError
from pipelines.exporting.answers import ExportedProduct
from pipelines.exporting.filled_csv import DelimitedOriginal
from pipelines.exporting.filled_feed import FeedOriginal
from pipelines.exporting.targets import Filler, TargetColumn
from pipelines.job.run_plan import PlannedFile
from pipelines.store.folders import open_filesystem

_PACKED = (".gz", ".zst", ".bz2", ".xz", ".lz4")
_DELIMITED = ("csv", "shopify")


class Original(Protocol):
    """A file that the run read, and that is filled in."""

    @property
    def header(self) -> Sequence[str]:
        """Names of its columns."""

    @property
    def id_columns(self) -> Sequence[str]:
        """Those of them that the products' ids are made of."""

    def fill(
        self,
        columns: Sequence[TargetColumn],
        products: Iterator[ExportedProduct],
        filler: Filler,
        overwrites: bool,
        path: Path,
    ) -> None:
        """Writes it to `path` with the products' answers."""


def open_original(
    side: Side, file: PlannedFile, moved_to: str | None, is_one: Callable[[str, Sequence[str], str], bool]
) -> Original | None:
    """The file that the run read; None if it is not one of the wanted kind.

    Args:
        moved_to: where it is now; None for where it was.
        is_one: says so by the format, the columns and the delimiter.

    Raises `UsageError` if it is another file by now.
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


def _input_config(side: Side) -> InputConfig:
    settings = side.run.input_settings
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
    """What the plan would have of a file that lies elsewhere now; where that cannot be told, what the plan has."""
    # A remote storage has marks of its own for its files, which say nothing of them at another place.
    is_content = isinstance(open_filesystem(file.name)[0], LocalFileSystem)
    return hash_content(filesystem, path) if is_content else file.fingerprint


def file_names(originals: Iterable[str]) -> dict[str, str]:
    """What each filled file is called: as it was, without the ending of a packer; numbered where names are doubled."""
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
