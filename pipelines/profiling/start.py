"""Start of a job from a user's file: profiles it, guesses, writes the two files, reports what it found."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from rich.console import Console

from hpd_core.types import is_encodable
from pipelines.catalog.cells import field_text
from pipelines.catalog.paths import value_at
from pipelines.catalog.row_checks import folder_keys, write_folders_in
from pipelines.catalog.rows import DeadRows
from pipelines.config.catalog_input import shipped_file
from pipelines.config.yaml_files import listed, shown
from pipelines.console.terminal import SafeTable
from pipelines.errors import UsageError
from pipelines.profiling.catalog_file import MAX_CATEGORIES, ColumnPlaces, catalog_yaml, schemas_yaml
from pipelines.profiling.catalog_look import MAX_COUNTED, Look, LookedSource, count_categories, found_forms, look_into
from pipelines.profiling.guesses import Guesses, copies, guess
from pipelines.profiling.key_values import find_attributes
from pipelines.store.folders import Folder

CONFIG_NAME = "catalog.yaml"
SCHEMAS_NAME = "schemas.yaml"
_MAX_COLUMNS = 40
_MAX_CATEGORIES = 8


@dataclass(frozen=True, slots=True)
class Start:
    """Findings in a catalog, and the places of the two files."""

    look: Look
    guesses: Guesses
    categories: Counter[str]
    dead: DeadRows
    places: ColumnPlaces


def start_job(source: LookedSource, folder: Folder) -> Start:
    """Profile the catalog and write `catalog.yaml` and `schemas.yaml`.

    Raises `UsageError` if the catalog cannot be read, or, before anything is written, if one of the files exists.
    """
    folder.require()
    for name in (CONFIG_NAME, SCHEMAS_NAME):
        _refuse_existing(folder, name)
    look = look_into(source)
    guesses = guess(look.columns)
    counts, dead = count_categories(look, guesses.category.column) if guesses.category else (Counter[str](), DeadRows())
    found = find_attributes(_texts(look, guesses))
    places = ColumnPlaces(
        config=_place(folder, CONFIG_NAME),
        schemas=_place(folder, SCHEMAS_NAME),
        output=f"runs/{_stem(source.path)}/first",  # a catalog's runs lie together, for --base
        adapter=shipped_file("adapters/smollm2-generalist"),
    )
    attributes = dict.fromkeys(["Brand", *(attribute.name for each in found.values() for attribute in each)])
    columns = [column for column in look.columns if column.name.split(".")[0] not in guesses.answers]
    texts = {
        SCHEMAS_NAME: schemas_yaml(counts, found, places.schemas),
        CONFIG_NAME: catalog_yaml(look, guesses, places, copies(columns, attributes)),
    }
    for name, text in texts.items():
        if not folder.create(name, text.encode()):
            _refuse_existing(folder, name)
    return Start(look, guesses, counts, dead, places)


def print_start(console: Console, start: Start) -> None:
    """Print the columns, the categories, what is left to fill in, and the next commands."""
    look, guesses, places = start.look, start.guesses, start.places
    table = SafeTable(title=f"{len(look.files):,} file(s), {look.num_rows:,} rows", title_justify="left")
    for name in ("column", "type", "filled", "different", "characters", "taken for"):
        table.add_column(name, justify="right" if name in ("filled", "different", "characters") else "left")
    for column in look.columns[:_MAX_COLUMNS]:
        length = f"{column.mean_chars:,.0f}" if column.num_filled else "-"
        is_known = column.num_rows and "nested" not in column.kinds
        filled = f"{1 - column.share_empty:.0%}" if is_known else "-"
        different = f"{len(column.different):,}" if is_known else "-"
        purpose = guesses.purpose(column.name)
        table.add_row(shown(column.name), shown(column.stored_type), filled, different, length, purpose)
    console.print(table)
    if len(look.columns) > _MAX_COLUMNS:
        console.print(f"and {len(look.columns) - _MAX_COLUMNS:,} columns more")
    for line in _lines(start):
        console.print(line, soft_wrap=True)
    console.print(f"Written: {places.config}, {places.schemas}. Read and correct them, then", soft_wrap=True)
    command = f"  hpd extract --config {shlex.quote(places.config)}"
    console.print(f"{command} --dry-run", soft_wrap=True)
    tried = shlex.quote(f"output={places.output.removesuffix('first')}try")
    console.print(f"{command} --limit 20 --show 8 --set {tried}", soft_wrap=True)


def _lines(start: Start) -> Iterator[str]:
    guesses, places = start.guesses, start.places
    if start.look.left_out.files:
        yield f"left out {start.look.left_out}"
    yield from (f"Note: {warning}" for warning in start.look.left_out.warnings())
    yield from (f"Note: {note}" for note in start.look.notes)
    if len(forms := found_forms(start.look)) > 1:
        shown_forms = "; ".join(f"{form}: {listed(names, _MAX_CATEGORIES)}" for form, names in forms.items())
        yield f"Note: the files differ, and each is read as it was found: {shown_forms}"
    if partial := [column.name for column in start.look.columns if not column.is_everywhere]:
        yield f"Note: not in every file, so not proposed: {listed(partial, _MAX_CATEGORIES)}"
    names = {column.name for column in start.look.columns}
    source = start.look.source.path
    keys = dict.fromkeys(key for file in start.look.files for key in folder_keys(file.name.removeprefix(source)))
    if only := [key for key in keys if key not in names]:
        way_out = write_folders_in(start.look.files[0].name)
        yield f"Note: in no file, only in the names of folders: {listed(only, _MAX_COLUMNS)}; {way_out}"
    for column, file in start.look.doubled.items():
        yield f"Note: column {shown(column)} stands twice in {file}: rename one of the two to have it read"
    categories = start.categories
    if categories:
        named = listed((f"{shown(name)} {count:,}" for name, count in categories.most_common()), _MAX_CATEGORIES)
        first = f" in the first {MAX_COUNTED:,} rows" if start.look.num_rows > MAX_COUNTED else ""
        yield f"{len(categories):,} categories{first}: {named}"
    if len(categories) > MAX_CATEGORIES:
        rest = sum(count for _, count in categories.most_common()[MAX_CATEGORIES:])
        yield f"{SCHEMAS_NAME} has the {MAX_CATEGORIES} most frequent; {rest:,} rows are of others"
    for reason, count in start.dead.rows.most_common():
        yield f"{count:,} rows become dead letters, {reason}: {start.dead.examples[reason]}"
    if guesses.category is None:
        yield f"No column looks like a category: fill in input.category in {places.config}, and {places.schemas}."
    if not guesses.fields:
        yield f"No column looks like a text: fill in input.fields in {places.config}."


def _texts(look: Look, guesses: Guesses) -> Iterator[tuple[str, str]]:
    """Yield category and text of every sampled row that has a category."""
    if guesses.category is None:
        return
    for row in look.sample:
        category = value_at(row, guesses.category.column)
        if isinstance(category, str) and category:
            text = "\n".join(field_text(value_at(row, field.column), "\n") or "" for field in guesses.fields)
            if is_encodable(text):
                yield category, text


def _refuse_existing(folder: Folder, name: str) -> None:
    if folder.exists(name):
        raise UsageError(f"{_place(folder, name)} exists already; move it away, or name another folder with --output")


def _place(folder: Folder, name: str) -> str:
    return name if folder.uri == "." else folder.describe(name)


def _stem(path: str) -> str:
    """Derive a name for the run from the file's name."""
    stem = PurePosixPath(path.rstrip("/")).name.split(".")[0]
    return "".join(character for character in stem if character.isalnum() or character in "-_") or "catalog"
