"""Which files a catalog is made of: what `input.path` names is listed, and each file is read, refused or left out."""

from __future__ import annotations

import difflib
import os
import re
import unicodedata
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import glob_translate

from hpd_core.types import is_encodable
from pipelines.catalog.file_kinds import HEAD_BYTES, HIDDEN, SPECIAL, STAGED_FORMATS, FileFormat, Kind
from pipelines.catalog.file_telling import kind_of
from pipelines.catalog.left_out import LeftOut, LeftOutFile, shown_name
from pipelines.catalog.table_formats import TablesAround, refuse_tables
from pipelines.config.reading import InputFormat
from pipelines.errors import UsageError
from pipelines.store.folders import map_requests, open_filesystem

_THREADS = 16
_MAGIC = re.compile(r"[*?\[]")
_BRACES = ". Braces are no pattern here: give a list of paths"
_DANGLING = Kind("link to nothing", way_out="mend the link, or remove it", is_refused=True)


class FoundFile(NamedTuple):
    """A file that is read; its name as the user wrote it."""

    name: str
    format: FileFormat


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """What is read, in order, and what is not."""

    files: Sequence[FoundFile]
    left_out: LeftOut


@dataclass(frozen=True, slots=True)
class _Place:
    """A file as it was listed.

    Attributes:
        argument: which of the paths it was found by.
        name: as the user wrote it.
        path: in its file system.
        how: it is named itself, matched by a glob, or lies in a folder.
        size: in bytes; None if that is not known.
        kind: where that is known without a look into the file.
        is_linked: reached by a symbolic link.
        first: of a folder that was listed before, the name that it had then.
    """

    argument: int
    name: str
    filesystem: Any
    path: str
    how: Literal["named", "glob", "folder"]
    size: int | None = None
    kind: Kind | None = None
    is_linked: bool = False
    first: str = ""

    @property
    def identity(self) -> str:
        """The same for all spellings of a file."""
        if isinstance(self.filesystem, LocalFileSystem):
            return os.path.realpath(self.path)
        return f"{type(self.filesystem).__name__}:{self.path}"


def find_files(paths: Sequence[str], input_format: InputFormat = "auto", *, anonymous: bool = False) -> FoundFiles:
    """The files at `paths`: files, those in folders (recursively), and what globs match; each file once.

    Raises `UsageError` for what cannot be listed or read, and where a path has nothing that can be read.
    """
    file_format: Literal["auto"] | FileFormat = "csv" if input_format == "shopify" else input_format
    around = TablesAround()
    listings = map_requests(lambda item: _list(*item, anonymous, around), list(enumerate(paths)))
    around.refuse()
    places, again = _each_once([place for listing in listings for place in listing])
    with ThreadPoolExecutor(_THREADS) as pool:
        looked_at = list(pool.map(lambda place: _look(place, file_format), places))
    if file_format == "auto":
        looked_at = _of_one_sort(looked_at)
    for place, kind in looked_at:
        _check(place, kind)
    files = [FoundFile(place.name, kind.format) for place, kind in looked_at if kind.format is not None]
    others = [(place.argument, LeftOutFile(place.name, kind)) for place, kind in looked_at if kind.format is None]
    useful = {place.argument for place in again}
    useful |= {place.argument for place, kind in looked_at if kind.format is not None}
    for argument, path in enumerate(paths):
        if argument not in useful:
            here = LeftOut([file for number, file in others if number == argument])
            there = [f"only {here}"] if here.files else []
            there += [f"to have {what} read, {remedy}" for what, remedy in here.remedies().items()]
            raise UsageError("; ".join([f"input.path: no files that are read in {path}", *there]))
    return FoundFiles(files, LeftOut([file for _, file in others], [(place.name, place.first) for place in again]))


def _each_once(places: Sequence[_Place]) -> tuple[list[_Place], list[_Place]]:
    """The places without further ones of the same file; and those, each with the name of the first."""
    firsts: dict[str, int] = {}
    again = {}
    # Of a file and a link to it, the file.
    for index in sorted(range(len(places)), key=lambda index: (places[index].argument, places[index].is_linked)):
        place = places[index]
        if place.first:
            again[index] = place
        elif (first := firsts.setdefault(place.identity, index)) != index:
            again[index] = replace(place, first=places[first].name)
    return [place for index, place in enumerate(places) if index not in again], list(again.values())


def _of_one_sort(looked_at: Sequence[tuple[_Place, Kind]]) -> list[tuple[_Place, Kind]]:
    """Of what lies in a folder or behind a glob, the files of one sort: CSV beside Parquet is most often the same rows
    again."""
    sorts = [("parquet", "jsonl"), *((staged,) for staged in STAGED_FORMATS)]
    found: defaultdict[int, set[FileFormat | None]] = defaultdict(set)
    for place, kind in looked_at:
        if place.how != "named":
            found[place.argument].add(kind.format)
    read = {argument: next((sort for sort in sorts if formats & {*sort}), ()) for argument, formats in found.items()}

    def is_other(place: _Place, kind: Kind) -> bool:
        return place.how != "named" and kind.format not in (None, *read[place.argument])

    way_out = "name it itself, or set input.format"
    return [
        (place, replace(kind, format=None, way_out=way_out) if is_other(place, kind) else kind)
        for place, kind in looked_at
    ]


def _look(place: _Place, file_format: Literal["auto"] | FileFormat) -> tuple[_Place, Kind]:
    """What a file is. Raises `UsageError` if it cannot be read."""
    leaf = place.path.rsplit("/", 1)[-1]
    try:
        return place, place.kind or kind_of(leaf, b"" if place.size == 0 else _head(place), file_format)
    except FileNotFoundError as error:
        raise UsageError(f"no such file: {place.name}") from error
    except OSError as error:
        raise UsageError(f"cannot read {shown_name(place.name)}: {error}") from error


def _check(place: _Place, kind: Kind) -> None:
    """Raises `UsageError` if a file is none that is read, but surely meant to be."""
    is_meant = kind.is_refused or place.how == "named" or (place.how == "glob" and kind.is_data)
    shown = shown_name(place.name)
    if kind.format is None and is_meant:
        way_out = kind.remedy(place.name)
        if place.how != "named":
            way_out += ". If it is no part of the catalog, move it, or name the others by a glob"
        raise UsageError(f"{shown} cannot be read ({kind.what}): {way_out}")
    if kind.format is not None and not is_encodable(place.name):
        raise UsageError(f"the name of {shown} is not UTF-8, and rows are known by it; rename the file")


def _head(place: _Place) -> bytes:
    if isinstance(place.filesystem, LocalFileSystem):
        with open(place.path, "rb") as file:
            return file.read(HEAD_BYTES)
    return bytes(place.filesystem.cat_file(place.path, start=0, end=HEAD_BYTES))


def _list(argument: int, path: str, anonymous: bool, around: TablesAround) -> list[_Place]:
    """What lies at one path, sorted by name. Raises `UsageError` if there is nothing, or it cannot be listed."""
    filesystem, root = open_filesystem(path, anonymous=anonymous)
    named = _Place(argument, path.rstrip("/") or "/", filesystem, root, "named")
    try:
        # A name that is there is meant, whatever a glob would make of its brackets.
        info = _info(filesystem, root)
        start = _start(filesystem, root) if info is None else None
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
            places = [replace(named, size=info.get("size"), kind=None if info["type"] == "file" else SPECIAL)]
    except (OSError, ValueError) as error:
        raise UsageError(f"input.path: cannot list {path}: {error}") from error
    # A glob may match a folder and what is in it.
    return sorted({place.name: place for place in places}.values(), key=lambda place: place.name)


def _info(filesystem: Any, root: str) -> dict[str, Any] | None:
    try:
        return dict(filesystem.info(root))
    except FileNotFoundError:
        return None


def _start(filesystem: Any, root: str) -> str | None:
    """The folder where a glob begins: names with brackets that are there belong to it. None if it is no glob."""
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


def _is_marker(filesystem: Any, root: str, info: dict[str, Any]) -> bool:
    """Whether an empty object only stands for the folder of its name, as some tools make them on S3."""
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
    folder: _Place, around: TablesAround, listing: Mapping[str, Mapping[str, Any]] | None = None
) -> list[_Place]:
    """The files in a folder; a hidden folder is one place. Raises `UsageError` for a table of another format."""
    if isinstance(folder.filesystem, LocalFileSystem):
        places = list(_walk(folder))
    else:
        found = folder.filesystem.find(folder.path, detail=True) if listing is None else listing
        places = list(_listed(folder, found))
    refuse_tables(folder.name, ("/" + place.name[len(folder.name) :].removeprefix("/") for place in places))
    for path in _paths(folder):
        around.add_home(folder.filesystem, path)
    for place in places:
        if place.is_linked and place.kind is None and not place.first:
            around.add_file(folder.filesystem, os.path.realpath(place.path))
    return places


def _paths(place: _Place) -> set[str]:
    """Where a file or folder lies: by its name and, if links lead to it, in truth."""
    is_local = isinstance(place.filesystem, LocalFileSystem)
    return {place.path, os.path.realpath(place.path)} if is_local else {place.path}


def _inside(folder: str, leaf: str) -> str:
    """The name of something in a folder; that of the folder that a glob begins in is empty."""
    return f"{folder.rstrip('/')}/{leaf}" if folder else leaf


def _walk(top: _Place) -> Iterator[_Place]:
    """A local folder's files. Symbolic links are followed, but each folder is listed once: links may lead to it in very
    many ways, or without end."""
    names: dict[tuple[int, int], str] = {}
    waiting, linked = deque([top]), deque[_Place]()
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


def _listed(folder: _Place, listing: Mapping[str, Mapping[str, Any]]) -> Iterator[_Place]:
    """A folder's files from its listing."""
    for path, info in listing.items():
        inner = path[len(folder.path) :]
        # On S3, an empty object whose name ends in a slash, or the folder's own, stands for a folder.
        if inner and not inner.endswith("/"):
            visible = _until_hidden(inner)
            kind = None if visible is None else HIDDEN
            inner = inner if visible is None else visible
            name = _inside(folder.name, inner.removeprefix("/"))
            yield replace(folder, name=name, path=path, size=info.get("size"), kind=kind)


def _matches(pattern: _Place, start: str, around: TablesAround) -> Iterator[_Place]:
    """What a glob matches; of folders the files. What is hidden has to be written in the pattern."""
    filesystem, root = pattern.filesystem, pattern.path
    is_local = isinstance(filesystem, LocalFileSystem)
    written = {part[0] for part in root[len(start) :].split("/") if _is_hidden(part)}
    hits = _local_hits(root, start) if is_local else _remote_hits(filesystem, root, start, around)
    for path, listing in hits.items():
        name = _as_written(path, pattern.name, root)
        is_linked = is_local and os.path.realpath(path) != os.path.realpath(start) + path[len(start) :]
        hit = replace(pattern, name=name, path=path, is_linked=is_linked)
        is_folder = os.path.isdir(path) if is_local else path not in listing
        if (visible := _until_hidden(path[len(start) :] + "/" * is_folder, written)) is not None:
            hidden = _as_written(start + visible.rstrip("/"), pattern.name, root)
            yield replace(hit, name=hidden + "/" * visible.endswith("/"), kind=HIDDEN)
        elif is_folder:
            yield from _in_folder(replace(hit, how="folder"), around, listing)
        else:
            for file in _paths(hit):
                around.add_file(filesystem, file)
            yield replace(hit, size=os.path.getsize(path) if is_local else listing[path].get("size"))


def _remote_hits(filesystem: Any, pattern: str, start: str, around: TablesAround) -> dict[str, dict[str, Any]]:
    """The files and folders that match, each with what is listed under it.

    fsspec's own glob passes over folders that cannot be listed, and files that cannot be asked for: rows would be
    missing without a word. A flat listing of everything that begins like the pattern raises.
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


def _local_hits(pattern: str, start: str) -> dict[str, dict[str, Any]]:
    """The files and folders that match."""
    parts = pattern[len(start) :].removeprefix("/").split("/")
    return {path: {} for path in _expand(start, parts)} if os.path.isdir(start or "/") else {}


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
    """A folder and all below it, each once, by links only where no other way leads there."""
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


def _is_hidden(part: str) -> bool:
    # As in Spark: a partition's folder is not, whatever its column is called. "+tmp" is Kafka Connect's.
    return part.startswith(".") or part == "+tmp" or (part.startswith("_") and "=" not in part)


def _until_hidden(inner: str, written: Collection[str] = ()) -> str | None:
    """The beginning of a path up to its first hidden part, and a slash if more comes; None if it has none."""
    end = 0
    for part in inner.split("/"):
        end += len(part) + 1
        if _is_hidden(part) and part[0] not in written:
            return inner[:end]
    return None


def _as_written(match: str, pattern: str, root: str) -> str:
    """A match of a glob, which is matched in its absolute form, in the form of the pattern."""
    absolute_start = root[: len(root) - len(pattern)] if root.endswith(pattern) else None
    if absolute_start is not None:
        return match[len(absolute_start) :]
    protocol = pattern.split("://", 1)[0] + "://" if "://" in pattern else ""
    return protocol + match
