"""Configuration of a job over a profiled catalog: `catalog.yaml`, with the reason of every guess."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipelines.catalog.file_kinds import STAGED_FORMATS
from pipelines.config.yaml_files import comment_text, is_key, listed, scalar, shown
from pipelines.profiling.catalog_look import Look, found_forms
from pipelines.profiling.guesses import Guess, Guesses
from pipelines.profiling.key_values import FoundAttribute

FILL_IN = "FILL_IN"
"""Placeholder for a missing guess; the job refuses it and lists the existing columns."""

_MAX_OTHERS = 12

_REST = """
decoding: hpd                  # 'ar' runs the autoregressive baseline on the same prompts
engine:
  layout: tree                 # or stacked, the paper's; an adapter is trained for one of them
  max_value_tokens: 30         # the longest value, in tokens
  dtype: auto                  # float32 for answers that are equal to the last bit

actors:
  min: 1
  max: 1                       # engines; on a cluster one a GPU
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
        f"# A job over {shown(look.source.path)}: {len(look.files):,} file(s), {look.num_rows:,} rows. Written by "
        f"`hpd init` after a look at {len(look.sample):,} of them.",
        "# Every column is a guess: read why, correct it. Every key: docs/reference.",
        "#",
        f"#   hpd extract --config {comment_text(shlex.quote(places.config))} --dry-run     "
        "check everything, start nothing",
        "",
        "model: smollm2                 # a hub id, a local folder with safetensors, or an embedded model",
        "# Trained for this task on other catalogs: a start. `hpd label` and `hpd finetune` make one for yours.",
        f"adapter: {scalar(places.adapter)}",
        "",
        "input:",
        f"  path: [{scalar(look.source.path)}]",
        *_format_lines(look),
        *(["  anonymous: true              # a public bucket is read without credentials"] * look.source.anonymous),
        *_id_lines(guesses.id),
        *_category_lines(look, guesses.category),
        *_language_lines(guesses.language),
        *_field_lines(look, guesses),
        *_copied_lines(copied),
        "",
        f"schemas: {scalar(places.schemas)}    # which attributes each category has: edit it next",
        f"output: {scalar(places.output)}    # one folder per run",
        _REST.rstrip("\n"),
    ]
    return "\n".join(lines) + "\n"


def _id_lines(guess: Guess | None) -> Iterator[str]:
    if guess is None:
        yield "  # No column looks like an id (a text or whole number in every row): '<file stem>:<row>' is the id."
        yield "  # id: product_id"
        return
    yield f"  # {shown(guess.column)}: {guess.reason}. Without a column, '<file stem>:<row>' is the id.{_others(guess)}"
    if guess.within is None:
        yield f"  id: {scalar(guess.column)}"
        return
    yield f"  # The same id stands in several rows, each with another {shown(guess.within)}."
    yield f"  id: {{join: [{scalar(guess.column)}, {scalar(guess.within)}]}}"


def _category_lines(look: Look, guess: Guess | None) -> Iterator[str]:
    if guess is None:
        yield "  # NO COLUMN LOOKS LIKE A CATEGORY. Name the one that says what kind of product a row is, in text."
        yield "  # If all are of one kind, name that instead:  category: {text: Bags}"
        yield f"  # Columns: {listed((column.name for column in look.columns), _MAX_OTHERS) or 'none'}"
        yield f"  category: {FILL_IN}"
        return
    yield f"  # {shown(guess.column)}: {guess.reason}.{_others(guess)}"
    if guess.separator is None:
        yield f"  category: {scalar(guess.column)}"
        return
    yield "  # Its values are paths: the longest part that is a category of the schemas counts, the last names first;"
    yield "  # level: 1, 2, ... or -1, -2, ... takes one part alone."
    yield f"  category: {{column: {scalar(guess.column)}, separator: {scalar(guess.separator)}}}"


def _format_lines(look: Look) -> Iterator[str]:
    source, staged = look.source, look.staged
    formats = {file.format for file in staged} | {
        file.format for file in look.files if file.format not in STAGED_FORMATS
    }
    file_format = formats.pop() if source.format == "auto" and len(formats) == 1 and staged else source.format
    file_format = "jsonl" if file_format == "packed jsonl" else file_format
    yield f"  format: {file_format}                 # auto: by each file's content"
    yield from (f"  # Note: {comment_text(note)}" for note in look.notes)
    if source.encoding is not None:
        yield f"  encoding: {scalar(source.encoding)}"
    if source.sheet is not None:
        yield f"  sheet: {scalar(source.sheet)}"
    delimiters = {file.facts["delimiter"] for file in staged if "delimiter" in file.facts}
    forms = found_forms(look)
    found = f"    # found: {next(iter(forms))}" if len(forms) == 1 else ""
    if len(delimiters) == 1:
        yield f"  delimiter: {scalar(delimiters.pop())}{found}"
    if len(forms) > 1:
        yield "  # The files differ, and each is read as it was found:"
        yield from (f"  #   {comment_text(form)}: {listed(names, _MAX_OTHERS)}" for form, names in forms.items())


def _language_lines(guess: Guess | None) -> Iterator[str]:
    if guess is not None:
        yield f"  # {shown(guess.column)}: {guess.reason}. Read by the model in front of the fields."
        yield f"  language: {scalar(guess.column)}"


def _field_lines(look: Look, guesses: Guesses) -> Iterator[str]:
    if not any(is_key(field.column) for field in guesses.fields):
        yield "  # NO COLUMN LOOKS LIKE A TEXT. Name those that describe the product."
        yield f"  # Columns: {listed((column.name for column in look.columns), _MAX_OTHERS) or 'none'}"
        yield f"  fields: [{FILL_IN}]"
        return
    yield "  # What the model reads, in this order. `name in the prompt: column`."
    if guesses.unused_texts:
        yield f"  # Could be read as well: {listed(guesses.unused_texts, _MAX_OTHERS)}"
    if guesses.answers:
        yield f"  # Left out, as they hold the answers: {listed(guesses.answers, _MAX_OTHERS)}"
    yield "  fields:"
    for field in guesses.fields:
        if not is_key(field.column):
            yield f"    # too long a name for a key: {shown(field.column)}"
            continue
        yield f"    {scalar(field.name or field.column)}: {scalar(field.column)}    # {field.reason}"


def _copied_lines(copied: Mapping[str, str]) -> Iterator[str]:
    if copied:
        pairs = ", ".join(f"{scalar(attribute)}: {scalar(column)}" for attribute, column in copied.items())
        yield "  # Take these columns' values as they are; the model is asked where they are empty:"
        yield f"  # copied: {{{pairs}}}"


def _others(guess: Guess) -> str:
    return f" Could be meant as well: {listed(guess.others, _MAX_OTHERS)}." if guess.others else ""


MAX_CATEGORIES = 50
_MAX_LEFT_OUT = 10

_HEAD = """\
# Which attributes each category has. A start: strike out, add, describe. Check it with
#
#   hpd schema lint {place}
#
# An attribute is a name and, where it helps, more:
#   - {{name: Weight, type: number, unit: g}}
#   - {{name: Roast, type: enum, values: [light, medium, dark]}}      one of these, or null
#   - {{name: Organic, type: boolean}}
#   - {{name: Languages, multiple: true}}                             several values
#   - {{name: Model, description: as printed on the box}}             what to look for, in a few words
"""


def schemas_yaml(counts: Counter[str], found: Mapping[str, Sequence[FoundAttribute]], place: str) -> str:
    """Return the text of the file. `counts`: rows by category; `found`: attributes named in each category's texts."""
    named = Counter({category: count for category, count in counts.items() if is_key(category)})
    chosen = named.most_common(MAX_CATEGORIES)
    lines = [_HEAD.format(place=comment_text(place))]
    if left_out := named.most_common()[MAX_CATEGORIES:]:
        rows = sum(count for _, count in left_out)
        lines += [
            f"# The {len(chosen)} most frequent of {len(named):,} categories. The other {len(left_out):,} have "
            f"{rows:,} rows; without a schema",
            "# these become dead letters. The most frequent of them:",
            f"#   {listed((category for category, _ in left_out), _MAX_LEFT_OUT)}",
            "",
        ]
    lines.append("categories:")
    for category, count in chosen:
        lines += [f"  {scalar(category)}:    # {count:,} rows", *_attribute_lines(found.get(category, ()))]
    if not chosen:
        lines += [f"  {FILL_IN}:    # the name of a category, as it stands in the catalog", *_attribute_lines(())]
    return "\n".join(lines) + "\n"


def _attribute_lines(found: Sequence[FoundAttribute]) -> Iterator[str]:
    if not found:
        yield "    - name: Brand"
        yield "    # - name: Colour"
        yield "    # - {name: Size, description: as printed on the label}"
        return
    for attribute in found:
        kind = attribute.kind
        unit = f", unit: {scalar(kind.unit.want)}" if kind.unit else ""
        labels = [scalar(member.label) for member in kind.members or ()]
        values = f", values: [{', '.join(labels)}]" if labels else ""
        typed = f", type: {kind.type}{unit}{values}" if kind.type != "string" else ""
        examples = ", ".join(shown(value) for value in attribute.examples)
        seen = f"in {attribute.num_rows:,} rows looked at: {examples}"
        yield f"    - {{name: {scalar(attribute.name)}{typed}}}    # {seen}"
