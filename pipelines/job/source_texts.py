"""Reader of the sampled products' texts from the catalog; the run's tables do not hold them.

A row is used only if its content hash is the one that the run stored. So a changed, moved or re-sorted file never shows
a wrong text.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pydantic import ValidationError

from hpd_core import Evidence, Record
from hpd_core.types import MatchKind
from pipelines.catalog.cells import CellError
from pipelines.catalog.html_text import ShownText, read_html, shown_record
from pipelines.catalog.readers import read_piece
from pipelines.catalog.rows import mapped_text
from pipelines.catalog.sharding import RowRange
from pipelines.catalog.staging import STAGED, stage, staged_format, staged_path
from pipelines.config.catalog_input import InputConfig
from pipelines.errors import RunError, UsageError
from pipelines.job.prepare_stage import input_hash
from pipelines.job.run_plan import Plan, PlannedFile

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class TextSegment:
    """A segment of a field's text, and the indices of the product's values that stand there.

    `match`: the strictest one.

    `omitted`: number of characters that are left out here instead of shown.
    """

    text: str
    values: tuple[int, ...] = ()
    match: str | None = None
    omitted: int = 0


class Wanted(NamedTuple):
    """A row of the catalog to read; `input_hash`: hash of the record that the run read."""

    source_file: str
    source_row: int
    category: str
    input_hash: str


class SourceText(NamedTuple):
    """A field as stored in the catalog; `read`: the text it shows, if it is HTML."""

    original: str
    read: ShownText | None

    @property
    def text(self) -> str:
        """Text that the model read."""
        return self.original if self.read is None else self.read.text

    def mark(self, place: Evidence, value: int) -> Mark | None:
        """Return the mark of a value's place in `text`; None if the text there does not match."""
        mark = Mark(place.start, place.end, value, place.match)
        if not fits(self.original, mark, place.text):
            return None
        if self.read is None:
            return mark
        start, end = self.read.shown_span(place.start, place.end)
        return mark._replace(start=start, end=end) if start < end else None


def read_texts(
    plan: Plan, settings: Mapping[str, Any], wanted: Iterable[Wanted]
) -> tuple[dict[Key, dict[str, SourceText]], list[str]]:
    """Return the fields of each row, without missing or changed rows, and notes on those.

    Args:
        settings: the `input` section of the run's configuration.
    """
    try:
        config = _input_config(settings)
    except ValidationError as error:
        return {}, [f"The texts are not shown: the run's input settings have {error.error_count()} errors."]
    by_file: defaultdict[str, dict[int, Wanted]] = defaultdict(dict)
    for each in wanted:
        by_file[each.source_file][each.source_row] = each
    planned = {file.name: (index, file) for index, file in enumerate(plan.files)}
    texts: dict[Key, dict[str, SourceText]] = {}
    notes = []
    for name, rows in sorted(by_file.items()):
        found = {}
        try:
            index, file = planned[name]
            for number, row in _read_rows(file, _pieces(plan, index), sorted(rows), config):
                fields = _fields(row, config)
                if fields is not None and _is_same(fields, rows[number], config):
                    found[name, number] = {
                        field: SourceText(text, read_html(text, config.html)) for field, text in fields.items()
                    }
        except (OSError, pa.ArrowException, RunError, UsageError, KeyError, ValueError) as error:
            reason = "no such file" if isinstance(error, FileNotFoundError) else f"{error}" or type(error).__name__
            notes.append(f"{name} cannot be read ({reason}): some products are shown without their text.")
        else:
            if changed := len(rows) - len(found):
                notes.append(
                    f"{name} has changed since the run: {changed:,} of the {len(rows):,} sampled products are shown "
                    "without their text."
                )
        texts |= found
    return texts, notes


def _is_same(fields: dict[str, str], wanted: Wanted, config: InputConfig) -> bool:
    return input_hash(shown_record(Record("", wanted.category, fields), config.html)) == wanted.input_hash


def _input_config(settings: Mapping[str, Any]) -> InputConfig:
    # A plan keeps the fields as pairs: their order counts.
    fields = settings.get("fields")
    # A run that says nothing of HTML has read it as it stands.
    given = {"html": "never", **settings, "fields": dict(fields) if isinstance(fields, list) else fields}
    return InputConfig.model_validate(given)


def _fields(row: Mapping[str, Any] | None, config: InputConfig) -> dict[str, str] | None:
    """Map the row to its texts as `rows.to_record` does; None if a cell cannot be read."""
    if row is None:
        return None
    try:
        return {name: mapped_text(row, mapped, config) for name, mapped in config.texts.items()}
    except CellError:
        return None


def _pieces(plan: Plan, file: int) -> list[RowRange]:
    return sorted((p for shard in plan.shards for p in shard.pieces if p.file == file), key=lambda piece: piece.start)


def _read_rows(
    file: PlannedFile, pieces: Sequence[RowRange], numbers: Sequence[int], config: InputConfig
) -> Iterator[tuple[int, Mapping[str, Any] | None]]:
    """Yield the rows with these numbers, ascending; None for a row that cannot be read."""
    uri, file_format = file.name, file.format
    if file.staged is not None:
        uri, file_format, pieces = staged_path(file.staged), STAGED, [RowRange(0, 0, sys.maxsize, file.num_rows)]
        if not os.path.exists(uri):  # read it, and stage it again
            staged = stage(file.name, staged_format(file.format), config)
            if (staged.size, staged.fingerprint) != file.content:
                return  # it has changed
            uri = staged.path
    for piece in pieces:
        here = [number for number in numbers if piece.start <= number < piece.stop]
        if here:
            rows = read_piece(uri, file_format, piece, config.columns, anonymous=config.anonymous, numbers=here)
            yield from ((row.number, row.values) for row in rows)


# The strictest first.
MATCHES: tuple[MatchKind, ...] = ("exact", "equal number", "folded", "fuzzy", "ambiguous")
_SHOWN = 400  # characters of a long stretch without values that are shown at each of its ends


class Mark(NamedTuple):
    """Place [start, end) of the value with index `value`."""

    start: int
    end: int
    value: int
    match: str


def marks_of(fields: Mapping[str, SourceText], places: Sequence[Iterable[Evidence]]) -> Mapping[str, Sequence[Mark]]:
    """Return the marks in each field, of the places of each value."""
    marks: dict[str, list[Mark]] = {name: [] for name in fields}
    for value, of_value in enumerate(places):
        for place in of_value:
            field = fields.get(place.field)
            if field is not None and (mark := field.mark(place, value)) is not None:
                marks[place.field].append(mark)
    return marks


def cut(text: str, marks: Sequence[Mark]) -> tuple[TextSegment, ...]:
    """Cut the text into segments, in order; each has the same values all along.

    0    5    10
    |red shoe |    marks: 0 "red shoe", 1 "red"
     ^^^              -> "red" (1, 0), " shoe" (0,)
     ^^^^^^^^
    """
    borders = sorted({0, len(text), *(edge for mark in marks for edge in (mark.start, mark.end))})
    segments = []
    for start, end in itertools.pairwise(borders):
        # The shortest value is on top: a longer one shows beside it.
        here = sorted(
            (mark for mark in marks if mark.start <= start and mark.end >= end),
            key=lambda mark: (mark.end - mark.start, mark.value),
        )
        values = tuple(dict.fromkeys(mark.value for mark in here))
        match = min((mark.match for mark in here), key=_strictness, default=None)
        segments += [TextSegment(text[start:end], values, match)] if values else _shortened(text[start:end])
    return tuple(segments)


def fits(text: str, mark: Mark, found: str) -> bool:
    """Return whether the text at the mark is `found`."""
    return 0 <= mark.start < mark.end <= len(text) and text[mark.start : mark.end] == found


def match_class(match: str) -> str:
    """Return the match kind as a style-sheet class, from a closed set of words, whatever the table holds."""
    return (match if match in MATCHES else "fuzzy").replace(" ", "-")


def _strictness(match: str) -> int:
    return MATCHES.index(match) if match in MATCHES else len(MATCHES)


def _shortened(text: str) -> list[TextSegment]:
    """Return segments for text without values; the middle of a long text is left out."""
    omitted = len(text) - 2 * _SHOWN
    if omitted <= _SHOWN:
        return [TextSegment(text)]
    return [TextSegment(text[:_SHOWN]), TextSegment("", omitted=omitted), TextSegment(text[-_SHOWN:])]
