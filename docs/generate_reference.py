"""Writes docs/reference: every command's options, every key of a configuration, every column of a table.

    python docs/generate_reference.py            writes the pages
    python docs/generate_reference.py --check    exit code 1 and their names if any is not what the code says

All of it stands in the code: help texts in `pipelines/*.py`, `Field(description=...)` in the configurations,
`Column`s in `pipelines/store/columns.py`.
"""

from __future__ import annotations

import datetime
import importlib
import re
import sys
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pyarrow as pa
import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from hpd_core import Attribute, CategorySchema, EngineConfig, Member, Unit
from hpd_core.extractor import EngineDescription
from pipelines.cli import COMMANDS
from pipelines.config.attribute_entries import USE
from pipelines.config.catalog_input import InputConfig
from pipelines.config.category_entries import DOCUMENT, EXTENDS
from pipelines.config.extraction import JobConfig
from pipelines.config.finetuning import FinetuneConfig
from pipelines.config.labelling import LabelConfig
from pipelines.config.loading import Mapped
from pipelines.config.nested_entries import OBJECT_KEYS
from pipelines.store.columns import COLUMNS, ERROR_CODES

FOLDER = Path(__file__).resolve().parent / "reference"
_WRITTEN = "Written by `docs/generate_reference.py` from the code."
_START = re.compile(r"^python pipelines/(\w+)\.py")
_TYPES = {str: "text", int: "integer", float: "number", bool: "boolean", Any: "anything", datetime.date: "date"}
_TYPES |= {Mapped: "column or section", Member: "text or mapping", Unit: "text or mapping"}
_LIMITS = {"ge": "≥ {}", "gt": "> {}", "le": "≤ {}", "lt": "< {}"}
_FOR_ENGINEERS = frozenset(
    {
        *("shards.max_rows", "shards.ramp", "actors.num_threads", "actors.max_in_flight", "log_seconds"),
        *("retries.max_attempts", "retries.max_minutes", "retries.lease_seconds"),
        *("engine.max_tokens_per_step", "engine.max_prompts_per_cohort", "engine.max_cached_tokens"),
        *("engine.max_cached_prefixes", "engine.attention", "engine.layers", "engine.cuda_graphs"),
        *("engine.overlap_steps", "engine.share_text", "engine.constrain_values", "engine.max_scored_tokens"),
        *("engine.stack_size", "engine.prompt.stacked_instruction", "engine.prompt.date"),
    }
)
"""Keys that do well as they are; they have a table of their own at the end of a page."""
_TABLES = {
    "attributes": "One row per product, attribute and value: the canonical table.",
    "products": "One row per extracted product.",
    "dead_letter": "One row per row of the catalog that was not extracted.",
    "metrics": "One row per shard: what it took and what it cost.",
}


def pages() -> dict[str, str]:
    """The pages by file name."""
    return {
        "commands.md": _page("Commands", _commands()),
        "job.md": _page("Keys of a job", _job()),
        "engine.md": _page("Keys of the engine", _engine()),
        "schemas.md": _page("Keys of a schema file", _schemas()),
        "labelling.md": _page("Keys of a labelling", _keys_and_rest(LabelConfig, "")),
        "finetuning.md": _page("Keys of a fine-tuning", _keys_and_rest(FinetuneConfig, "")),
        "tables.md": _page("Tables and columns", _tables()),
    }


def _page(title: str, lines: Iterable[str]) -> str:
    return "\n".join([f"# {title}", "", _WRITTEN, "", *lines]).rstrip("\n") + "\n"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    yield ""


# Commands


def _commands() -> Iterator[str]:
    yield ""
    for name in (name for group in COMMANDS.values() for name in group):
        module = importlib.import_module(f"pipelines.{name}")
        command: Any = typer.main.get_command(module.app)
        yield f"## hpd {name}"
        yield ""
        yield from _text(module.__doc__ or "")
        subcommands = getattr(command, "commands", None)
        for part, inner in subcommands.items() if subcommands else [("", command)]:
            if part:
                yield f"### hpd {name} {part}"
                yield ""
                yield f"{inner.help}"
                yield ""
            yield from _options(inner)


def _text(docstring: str) -> Iterator[str]:
    """A module's docstring as Markdown: what is indented are commands."""
    for paragraph in docstring.strip().split("\n\n"):
        lines = paragraph.split("\n")
        if all(line.startswith("    ") for line in lines):
            yield from ["```", *(_START.sub(r"hpd \1", line.removeprefix("    ")) for line in lines), "```"]
        else:
            yield " ".join(line.strip() for line in lines).replace("<", "&lt;")
        yield ""


def _options(command: Any) -> Iterator[str]:
    yield from _table(("option", "meaning"), (_option(each) for each in command.params if not each.hidden))


def _option(parameter: Any) -> tuple[str, str]:
    is_argument = not parameter.opts[0].startswith("-")
    name = parameter.name.upper() if is_argument else ", ".join(parameter.opts)
    kind = parameter.type_descriptor.annotation
    if not is_argument and kind is not bool:
        name += f" {parameter.metavar or {int: 'N', float: 'X'}.get(kind, 'TEXT')}"
    default = parameter.default
    shown = " (needed)" if parameter.required else "" if default in (None, False, [], ()) else f" (`{_value(default)}`)"
    return f"`{name}`", (parameter.help or "").replace("<", "&lt;").rstrip(".") + shown


# Configurations


def _job() -> Iterator[str]:
    yield "The YAML file of `hpd extract --config FILE` and `hpd plan --config FILE`. Unknown keys are refused."
    yield "`--set key=value` changes a key, with dots: `--set actors.max=8`."
    yield "The engine's keys are on [a page of their own](engine.md)."
    yield ""
    yield from _keys_and_rest(JobConfig, "")


def _engine() -> Iterator[str]:
    yield "Under `engine:` in a job, a labelling (`teacher.engine`) or a fine-tuning; in Python, of `EngineConfig`."
    yield ""
    yield from _keys_and_rest(EngineConfig, "engine.")
    yield "## What an engine says of itself"
    yield ""
    yield " ".join((EngineDescription.__doc__ or "").split())
    yield ""
    hints = get_type_hints(EngineDescription, include_extras=True)
    yield from _table(("key", "meaning"), ((f"`{name}`", hint.__metadata__[0]) for name, hint in hints.items()))


def _schemas() -> Iterator[str]:
    yield "A schema file says, for each category, which attributes are wanted. `hpd schema lint FILE` checks it."
    yield ""
    yield from ["```yaml", "categories:", "  Coffee:", "    - name: Brand"]
    yield from ["    - {name: Roast, type: enum, values: [light, medium, dark]}"]
    yield from ["    - {name: Net weight, type: number, unit: g}", "```", ""]
    yield "[Schemas](../schemas.md) shows every form. The file:"
    yield ""
    yield from _table(("key", "meaning"), _meanings(DOCUMENT))
    yield from ["## A category", "", "A list of attributes, or these keys:", ""]
    yield from _table(("key", "meaning"), _meanings({**EXTENDS, **_described(CategorySchema, without="category")}))
    yield from ["## An attribute", "", "A name alone, or these keys:", ""]
    yield from _rows(Attribute, "", without=("path",))
    yield from ["## An object", "", "What stands in it is asked for, under the name of both: `size.width`.", ""]
    yield from _table(("key", "meaning"), _meanings(OBJECT_KEYS))
    yield from ["In a category and in an object also:", ""]
    yield from _table(("key", "meaning"), _meanings(USE))
    yield from ["## A value of an enum", "", "A label alone, or these keys:", ""]
    yield from _rows(Member, "")
    yield from ["## A unit", "", "The wanted one alone, or these keys:", ""]
    yield from _rows(Unit, "")


def _described(model: type[BaseModel], without: str) -> dict[str, str]:
    return {name: field.description or "" for name, field in model.model_fields.items() if name != without}


def _meanings(keys: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((f"`{key}`", meaning) for key, meaning in keys.items())


def _keys(model: type[BaseModel], prefix: str) -> Iterator[str]:
    """The keys of a section, then those of the sections in it."""
    if any(f"{prefix}{name}" not in _FOR_ENGINEERS for name in model.model_fields):
        yield from _rows(model, prefix)
    mapped = [f"{prefix}{name}" for name, field in model.model_fields.items() if Mapped in _sections(field.annotation)]
    if mapped:
        yield from [f"## {', '.join(mapped)}", "", " ".join((Mapped.__doc__ or "").split()), ""]
        yield from _rows(Mapped, "")
    for name, field in model.model_fields.items():
        alternatives = _sections(field.annotation)
        for section in alternatives:
            title = f"{prefix}{name}"
            if section in (EngineConfig, Mapped) or title == "cascade.actors":
                continue
            if all(f"{title}.{key}" in _FOR_ENGINEERS for key in section.model_fields):
                continue
            if len(alternatives) > 1:
                title += f", kind: {get_args(section.model_fields['kind'].annotation)[0]}"
            yield f"## {title}"
            yield ""
            if section is InputConfig and model is not JobConfig:
                yield from ["The keys of [`input` in a job](job.md#input).", ""]
                continue
            yield " ".join((section.__doc__ or "").split())
            yield ""
            yield from _keys(section, f"{prefix}{name}.")


def _keys_and_rest(model: type[BaseModel], prefix: str) -> Iterator[str]:
    yield from _keys(model, prefix)
    yield from ["## For engineers", "", "Keys that do well as they are:", ""]
    yield from _table(("key", "type", "default", "meaning"), _hidden_rows(model, prefix))


def _hidden_rows(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        if f"{prefix}{name}" in _FOR_ENGINEERS:
            yield _row(f"{prefix}{name}", field)
        for section in _sections(field.annotation):
            if section is not EngineConfig:
                yield from _hidden_rows(section, f"{prefix}{name}.")


def _row(key: str, field: FieldInfo) -> tuple[str, ...]:
    return f"`{key}`", _type(field), _default(field), (field.description or "").replace("<", "&lt;")


def _rows(model: type[BaseModel], prefix: str, without: Collection[str] = ()) -> Iterator[str]:
    yield from _table(
        ("key", "type", "default", "meaning"),
        (
            _row(f"{prefix}{name}", field)
            for name, field in model.model_fields.items()
            if name not in without and f"{prefix}{name}" not in _FOR_ENGINEERS
        ),
    )


def _type(field: FieldInfo) -> str:
    return f"{_kind(field.annotation)} {_limits(field)}".strip()


def _limits(field: FieldInfo) -> str:
    return ", ".join(
        text.format(f"{getattr(limit, name):,}")
        for limit in field.metadata
        for name, text in _LIMITS.items()
        if hasattr(limit, name)
    )


def _kind(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in _TYPES:
        return _TYPES[annotation]
    if origin is Annotated:
        return f"{_kind(arguments[0])} {_limits(annotation.__metadata__[0])}"
    if origin is Literal:
        return ", ".join(f"`{argument}`" for argument in arguments)
    if origin in (Union, types.UnionType):
        kinds = [_kind(argument) for argument in arguments if argument is not type(None)]
        return " or ".join(dict.fromkeys(kinds))
    if origin is tuple:
        inner = _kind(arguments[0])
        return f"list of {' or '.join(f'{kind}s' for kind in inner.split(' or '))}"
    if origin is dict:
        return "mapping"
    return "section"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    if field.default is PydanticUndefined or field.default is None:
        return ""
    return f"`{_value(field.default)}`"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:_}" if value >= 100_000 else str(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    text = str(getattr(value, "value", value))
    return re.sub(r"\n+", r"\\n", text[:60] + "…" if len(text) > 60 else text)


def _sections(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for argument in get_args(annotation) for section in _sections(argument)]


# Tables


def _tables() -> Iterator[str]:
    yield "A run writes four tables as Parquet: `<output>/<table>/part-<shard>.parquet`. Schemas are declared, never"
    yield "inferred. What lies in these folders is committed, also while the job runs."
    yield ""
    told: set[tuple[str, str]] = set()
    for table, columns in COLUMNS.items():
        yield f"## {table}"
        yield ""
        yield _TABLES[table]
        yield ""
        if again := [f"`{each.name}`" for each in columns if (each.name, each.description) in told]:
            yield from [f"As above: {', '.join(again)}. And:", ""]
        yield from _table(
            ("column", "type", "meaning"),
            (
                (f"`{each.name}`", _arrow(each.type) + ("" if each.required else ", null"), each.description)
                for each in columns
                if (each.name, each.description) not in told
            ),
        )
        told |= {(each.name, each.description) for each in columns}
        if table == "dead_letter":
            yield "### Error codes"
            yield ""
            yield from _table(
                ("error_code", "stage", "meaning"), ((f"`{code}`", stage, text) for code, stage, text in ERROR_CODES)
            )


def _arrow(kind: pa.DataType) -> str:
    if pa.types.is_map(kind):
        return "map of texts"
    if pa.types.is_list(kind):
        return "list of structs"
    if pa.types.is_timestamp(kind):
        return "timestamp (UTC)"
    return {"string": "text"}.get(str(kind), str(kind).replace("double", "float64"))


def stale() -> list[str]:
    """The pages that are not what the code says, or that it does not know."""
    written = pages()
    there = {path.name for path in FOLDER.glob("*.md")} - {"index.md"}
    return sorted(
        name
        for name in there | set(written)
        if name not in written or name not in there or (FOLDER / name).read_text() != written[name]
    )


def main(arguments: Sequence[str]) -> int:
    """Writes the pages, or checks them."""
    if list(arguments) == ["--check"]:
        for name in (names := stale()):
            print(f"docs/reference/{name} is stale: python docs/generate_reference.py")
        return 1 if names else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
