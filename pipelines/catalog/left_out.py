"""Input files that are not read: counted and named, for people and for programs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipelines.catalog.file_kinds import FileKind

_SHOWN = 3
_KEPT_NAMES = 20


class LeftOutFile(NamedTuple):
    """A file or folder (name with a trailing slash) that is not read."""

    name: str
    kind: FileKind


@dataclass(frozen=True, slots=True)
class LeftOutFiles:
    """All files that are not read.

    Attributes:
        files: files of kinds that are not read.
        doubled: further names of files and folders that are read once, each with the first name.
    """

    files: Sequence[LeftOutFile] = ()
    doubled: Sequence[tuple[str, str]] = ()

    def __str__(self) -> str:
        return ", ".join(f"{len(names):,} {what} ({listed_names(names)})" for what, names in self._by_kind().items())

    def to_dict(self) -> dict[str, Any]:
        """Return counts by kind, each with the first names, and the number of repeated names."""
        return {
            "files": len(self.files),
            "kinds": {
                what: {"files": len(names), "first": [shown_name(name) for name in names[:_KEPT_NAMES]]}
                for what, names in self._by_kind().items()
            },
            "named_again": len(self.doubled),
        }

    def warnings(self) -> Iterator[str]:
        """Yield a line for every kind that may hold rows of the catalog, and one about files that are named again."""
        names, remedies = self._by_kind(), self.remedies()
        for what, remedy in remedies.items():
            yield f"not read: {len(names[what]):,} {what} ({listed_names(names[what])}). To have it read, {remedy}"
        if self.doubled:
            again, first = map(shown_name, self.doubled[0])
            shown = again if again == first else f"{again} is {first}"
            yield f"{len(self.doubled):,} files or folders are named twice and read once: {shown}"

    def remedies(self) -> dict[str, str]:
        """Return what makes each kind readable that may hold rows of the catalog."""
        first = {file.kind.what: file for file in reversed(self.files) if file.kind.is_data}
        return {what: each.kind.remedy(each.name) for what, each in first.items()}

    def _by_kind(self) -> dict[str, list[str]]:
        names = defaultdict(list)
        for file in sorted(self.files, key=lambda file: not file.kind.is_data):
            names[file.kind.what].append(file.name)
        return names


def shown_name(name: str) -> str:
    """Return a file's name as text, with bytes that are not UTF-8 escaped."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")


def listed_names(names: Sequence[str]) -> str:
    """Return the first of many names, and how many more there are."""
    shown = ", ".join(map(shown_name, names[:_SHOWN]))
    return shown if len(names) <= _SHOWN else f"{shown}, and {len(names) - _SHOWN:,} more"
