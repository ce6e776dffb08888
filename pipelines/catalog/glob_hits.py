"""Glob matching, on local disks and other storage."""

from __future__ import annotations

import os
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Any

from fsspec.utils import glob_translate

from pipelines.catalog.table_formats import TablesAround

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
