"""Whether an input file is still the one that a run was planned by, told without reading all of it."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from pipelines.errors import RunError
from pipelines.store.folders import open_filesystem, size_and_etag


def footer_hash(file: Any, size: int) -> str:
    """A hash of a Parquet file's footer, which says what lies where in it."""
    file.seek(-8, os.SEEK_END)
    length = int.from_bytes(file.read(4), "little")
    file.seek(max(0, size - length - 8))
    return hashlib.sha256(file.read()).hexdigest()[:32]


def check_unchanged(uri: str, file_format: str, size: int, fingerprint: str, *, anonymous: bool = False) -> None:
    """Raises `RunError` if the file has another size than when it was measured, or another fingerprint.

    Of lines on a local disk the fingerprint is of all of them: there the size alone is compared.
    """
    filesystem, path = open_filesystem(uri, anonymous=anonymous)
    try:
        now, mark = size_and_etag(filesystem, path)
        if mark is None and file_format == "parquet" and now == size:
            with filesystem.open(path, "rb", cache_type="none") as file:
                mark = footer_hash(file, size)
    except OSError as error:
        raise RunError(f"cannot read {uri}: {error}") from error
    if now != size or (mark is not None and mark != fingerprint):
        raise changed(uri)


def changed(uri: str, what: str = "it is another file than the run was planned by") -> RunError:
    """What is said of a file that somebody has written to."""
    return RunError(
        f"{uri} has changed during the run: {what}. Put it back as it was, or extract the new one into another output "
        "folder"
    )
