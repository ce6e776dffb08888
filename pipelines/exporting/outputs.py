"""Places of an export's files. Each is written on the local disk, and gets its place when complete."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipelines.errors import UsageError
from pipelines.job.run import Run
from pipelines.store.folders import Folder
from pipelines.store.ledger import PLAN_NAME

_ENDINGS = (".csv", ".tsv", ".txt", ".xlsx", ".xls", ".parquet", ".jsonl", ".json", ".xml")
DEFAULT_FOLDER = "export"
"""Default folder, in the run's own; the only one there that exports may write to."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """Folder for files, or the one file that the user named.

    Attributes:
        folder: local path or any fsspec URI.
        file: name of the only file; None if there may be several.
    """

    folder: str
    file: str | None

    @classmethod
    def of(cls, out: str, suffix: str) -> Outputs:
        """Return the outputs for `out`: a file if its name ends with `suffix`, else a folder.

        Raises `UsageError` for the name of a file of another kind, unless a folder of that name exists.
        """
        if not out.lower().endswith(suffix):
            if suffix != "." and out.lower().endswith(_ENDINGS) and not Folder(out).is_folder():
                raise UsageError(f"--out {out}: this kind of file ends with {suffix}; name one that does, or a folder")
            return cls(out.rstrip("/") or out, None)
        folder, _, name = out.rpartition("/")
        return cls(folder or ("/" if out.startswith("/") else "."), name)

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield a path to write a file to; after the block it gets its name. An error in the block leaves nothing.

        Raises `UsageError` if the file cannot be put there.
        """
        try:
            with tempfile.TemporaryDirectory(prefix="hpd-export-") as scratch:
                path = Path(scratch, "file")
                yield path
                Folder(self.folder).put(str(path), name)
        except OSError as error:
            raise UsageError(f"cannot write {self.describe(name)}: {error.strerror or error}") from error

    def describe(self, name: str) -> str:
        """Return the file's path as a user would write it."""
        return name if self.folder == "." else f"{self.folder.rstrip('/')}/{name}"


def check_destination(
    side: Run, original: str | None, outputs: Outputs, names: Iterable[str], forces: bool = False
) -> None:
    """Raise `UsageError` if a file would lie among a run's own files, replace one that the run read or, without
    `forces`, any outside of the run's folder for exports.

    Args:
        original: file that was named instead of the run's input.
        names: files that will be written.
    """
    folder, own = _real(outputs.folder), _real(f"{side.uri}/{DEFAULT_FOLDER}")
    is_own = f"{folder}/".startswith(f"{own}/")
    if not is_own and _is_in_a_run(folder):
        raise UsageError(
            f"--out: {outputs.folder} is in the folder of a run, beside its own files; name another place, or none for "
            f"{side.uri}/{DEFAULT_FOLDER}"
        )
    read = {_real(name) for name in [*(file.name for file in side.plan.files), *filter(None, [original])]}
    for name in names:
        if _real(f"{folder}/{name}") in read:
            raise UsageError(f"--out: {outputs.describe(name)} is the file that the run read; name another place")
        if not (is_own or forces) and Folder(outputs.folder).exists(name):
            raise UsageError(f"{outputs.describe(name)} exists already; --force writes over it")


def _is_in_a_run(place: str) -> bool:
    outer, _, _ = place.rpartition("/")
    return Folder(place).exists(PLAN_NAME) or (outer.strip("/:") not in ("", "file", "s3") and _is_in_a_run(outer))


def _real(uri: str) -> str:
    folder = Folder(uri)
    return os.path.realpath(folder.absolute_uri) if folder.is_local else folder.absolute_uri
