"""Discovery of a catalog's files: lists what `input.path` names, and reads, refuses or leaves out each file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from hpd_core.types import is_encodable
from pipelines.catalog.file_kinds import (
    HEAD_BYTES,
    OF_RUN,
    STAGED_FORMATS,
    FileFormat,
    kind_of,
    unpacked_name,
)
from pipelines.catalog.listing import UNSEEN, LeftOutFiles, ListedPlace, list_places, shown_name
from pipelines.catalog.table_formats import TablesAround
from pipelines.config.catalog_input import InputFormat
from pipelines.errors import UsageError
from pipelines.store.folders import map_requests, open_filesystem
from pipelines.store.ledger import PLAN_NAME


class FoundFile(NamedTuple):
    """A file that is read, under the name that the user wrote."""

    name: str
    format: FileFormat


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """Files that are read, in order, and those that are not."""

    files: Sequence[FoundFile]
    left_out: LeftOutFiles


def find_files(
    paths: Sequence[str], input_format: InputFormat = "auto", *, anonymous: bool = False, outputs: Sequence[str] = ()
) -> FoundFiles:
    """Find the files at `paths`: files, those in folders (recursively), and those that globs match; each file once.

    Args:
        outputs: folders that the job writes. Files in them, as in any run's folder, are read only if named themselves.

    Raise `UsageError` for what cannot be listed or read, and for a path without readable files.
    """
    file_format: Literal["auto"] | FileFormat = "csv" if input_format == "shopify" else input_format
    around = TablesAround()
    listings = map_requests(lambda item: list_places(*item, anonymous, around), list(enumerate(paths)))
    around.refuse()
    own = [f"{open_filesystem(output)[1]}/" for output in outputs]
    places, again = _each_once([place for listing in listings for place in _without_runs(listing, own)])
    places = map_requests(lambda place: _look(place, file_format), places)
    if file_format == "auto":
        places = _of_one_sort(places)
    places = _without_packed_twins(places)
    for place in places:
        _check(place)
    files = [FoundFile(place.name, place.kind.format) for place in places if place.kind.format is not None]
    others = [place for place in places if place.kind.format is None]
    useful = {place.argument for place in (*again, *places) if place.first or place.kind.format is not None}
    for argument, path in enumerate(paths):
        if argument not in useful:
            here = LeftOutFiles([place for place in others if place.argument == argument])
            there = [f"only {here}"] if here.files else []
            there += [f"to have {what} read, {remedy}" for what, remedy in here.remedies().items()]
            raise UsageError("; ".join([f"input.path: no files that are read in {path}", *there]))
    return FoundFiles(files, LeftOutFiles(others, [(place.name, place.first) for place in again]))


def _without_runs(places: Sequence[ListedPlace], own: Sequence[str]) -> list[ListedPlace]:
    """Mark what a run has written as left out, unless it is named itself.

    A run's `output` may be below the catalog's folder, and a resumed run must find its input unchanged. `own`: path
    prefixes that the job writes to.
    """
    # A glob of files finds no plan beside them.
    runs = [place.path.removesuffix(PLAN_NAME) for place in places if place.path.endswith(f"/{PLAN_NAME}")]
    return [
        replace(place, kind=OF_RUN)
        if place.how != "named" and place.kind is UNSEEN and place.path.startswith((*own, *runs))
        else place
        for place in places
    ]


def _each_once(places: Sequence[ListedPlace]) -> tuple[list[ListedPlace], list[ListedPlace]]:
    """Return the places, each file once; and the duplicates, each with the name of the first."""
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


def _of_one_sort(places: Sequence[ListedPlace]) -> list[ListedPlace]:
    """Leave out all but one sort of files per folder or glob: CSV beside Parquet most often repeats the same rows."""
    lines = ("parquet", "jsonl", "packed jsonl")
    sorts = [lines, *((staged,) for staged in STAGED_FORMATS if staged not in lines)]
    found: defaultdict[int, set[FileFormat | None]] = defaultdict(set)
    for place in places:
        if place.how != "named":
            found[place.argument].add(place.kind.format)
    read = {argument: next((sort for sort in sorts if formats & {*sort}), ()) for argument, formats in found.items()}
    way_out = "name it itself, or set input.format"
    return [
        place
        if place.how == "named" or place.kind.format in (None, *read[place.argument])
        else replace(place, kind=replace(place.kind, format=None, way_out=way_out))
        for place in places
    ]


def _without_packed_twins(places: Sequence[ListedPlace]) -> list[ListedPlace]:
    """Leave out files from folders and globs that are packed copies of others (`a.csv`, `a.csv.gz`)."""

    def rank(place: ListedPlace) -> tuple[bool, bool, str]:
        # What is named, else what is not packed.
        return place.how != "named", place.identity != unpacked_name(place.identity), place.name

    firsts: dict[str, ListedPlace] = {}
    for place in sorted((place for place in places if place.kind.format is not None), key=rank):
        firsts.setdefault(unpacked_name(place.identity), place)

    def told(place: ListedPlace) -> ListedPlace:
        first = firsts.get(unpacked_name(place.identity), place)
        if place.kind.format is None or place.how == "named" or first is place:
            return place
        way_out = f"remove one of the two: {shown_name(first.name)} is read, and has the same name but for the packing"
        what = f"{place.kind.what} beside the same file"
        return replace(place, kind=replace(place.kind, what=what, format=None, way_out=way_out))

    return list(map(told, places))


def _look(place: ListedPlace, file_format: Literal["auto"] | FileFormat) -> ListedPlace:
    """Return a place with its file's kind. Raise `UsageError` if it cannot be read."""
    if place.kind is not UNSEEN:
        return place
    try:
        head = b"" if place.size == 0 else place.filesystem.cat_file(place.path, start=0, end=HEAD_BYTES)
        return replace(place, kind=kind_of(place.path.rsplit("/", 1)[-1], bytes(head), file_format))
    except FileNotFoundError as error:
        raise UsageError(f"no such file: {place.name}") from error
    except OSError as error:
        raise UsageError(f"cannot read {shown_name(place.name)}: {error}") from error


def _check(place: ListedPlace) -> None:
    """Raise `UsageError` if a file is not readable but was surely meant to be read."""
    kind = place.kind
    is_matched = place.how == "glob" and kind.is_data and kind != OF_RUN
    is_meant = kind.is_refused or place.how == "named" or is_matched
    shown = shown_name(place.name)
    if kind.format is None and is_meant:
        way_out = kind.way_out
        if place.how != "named":
            way_out += ". If it is no part of the catalog, move it, or name the others by a glob"
        raise UsageError(f"{shown} cannot be read ({kind.what}): {way_out}")
    if kind.format is not None and not is_encodable(place.name):
        raise UsageError(f"the name of {shown} is not UTF-8, and rows are known by it; rename the file")
