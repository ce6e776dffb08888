"""Files that a run's exports have written, kept in its folder: a later export writes over these, and over no others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pipelines.errors import UsageError
from pipelines.exporting.outputs import Outputs
from pipelines.store.folders import Folder, open_filesystem

EXPORTS_NAME = "_exports.json"


@dataclass(frozen=True, slots=True)
class EarlierExports:
    """What the exports of a run have written so far.

    Attributes:
        run: its folder.
        forces: any file is replaced.
    """

    run: Folder
    forces: bool

    def check(self, outputs: Outputs, is_written: Callable[[str], bool]) -> None:
        """Raises `UsageError` if a file would be replaced or removed that no export of the run wrote as it is now.

        Args:
            is_written: whether a file of this name will be written in the folder, or removed there.
        """
        if self.forces:
            return
        folder = Folder(outputs.folder)
        try:
            there = [name for name in folder.list("") if is_written(name)]
        except OSError:
            return  # no folder: writing there says what is wrong
        known = self._read() if there else {}
        for name in there:
            key, checksum = _seen(outputs.describe(name))
            if known.get(key) != checksum:
                raise UsageError(
                    f"{outputs.describe(name)} exists already, and is not as an export of this run left it; --force "
                    "writes over it"
                )

    def keep(self, files: Iterable[str]) -> str | None:
        """Remembers files as they are now; what to know if that cannot be."""
        seen = dict(map(_seen, files))
        if not seen:
            return None
        try:
            self.run.write(EXPORTS_NAME, json.dumps({**self._read(), **seen}, ensure_ascii=False).encode())
        except OSError:
            return f"{self.run.uri} cannot be written to: the next export to the same place needs --force."
        return None

    def _read(self) -> dict[str, Any]:
        try:
            known = self.run.read_json(EXPORTS_NAME)
        except ValueError:
            return {}  # damaged: as if nothing had been exported
        return known if isinstance(known, dict) else {}


def _seen(file: str) -> tuple[str, str]:
    """Which file it is, and a mark that changes with it."""
    filesystem, path = open_filesystem(file)
    return f"{type(filesystem).__name__}:{path}", f"{filesystem.checksum(path):x}"
