"""Category schemas: make them from gold files, check them, compare them.

    python pipelines/schema.py import train.jsonl --out schemas.yaml
    python pipelines/schema.py lint schemas.yaml
    python pipelines/schema.py diff schemas.yaml edited.yaml

Exit code: 0, or 2 for a file that is missing, unreadable or no schema. Warnings and differences are no error.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

if not __package__:
    # Started as a file: Python has put this folder on the path, the checkout around it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer
import yaml
from rich.console import Console
from rich.table import Table

from hpd_core import Attribute, CategorySchema
from pipelines.errors import UsageError
from pipelines.quality.gold import WORDS_FOR_NOTHING, GoldProduct, read_gold
from pipelines.quality.scoring import fold
from pipelines.schemas.schema_file import load_schemas
from pipelines.store.folders import open_filesystem

_MAX_ATTRIBUTES = 64  # what the engine is tested with
_MAX_ENUM_VALUES = 100
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]")

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Import, check and compare category schemas.",
)


@dataclass(frozen=True, slots=True)
class Remark:
    """A remark on a category or, if `attribute` is set, on one attribute of it."""

    category: str
    attribute: str | None
    message: str

    def __str__(self) -> str:
        place = self.category if self.attribute is None else f"{self.category} > {self.attribute}"
        return f"{place}: {self.message}"


def schemas_from_gold(products: Iterable[GoldProduct], *, require_values: bool = False) -> dict[str, CategorySchema]:
    """The schemas that `products` are labelled with: every labelled attribute, as a string.

    Categories are in alphabetical order, attributes by number of labelled products, then name. A category
    whose products have no label at all is left out.

    Args:
        products: the lines of one or more gold files.
        require_values: leave out attributes that are absent wherever they are labelled.
    """
    num_labels: dict[str, Counter[str]] = {}
    with_values: set[tuple[str, str]] = set()
    multiple: set[tuple[str, str]] = set()
    for product in products:
        counter = num_labels.setdefault(product.category, Counter())
        for name, value in product.values.items():
            counter[name] += 1
            if not value.is_absent:
                with_values.add((product.category, name))
            if len(value.items) > 1:
                multiple.add((product.category, name))
    schemas = {}
    for category, counter in sorted(num_labels.items()):
        names = sorted(counter, key=lambda name: (-counter[name], name))
        attributes = tuple(
            Attribute(name=name, multiple=(category, name) in multiple)
            for name in names
            if not require_values or (category, name) in with_values
        )
        if attributes:
            schemas[category] = CategorySchema(category=category, attributes=attributes)
    return schemas


def dump_schemas(schemas: Mapping[str, CategorySchema]) -> str:
    """`schemas` as the YAML text that `load_schemas` reads: a line an attribute, defaults left out."""
    categories = {
        category: [_plain(attribute) for attribute in schema.attributes] for category, schema in schemas.items()
    }
    text: str = yaml.safe_dump(
        {"categories": categories},
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=1_000_000,
    )
    return text


def lint(schemas: Mapping[str, CategorySchema]) -> Iterator[Remark]:
    """What is allowed in `schemas` but probably not meant."""
    for category, earlier in _alike(schemas):
        yield Remark(category, None, f"almost the same name as category {earlier!r}")
    types: dict[str, dict[str, str]] = {}
    for category, schema in schemas.items():
        if len(schema.attributes) > _MAX_ATTRIBUTES:
            yield Remark(category, None, f"{len(schema.attributes)} attributes, more than {_MAX_ATTRIBUTES}")
        for name, earlier in _alike(attribute.name for attribute in schema.attributes):
            yield Remark(category, name, f"almost the same name as attribute {earlier!r}")
        for attribute in schema.attributes:
            for message in _lint_attribute(attribute):
                yield Remark(category, attribute.name, message)
            types.setdefault(attribute.name, {}).setdefault(attribute.type, category)
    for name, categories in types.items():
        if len(categories) > 1:
            described = ", ".join(f"{kind} in {category}" for kind, category in categories.items())
            yield Remark(next(iter(categories.values())), name, f"of different types: {described}")


def diff(old: Mapping[str, CategorySchema], new: Mapping[str, CategorySchema]) -> Iterator[Remark]:
    """Every difference between two schema files; the order of attributes counts, that of categories not."""
    for category in dict.fromkeys([*old, *new]):
        if category not in new:
            yield Remark(category, None, "removed")
        elif category not in old:
            yield Remark(category, None, f"added, {len(new[category].attributes)} attributes")
        else:
            yield from _diff_category(category, old[category], new[category])


def _diff_category(category: str, old: CategorySchema, new: CategorySchema) -> Iterator[Remark]:
    before = {attribute.name: attribute for attribute in old.attributes}
    after = {attribute.name: attribute for attribute in new.attributes}
    for name in dict.fromkeys([*before, *after]):
        if name not in after:
            yield Remark(category, name, "removed")
        elif name not in before:
            yield Remark(category, name, "added")
        else:
            for setting in Attribute.model_fields:
                first, second = getattr(before[name], setting), getattr(after[name], setting)
                if first != second:
                    yield Remark(category, name, f"{setting}: {_show(first)} -> {_show(second)}")
    if [name for name in before if name in after] != [name for name in after if name in before]:
        yield Remark(category, None, "attributes are in another order, so prompts and answers may differ")


def _lint_attribute(attribute: Attribute) -> Iterator[str]:
    values = attribute.values or ()
    for text in (attribute.name, attribute.description or "", attribute.unit or "", *values):
        if text != text.strip():
            yield f"{text!r} begins or ends with white space"
        if _CONTROL_CHARACTER.search(text):
            yield f"{text!r} holds a line break or a control character"
    if attribute.unit is not None and attribute.type != "number":
        yield f"has the unit {attribute.unit!r} but is of type {attribute.type}"
    if len(values) == 1:
        yield f"only one value is allowed, {values[0]!r}: a boolean?"
    if len(values) > _MAX_ENUM_VALUES:
        yield f"{len(values)} allowed values make every prompt long: a string?"
    for value in values:
        if fold(value) in WORDS_FOR_NOTHING:
            yield f"{value!r} is an allowed value: what is absent is null, which is always allowed"
    for value, earlier in _alike(values):
        yield f"the value {value!r} is almost the same as {earlier!r}"


def _alike(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Every text that equals an earlier one but for case, white space or Unicode form, and that one."""
    seen: dict[str, str] = {}
    for text in texts:
        earlier = seen.setdefault(fold(text), text)
        if earlier != text:
            yield text, earlier


def _plain(attribute: Attribute) -> dict[str, object]:
    """The attribute as YAML has it: name and type, and what is not the default."""
    data = attribute.model_dump(mode="json", exclude_defaults=True)
    return {"name": data.pop("name"), "type": attribute.type, **data}


def _show(setting: object) -> str:
    return ", ".join(map(str, setting)) if isinstance(setting, tuple) else str(setting)


def _write_new(path: str, text: str, overwrite: bool) -> None:
    filesystem, inner = open_filesystem(path)
    try:
        if not overwrite and filesystem.exists(inner):
            raise UsageError(f"{path} exists already; --force writes over it")
        with filesystem.open(inner, "wb") as file:
            file.write(text.encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error}") from error


def _console() -> Console:
    # Names are data: brackets in them are no markup. Without a terminal, tables are not squeezed to 80.
    return Console(
        markup=False, highlight=False, emoji=False, width=None if sys.stdout.isatty() else 140, soft_wrap=True
    )


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Prints what the user can put right as one message and exits with 2."""
    try:
        yield
    except (UsageError, OSError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from error


@app.command("import")
def import_command(
    gold: Annotated[list[str], typer.Argument(help="Gold files, ours or ExtractGPT's: normally the training one.")],
    out: Annotated[str, typer.Option(help="The schema file to write.")],
    require_values: Annotated[
        bool, typer.Option("--require-values", help="Leave out attributes that never have a value.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
) -> None:
    """Build a schema file from the attributes that gold files are labelled with."""
    with _usage_errors():
        products = [product for path in gold for product in read_gold(path)]
        schemas = schemas_from_gold(products, require_values=require_values)
        if not schemas:
            raise UsageError(f"{', '.join(gold)}: no product has a label")
        _write_new(out, dump_schemas(schemas), force)
        _console().print(f"{out}: {_totals(load_schemas(out))}, from {len(products)} products")


@app.command("lint")
def lint_command(file: Annotated[str, typer.Argument(help="Schema file.")]) -> None:
    """Load a schema file strictly, print what is in it and warn of what is probably not meant."""
    with _usage_errors():
        schemas = load_schemas(file)
        console = _console()
        table = Table()
        table.add_column("category")
        for name in ("attributes", "described", "number", "boolean", "enum", "multiple"):
            table.add_column(name, justify="right")
        for category, schema in schemas.items():
            table.add_row(category, *map(str, _tally(schema)))
        console.print(table)
        remarks = list(lint(schemas))
        for remark in remarks:
            console.print(f"warning: {remark}", style="yellow")
        console.print(f"{file}: {_totals(schemas)}; {len(remarks)} warnings")


@app.command("diff")
def diff_command(
    old: Annotated[str, typer.Argument(help="Schema file.")],
    new: Annotated[str, typer.Argument(help="Schema file to compare with it.")],
) -> None:
    """Print every difference between two schema files."""
    with _usage_errors():
        changes = list(diff(load_schemas(old), load_schemas(new)))
        console = _console()
        for change in changes:
            console.print(str(change))
        console.print(f"{len(changes)} differences" if changes else "no difference")


def _tally(schema: CategorySchema) -> list[int]:
    attributes = schema.attributes
    by_type = Counter(attribute.type for attribute in attributes)
    return [
        len(attributes),
        sum(attribute.description is not None for attribute in attributes),
        by_type["number"],
        by_type["boolean"],
        by_type["enum"],
        sum(attribute.multiple for attribute in attributes),
    ]


def _totals(schemas: Mapping[str, CategorySchema]) -> str:
    num_attributes = sum(len(schema.attributes) for schema in schemas.values())
    mean = num_attributes / len(schemas)
    return f"{len(schemas)} categories, {num_attributes} attributes, {mean:.2f} a category on average"


if __name__ == "__main__":
    app()
