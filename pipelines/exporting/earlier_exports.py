"""Record of files that a run's exports have written, kept in its folder: a later export replaces only these."""

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
    """Files written so far by the exports of a run.

    Attributes:
        run: folder of the run.
        forces: whether any file may be replaced.
    """

    run: Folder
    forces: bool

    def check(self, outputs: Outputs, is_written: Callable[[str], bool]) -> None:
        """Raise `UsageError` if a file would be replaced or removed that is not as an export of the run wrote it.

        Args:
            is_written: function that tells whether a file of a name will be written in the folder, or removed there.
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
        """Record files as they are now; return a note if they cannot be recorded, else None."""
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
    """Return a file's key, and a checksum that changes with it."""
    filesystem, path = open_filesystem(file)
    return f"{type(filesystem).__name__}:{path}", f"{filesystem.checksum(path):x}"
