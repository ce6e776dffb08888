"""Listing of one path: a file, a folder's files or a glob's matches; on local disks and other storage."""

from __future__ import annotations

import difflib
import os
import re
import unicodedata
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import glob_translate

from pipelines.catalog.file_kinds import HIDDEN, SPECIAL, FileKind
from pipelines.catalog.table_formats import TablesAround, refuse_tables
from pipelines.errors import UsageError
from pipelines.store.folders import open_filesystem

UNSEEN = FileKind("not looked at")
_BRACES = ". Braces are no pattern here: give a list of paths"
_DANGLING = FileKind("link to nothing", way_out="mend the link, or remove it", is_refused=True)


@dataclass(frozen=True, slots=True)
class ListedPlace:
    """A file as it was listed.

    Attributes:
        argument: index of the path that it was found by.
        name: name as the user wrote it.
        path: path in its file system.
        how: named itself, matched by a glob, or found in a folder.
        size: size in bytes; None if unknown.
        kind: kind; `UNSEEN` until the file is read.
        is_linked: whether it was reached by a symbolic link.
        first: for a folder that was already listed, its name then.
    """

    argument: int
    name: str
    filesystem: Any
    path: str
    how: Literal["named", "glob", "folder"]
    size: int | None = None
    kind: FileKind = UNSEEN
    is_linked: bool = False
    first: str = ""

    @property
    def identity(self) -> str:
        """Key that is the same for all spellings of a file."""
        if isinstance(self.filesystem, LocalFileSystem):
            return os.path.realpath(self.path)
        return f"{type(self.filesystem).__name__}:{self.path}"


def list_places(argument: int, path: str, anonymous: bool, around: TablesAround) -> list[ListedPlace]:
    """List the files at one path, sorted by name. Raise `UsageError` if there are none or they cannot be listed."""
    filesystem, root = open_filesystem(path, anonymous=anonymous)
    named = ListedPlace(argument, path.rstrip("/") or "/", filesystem, root, "named")
    try:
        # A name that is there is meant, whatever a glob would make of its brackets.
        info = _info(filesystem, root)
        start = glob_start(filesystem, root) if info is None else None
        if start is not None:
            places = list(_matches(replace(named, how="glob"), start, around))
            if not places:
                hint = _BRACES if "{" in path else ". In a glob, [[] stands for [" if "[" in root[len(start) :] else ""
                raise UsageError(f"input.path: nothing matches {path}{hint}")
        elif info is None:
            raise UsageError(f"input.path: no such file or folder: {path}{_hint(filesystem, path, root)}")
        elif info["type"] == "directory" or _is_marker(filesystem, root, info):
            places = _in_folder(replace(named, how="folder"), around)
        else:
            for file in _paths(named):
                around.add_file(filesystem, file)
            places = [replace(named, size=info.get("size"), kind=UNSEEN if info["type"] == "file" else SPECIAL)]
    except (OSError, ValueError) as error:
        raise UsageError(f"input.path: cannot list {path}: {error}") from error
    # A glob may match a folder and what is in it.
    return sorted({place.name: place for place in places}.values(), key=lambda place: place.name)


def _info(filesystem: Any, root: str) -> dict[str, Any] | None:
    try:
        return dict(filesystem.info(root))
    except FileNotFoundError:
        return None


def _is_marker(filesystem: Any, root: str, info: dict[str, Any]) -> bool:
    """Return whether an empty object only marks the folder of its name, as some tools create them on S3."""
    is_empty = info.get("size") == 0 and not isinstance(filesystem, LocalFileSystem)
    return is_empty and any(path != root for path in filesystem.find(root))


def _hint(filesystem: Any, path: str, root: str) -> str:
    if "{" in path:
        return _BRACES
    parent, _, leaf = root.rpartition("/")
    if not isinstance(filesystem, LocalFileSystem) or not os.path.isdir(parent or "/"):
        return ""
    names = {_folded(name): name for name in os.listdir(parent or "/")}
    near = difflib.get_close_matches(_folded(leaf), names, n=1, cutoff=0.8)
    if not near:
        return ""
    form = (
        ""
        if unicodedata.normalize("NFC", leaf) != unicodedata.normalize("NFC", names[near[0]])
        else (" (in another Unicode form: write its letters as they are in the name)")
    )
    return f"; there is {path.rstrip('/').removesuffix(leaf)}{shown_name(names[near[0]])}{form}"


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold().strip()


def _in_folder(
    folder: ListedPlace, around: TablesAround, listing: Mapping[str, Mapping[str, Any]] | None = None
) -> list[ListedPlace]:
    """Return the files in a folder; a hidden folder is one place. Raise `UsageError` for a table of another format."""
    if isinstance(folder.filesystem, LocalFileSystem):
        places = list(_walk(folder))
    else:
        found = folder.filesystem.find(folder.path, detail=True) if listing is None else listing
        places = list(_listed(folder, found))
    refuse_tables(folder.name, ("/" + place.name[len(folder.name) :].removeprefix("/") for place in places))
    for path in _paths(folder):
        around.add_home(folder.filesystem, path)
    for place in places:
        if place.is_linked and place.kind is UNSEEN and not place.first:
            around.add_file(folder.filesystem, os.path.realpath(place.path))
    return places


def _paths(place: ListedPlace) -> set[str]:
    """Return the path of a file or folder and, if links lead to it, its real path."""
    is_local = isinstance(place.filesystem, LocalFileSystem)
    return {place.path, os.path.realpath(place.path)} if is_local else {place.path}


def _inside(folder: str, leaf: str) -> str:
    """Return the name of an entry in a folder; the folder in which a relative glob begins has an empty name."""
    return f"{folder.rstrip('/')}/{leaf}" if folder else leaf


def _walk(top: ListedPlace) -> Iterator[ListedPlace]:
    """Yield a local folder's files. Symbolic links are followed, but each folder is listed once: links may lead to it
    in many ways, or form cycles."""
    names: dict[tuple[int, int], str] = {}
    waiting, linked = deque([top]), deque[ListedPlace]()
    while waiting or linked:
        # Of a folder and a link to it, the folder; and of several links the shortest.
        folder = (waiting or linked).popleft()
        status = os.stat(folder.path)
        first = names.setdefault((status.st_dev, status.st_ino), folder.name)
        if first != folder.name:
            yield replace(folder, name=folder.name + "/", first=f"{first or '.'}/")
            continue
        with os.scandir(folder.path) as entries:
            for entry in entries:
                place = replace(
                    folder,
                    name=_inside(folder.name, entry.name),
                    path=entry.path,
                    is_linked=folder.is_linked or entry.is_symlink(),
                )
                if _is_hidden(entry.name):
                    yield replace(place, name=place.name + "/" * entry.is_dir(), kind=HIDDEN)
                elif entry.is_dir():
                    (linked if place.is_linked else waiting).append(place)
                elif entry.is_file():
                    yield replace(place, size=entry.stat().st_size)
                else:
                    yield replace(place, kind=_DANGLING if entry.is_symlink() else SPECIAL)


def _listed(folder: ListedPlace, listing: Mapping[str, Mapping[str, Any]]) -> Iterator[ListedPlace]:
    """Yield a folder's files from its listing."""
    for path, info in listing.items():
        inner = path[len(folder.path) :]
        # On S3, an empty object whose name ends in a slash, or the folder's own, stands for a folder.
        if inner and not inner.endswith("/"):
            visible = _until_hidden(inner)
            kind = UNSEEN if visible is None else HIDDEN
            inner = inner if visible is None else visible
            name = _inside(folder.name, inner.removeprefix("/"))
            yield replace(folder, name=name, path=path, size=info.get("size"), kind=kind)


def _matches(pattern: ListedPlace, start: str, around: TablesAround) -> Iterator[ListedPlace]:
    """Yield a glob's matches; for folders, their files. Hidden names match only if the pattern marks them."""
    filesystem, root = pattern.filesystem, pattern.path
    is_local = isinstance(filesystem, LocalFileSystem)
    written = {part[0] for part in root[len(start) :].split("/") if _is_hidden(part)}
    hits = local_hits(root, start) if is_local else remote_hits(filesystem, root, start, around)
    for path, listing in hits.items():
        name = as_written(path, pattern.name, root)
        is_linked = is_local and os.path.realpath(path) != os.path.realpath(start) + path[len(start) :]
        hit = replace(pattern, name=name, path=path, is_linked=is_linked)
        is_folder = os.path.isdir(path) if is_local else path not in listing
        if (visible := _until_hidden(path[len(start) :] + "/" * is_folder, written)) is not None:
            hidden = as_written(start + visible.rstrip("/"), pattern.name, root)
            yield replace(hit, name=hidden + "/" * visible.endswith("/"), kind=HIDDEN)
        elif is_folder:
            yield from _in_folder(replace(hit, how="folder"), around, listing)
        else:
            for file in _paths(hit):
                around.add_file(filesystem, file)
            yield replace(hit, size=os.path.getsize(path) if is_local else listing[path].get("size"))


def _is_hidden(part: str) -> bool:
    # As in Spark: a partition's folder is not, whatever its column is called. "+tmp" is Kafka Connect's.
    return part.startswith(".") or part == "+tmp" or (part.startswith("_") and "=" not in part)


def _until_hidden(inner: str, written: Collection[str] = ()) -> str | None:
    """Return a path up to its first hidden part, with a slash if more follows; None if no part is hidden."""
    end = 0
    for part in inner.split("/"):
        end += len(part) + 1
        if _is_hidden(part) and part[0] not in written:
            return inner[:end]
    return None


_MAGIC = re.compile(r"[*?\[]")


def glob_start(filesystem: Any, root: str) -> str | None:
    """Return the folder where a glob starts (existing names with brackets belong to it); None if it is not a glob."""
    parts = root.split("/")
    for index, part in enumerate(parts):
        folder = "/".join(parts[: index + 1])
        if _MAGIC.search(part) and (index in (0, len(parts) - 1) or not _is_folder(filesystem, folder)):
            return "/".join(parts[:index])
    return None


def _is_folder(filesystem: Any, path: str) -> bool:
    try:
        return bool(filesystem.isdir(path))
    except OSError:
        return False  # who may list what the glob matches need not be allowed to list anything else


def local_hits(pattern: str, start: str) -> dict[str, dict[str, Any]]:
    """Return the matching local files and folders."""
    parts = pattern[len(start) :].removeprefix("/").split("/")
    return {path: {} for path in _expand(start, parts)} if os.path.isdir(start or "/") else {}


def remote_hits(filesystem: Any, pattern: str, start: str, around: TablesAround) -> dict[str, dict[str, Any]]:
    """Return the matching files and folders, each with the listing below it.

    fsspec's own glob skips folders that cannot be listed and files that cannot be queried, so rows would be missing
    silently. A flat listing of everything with the pattern's prefix raises instead.
    """
    rest = pattern[len(start) :].removeprefix("/")
    stem = _MAGIC.split(rest, maxsplit=1)[0]
    matches = re.compile(glob_translate(rest)).match
    options = {"prefix": stem} if "s3" in filesystem.protocol else {}
    listed = filesystem.find(start, detail=True, **options)
    around.add_listing(filesystem, f"{start}/{stem}", listed)
    hits: dict[str, dict[str, Any]] = defaultdict(dict)
    for path, info in listed.items():
        inner = path[len(start) :].removeprefix("/")
        ends = [index for index in range(1, len(inner)) if inner[index] == "/"]
        if end := next((end for end in (*ends, len(inner)) if matches(inner[:end])), 0):
            hits[path[: len(path) - len(inner) + end]][path] = info
    return {hit: dict(listing) for hit, listing in hits.items() if not hit.endswith("/")}


def _expand(folder: str, parts: Sequence[str]) -> Iterator[str]:
    if not parts:
        yield folder
        return
    part, rest = parts[0], parts[1:]
    if part == "**":
        # At the end it stands for all that is in the folder.
        for inner in _folders(folder) if rest else [folder]:
            yield from _expand(inner, rest)
    elif not _MAGIC.search(part):
        if os.path.lexists(f"{folder}/{part}"):
            yield from _expand(f"{folder}/{part}", rest)
    elif os.path.isdir(folder or "/"):
        matches = re.compile(glob_translate(part)).match
        for name in sorted(os.listdir(folder or "/")):
            if matches(name) and (not rest or os.path.isdir(f"{folder}/{name}")):
                yield from _expand(f"{folder}/{name}", rest)


def _folders(top: str) -> Iterator[str]:
    """Yield a folder and all folders below it, each once; by links only where no other way leads there."""
    seen = set()
    waiting, linked = deque([top]), deque[str]()
    while waiting or linked:
        folder = (waiting or linked).popleft()
        if (real := os.path.realpath(folder or "/")) in seen:
            continue
        seen.add(real)
        yield folder
        with os.scandir(folder or "/") as entries:
            for entry in entries:
                if entry.is_dir():
                    is_linked = entry.is_symlink() or real != (folder or "/")
                    (linked if is_linked else waiting).append(f"{folder}/{entry.name}")


def as_written(match: str, pattern: str, root: str) -> str:
    """Return a match, which has the absolute form, in the form in which the pattern was written."""
    absolute_start = root[: len(root) - len(pattern)] if root.endswith(pattern) else None
    if absolute_start is not None:
        return match[len(absolute_start) :]
    protocol = pattern.split("://", 1)[0] + "://" if "://" in pattern else ""
    return protocol + match


_SHOWN = 3
_KEPT_NAMES = 20


@dataclass(frozen=True, slots=True)
class LeftOutFiles:
    """All files that are not read.

    Attributes:
        files: files of kinds that are not read.
        doubled: further names of files and folders that are read once, each with the first name.
    """

    files: Sequence[ListedPlace] = ()
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
        return {what: each.kind.way_out for what, each in first.items()}

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
