"""Configuration of a job over a profiled catalog: `catalog.yaml`, with the reason of every guess."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from rich.console import Console

from pipelines.catalog.row_checks import WRITE_FOLDERS_IN, folder_keys
from pipelines.config.catalog_input import InputConfig, shipped_file
from pipelines.config.importing.imported import schema_text
from pipelines.config.yaml_files import comment_text, dump_flow, is_key, listed, shown
from pipelines.console.terminal import SafeTable
from pipelines.errors import UsageError
from pipelines.profiling.catalog_look import Look, found_forms, look_into
from pipelines.profiling.guesses import Guess, Guesses, copies, guess
from pipelines.profiling.product_sample import ProductPairs, sampled_products
from pipelines.profiling.proposals import MAX_CATEGORIES, propose
from pipelines.store.folders import Folder

FILL_IN = "FILL_IN"
"""Placeholder for a missing guess; the job refuses it and lists the existing columns."""

_MAX_OTHERS = 12
_METAFIELD = re.compile(r"(.*\S) \(product\.metafields\.(?:shopify|custom)\.[^.()]+\)")

_REST = """
decoding: hpd                  # 'ar' runs the autoregressive baseline on the same prompts
engine:
  layout: tree                 # or stacked, the paper's; an adapter is trained for one of them
  max_value_tokens: 30         # the longest value, in tokens
  dtype: auto                  # float32 for answers that are equal to the last bit
  answer_threshold: 0.4        # a less likely answer is null: fewer made-up values (not with 'ar')

max_dead_letter_share: 0.01    # more dead letters than this: exit code 3
"""


@dataclass(frozen=True, slots=True)
class ColumnPlaces:
    """Places of a job's files: the two that are written, its output, and its adapter."""

    config: str
    schemas: str
    output: str
    adapter: str


def catalog_yaml(look: Look, guesses: Guesses, places: ColumnPlaces, copied: Mapping[str, str]) -> str:
    """Return the text of the file. `copied`: attribute -> column that may have its value."""
    lines = [
        f"# A job over {shown(look.source.path[0])}: {len(look.files):,} file(s), {look.num_rows:,} rows. Written by "
        f"`hpd init` after a look at {len(look.sample):,} of them.",
        "# Every column is a guess: read why, correct it. Every key: docs/reference.",
        "#",
        f"#   hpd extract --config {comment_text(shlex.quote(places.config))} --dry-run     "
        "check everything, start nothing",
        "",
        "model: smollm2                 # a hub id, a local folder with safetensors, or an embedded model",
        "# Trained for this task on other catalogs: a start. `hpd teach` makes one for yours.",
        f"adapter: {dump_flow(places.adapter)}",
        "",
        "input:",
        f"  path: [{dump_flow(look.source.path[0])}]",
        *_format_lines(look),
        *(["  anonymous: true              # a public bucket is read without credentials"] * look.source.anonymous),
        *_id_lines(guesses.id),
        *_category_lines(look, guesses.category),
        *_language_lines(guesses.language),
        *_field_lines(look, guesses),
        *_copied_lines(copied),
        "",
        f"schemas: {dump_flow(places.schemas)}    # which attributes each category has: edit it next",
        f"output: {dump_flow(places.output)}    # one folder per run",
        _REST.rstrip("\n"),
    ]
    return "\n".join(lines) + "\n"


def _id_lines(guess: Guess | None) -> Iterator[str]:
    if guess is None:
        yield "  # No column looks like an id (a text or whole number in every row): '<file stem>:<row>' is the id."
        yield "  # id: product_id"
        return
    yield f"  # {shown(guess.column)}: {guess.reason}. Without a column, '<file stem>:<row>' is the id.{_others(guess)}"
    yield f"  id: {dump_flow(guess.column)}"


def _category_lines(look: Look, guess: Guess | None) -> Iterator[str]:
    if guess is None:
        yield "  # NO COLUMN LOOKS LIKE A CATEGORY. Name the one that says what kind of product a row is, in text."
        yield "  # If all are of one kind, name that instead:  category: {text: Bags}"
        yield f"  # Columns: {listed((column.name for column in look.columns), _MAX_OTHERS) or 'none'}"
        yield f"  category: {FILL_IN}"
        return
    yield f"  # {shown(guess.column)}: {guess.reason}.{_others(guess)}"
    if guess.separator is None:
        yield f"  category: {dump_flow(guess.column)}"
        return
    yield "  # Its values are paths: the longest part that is a category of the schemas counts, the last names first;"
    yield "  # level: 1, 2, ... or -1, -2, ... takes one part alone."
    yield f"  category: {{column: {dump_flow(guess.column)}, separator: {dump_flow(guess.separator)}}}"


def _format_lines(look: Look) -> Iterator[str]:
    source, staged = look.source, [file for file in look.files if file.staged is not None]
    formats = {file.format for file in look.files}
    file_format = formats.pop() if source.format == "auto" and len(formats) == 1 and staged else source.format
    file_format = "jsonl" if file_format == "packed jsonl" else file_format
    yield f"  format: {file_format}                 # auto: by each file's content"
    yield from (f"  # Note: {comment_text(note)}" for note in look.notes)
    if source.encoding is not None:
        yield f"  encoding: {dump_flow(source.encoding)}"
    if source.sheet is not None:
        yield f"  sheet: {dump_flow(source.sheet)}"
    delimiters = {file.facts["delimiter"] for file in staged if "delimiter" in file.facts}
    forms = found_forms(look)
    found = f"    # found: {next(iter(forms))}" if len(forms) == 1 else ""
    if len(delimiters) == 1:
        yield f"  delimiter: {dump_flow(delimiters.pop())}{found}"
    if len(forms) > 1:
        yield "  # The files differ, and each is read as it was found:"
        yield from (f"  #   {comment_text(form)}: {listed(names, _MAX_OTHERS)}" for form, names in forms.items())


def _language_lines(guess: Guess | None) -> Iterator[str]:
    if guess is not None:
        yield f"  # {shown(guess.column)}: {guess.reason}. Read by the model in front of the fields."
        yield f"  language: {dump_flow(guess.column)}"


def _field_lines(look: Look, guesses: Guesses) -> Iterator[str]:
    if not any(is_key(field.column) for field in guesses.fields):
        yield "  # NO COLUMN LOOKS LIKE A TEXT. Name those that describe the product."
        yield f"  # Columns: {listed((column.name for column in look.columns), _MAX_OTHERS) or 'none'}"
        yield f"  fields: [{FILL_IN}]"
        return
    yield "  # What the model reads, in this order. `name in the prompt: column`."
    if guesses.unused_texts:
        yield f"  # Could be read as well: {listed(guesses.unused_texts, _MAX_OTHERS)}"
    yield "  fields:"
    for field in guesses.fields:
        if not is_key(field.column):
            yield f"    # too long a name for a key: {shown(field.column)}"
            continue
        yield f"    {dump_flow(field.name or field.column)}: {dump_flow(field.column)}    # {field.reason}"


def _copied_lines(copied: Mapping[str, str]) -> Iterator[str]:
    if copied:
        pairs = ", ".join(f"{dump_flow(attribute)}: {dump_flow(column)}" for attribute, column in copied.items())
        yield "  # Take these columns' values as they are; the model is asked where they are empty:"
        yield f"  # copied: {{{pairs}}}"


def _others(guess: Guess) -> str:
    return f" Could be meant as well: {listed(guess.others, _MAX_OTHERS)}." if guess.others else ""


CONFIG_NAME = "catalog.yaml"
SCHEMAS_NAME = "schemas.yaml"
_MAX_COLUMNS = 40
_MAX_CATEGORIES = 8


def start_job(console: Console, source: InputConfig, folder: Folder) -> None:
    """Profile the catalog, write `catalog.yaml` and `schemas.yaml`, and tell what was found.

    Raises `UsageError` if the catalog cannot be read, or, before anything is written, if one of the files exists.
    """
    folder.require()
    for name in (CONFIG_NAME, SCHEMAS_NAME):
        _refuse_existing(folder, name)
    look = look_into(source)
    guesses = guess(look.columns)
    is_guessed = guesses.category is not None and guesses.fields
    products = sampled_products(look, guesses) if is_guessed else {}
    counts = Counter({category: len(each) for category, each in products.items()})
    chosen: Mapping[str, Sequence[ProductPairs]] = dict(list(products.items())[:MAX_CATEGORIES]) or {FILL_IN: ()}
    # Shopify's export has a column for each attribute that it keeps, filled or not; other namespaces are apps'.
    asked = [match[1] for column in look.columns if (match := _METAFIELD.fullmatch(column.name))]
    proposed = propose(chosen, asked, placeholder="Brand")
    if len(counts) > len(chosen):
        rest = f"{len(counts) - len(chosen):,} rarer categories are left out, and become dead letters"
        proposed = replace(proposed, notes=[*proposed.notes, rest])
    places = ColumnPlaces(
        config=_place(folder, CONFIG_NAME),
        schemas=_place(folder, SCHEMAS_NAME),
        output=f"runs/{_stem(source.path[0])}/first",  # a catalog's runs lie together, for --base
        adapter=shipped_file("adapters/smollm2-generalist"),
    )
    attributes = dict.fromkeys(["Brand", *(attribute.name for attribute in proposed.attributes.values())])
    texts = {
        SCHEMAS_NAME: schema_text(proposed, places.schemas),
        CONFIG_NAME: catalog_yaml(look, guesses, places, copies(look.columns, attributes)),
    }
    for name, text in texts.items():
        if not folder.create(name, text.encode()):
            _refuse_existing(folder, name)
    _print_start(console, look, guesses, counts, places)


def _print_start(
    console: Console, look: Look, guesses: Guesses, categories: Counter[str], places: ColumnPlaces
) -> None:
    """Print the columns, the categories, what is left to fill in, and the next commands."""
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
    for line in _lines(look, guesses, categories, places):
        console.print(line, soft_wrap=True)
    console.print(f"Written: {places.config}, {places.schemas}. Read and correct them, then", soft_wrap=True)
    command = f"  hpd extract --config {shlex.quote(places.config)}"
    console.print(f"{command} --dry-run", soft_wrap=True)
    tried = shlex.quote(f"output={places.output.removesuffix('first')}try")
    console.print(f"{command} --limit 20 --show 8 --set {tried}", soft_wrap=True)


def _lines(look: Look, guesses: Guesses, categories: Counter[str], places: ColumnPlaces) -> Iterator[str]:
    if look.left_out.files:
        yield f"left out {look.left_out}"
    yield from (f"Note: {note}" for note in look.told())
    if len(forms := found_forms(look)) > 1:
        shown_forms = "; ".join(f"{form}: {listed(names, _MAX_CATEGORIES)}" for form, names in forms.items())
        yield f"Note: the files differ, and each is read as it was found: {shown_forms}"
    if partial := [column.name for column in look.columns if not column.is_everywhere]:
        yield f"Note: not in every file, so not proposed: {listed(partial, _MAX_CATEGORIES)}"
    names = {column.name for column in look.columns}
    source = look.source.path[0]
    keys = dict.fromkeys(key for file in look.files for key in folder_keys(file.name.removeprefix(source)))
    if only := [key for key in keys if key not in names]:
        yield f"Note: in no file, only in the names of folders: {listed(only, _MAX_COLUMNS)}; {WRITE_FOLDERS_IN}"
    if categories:
        named = listed((f"{shown(name)} {count:,}" for name, count in categories.most_common()), _MAX_CATEGORIES)
        num_sampled = len(look.sample)
        first = f" in the {num_sampled:,} rows looked at" if look.num_rows > num_sampled else ""
        yield f"{len(categories):,} categories{first}: {named}"
    if len(categories) > MAX_CATEGORIES:
        rest = sum(count for _, count in categories.most_common()[MAX_CATEGORIES:])
        yield f"{SCHEMAS_NAME} has the {MAX_CATEGORIES} most frequent; {rest:,} rows are of others"
    if guesses.category is None:
        yield f"No column looks like a category: fill in input.category in {places.config}, and {places.schemas}."
    if not guesses.fields:
        yield f"No column looks like a text: fill in input.fields in {places.config}."


def _refuse_existing(folder: Folder, name: str) -> None:
    if folder.exists(name):
        raise UsageError(f"{_place(folder, name)} exists already; move it away, or name another folder with --output")


def _place(folder: Folder, name: str) -> str:
    return name if folder.uri == "." else folder.describe(name)


def _stem(path: str) -> str:
    """Derive a name for the run from the file's name."""
    stem = PurePosixPath(path.rstrip("/")).name.split(".")[0]
    return "".join(character for character in stem if character.isalnum() or character in "-_") or "catalog"
