"""Check that an input file is still the one that a run was planned for, without reading all of it."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from pipelines.errors import RunError
from pipelines.store.folders import open_filesystem, size_and_etag


def footer_hash(file: Any, size: int) -> str:
    """Return a hash of a Parquet file's footer, which describes the layout of its content."""
    file.seek(-8, os.SEEK_END)
    length = int.from_bytes(file.read(4), "little")
    file.seek(max(0, size - length - 8))
    return hashlib.sha256(file.read()).hexdigest()[:32]


def check_unchanged(uri: str, file_format: str, size: int, fingerprint: str, *, anonymous: bool = False) -> None:
    """Raise `RunError` if the file's size or fingerprint differs from when it was measured.

    The fingerprint of lines on a local disk covers all their bytes, so only the size is compared there.
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
    """Return the error for a file that was changed during the run."""
    return RunError(
        f"{uri} has changed during the run: {what}. Put it back as it was, or extract the new one into another output "
        "folder"
    )
