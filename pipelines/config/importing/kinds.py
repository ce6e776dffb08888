"""Kinds of sources, and their detection by content."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from pipelines.config.importing import json_schema
from pipelines.config.importing.imported import Imported, each_once, listed
from pipelines.config.importing.json_schema import is_model, model_document
from pipelines.config.importing.sources import Document, read_sources
from pipelines.errors import UsageError
from pipelines.store.folders import open_filesystem

_HEAD = 2**20  # bytes, in which a gold file's first line ends
_GOLD_ENDINGS = (".jsonl", ".ndjson")
PYDANTIC, GOLD = "pydantic", "gold"


@dataclass(frozen=True, slots=True)
class ImportWishes:
    """User's settings for a source: the language of its labels, and a name for a category without one."""

    language: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class SchemaSource:
    """Kind of files that schemas are imported from.

    Attributes:
        recognises: function that tells whether a file is of this kind, by its content.
        read: function that reads files of this kind; raises `UsageError` if there is nothing in them.
        options: options of `hpd schema import` that it uses, beside those of all.
    """

    name: str
    recognises: Callable[[Document], bool]
    read: Callable[[Sequence[Document], ImportWishes], Imported]
    options: frozenset[str] = frozenset()


JSON_SCHEMA = SchemaSource(
    "json-schema",
    json_schema.recognises,
    lambda documents, wishes: json_schema.read(documents, wishes.name),
    frozenset(("--name",)),
)


def is_gold(path: str) -> bool:
    """Return whether the file is a gold file, by its first line, or by its ending if it cannot be read."""
    filesystem, inner = open_filesystem(path)
    is_called_so = path.lower().endswith(_GOLD_ENDINGS)
    try:
        if filesystem.isdir(inner):
            return False
        with filesystem.open(inner, "rb") as file:
            head: bytes = file.read(_HEAD)
    except OSError:
        return is_called_so
    lines = [line for line in head.removeprefix(b"\xef\xbb\xbf").split(b"\n") if line.strip()]
    try:
        first = json.loads(lines[0]) if lines else None
    except (ValueError, RecursionError):
        return is_called_so
    if isinstance(first, dict) and "category" in first:
        return True
    return is_called_so and not (isinstance(first, dict) and first.keys() & {"code", "attribute_code", "_embedded"})


def kind_names(sources: Sequence[SchemaSource]) -> str:
    """List the names of all kinds, for help and error messages."""
    return ", ".join([*(source.name for source in (*sources, JSON_SCHEMA)), PYDANTIC, GOLD])


def read_imported(
    paths: Sequence[str], kind: str | None, wishes: ImportWishes, sources: Sequence[SchemaSource]
) -> Imported:
    """Read sources of any kind except gold files.

    Args:
        paths: files and folders, local or any fsspec URI, or classes.
        kind: name of their kind; None: detect it by content.
        wishes: settings of the user.
        sources: kinds beside JSON Schema; the first that recognises a file reads it.

    Raises:
        UsageError: they cannot be read, are of no known kind, or of several.
    """
    known = {source.name: source for source in (*sources, JSON_SCHEMA)}
    if kind is not None and kind not in (*known, PYDANTIC):
        raise UsageError(f"--from {kind}: there is no such kind; there are {kind_names(sources)}")
    models = [path for path in paths if kind == PYDANTIC or (kind is None and is_model(path))]
    documents = [model_document(path) for path in models]
    documents += read_sources([path for path in paths if path not in models])
    if kind == PYDANTIC or (kind is None and models):
        kind = JSON_SCHEMA.name
    by_kind: dict[str, list[Document]] = {}
    unknown: list[str] = []
    for document in documents:
        tried = known.values() if kind is None else [known[kind]]
        found = next((source.name for source in tried if source.recognises(document)), None)
        if found is None:
            unknown.append(document.name)
        else:
            by_kind.setdefault(found, []).append(document)
    if not by_kind:
        kinds = kind_names(sources)
        wanted = f"no source of the kind {kind}" if kind else f"none of {kinds}, as far as its content tells"
        way_out = "" if kind else "name the kind with --from, or "
        raise UsageError(f"{listed(unknown)}: {wanted}; {way_out}see docs/schemas.md")
    if len(by_kind) > 1:
        told = "; ".join(f"{each}: {listed([one.name for one in found])}" for each, found in by_kind.items())
        raise UsageError(f"these are of several kinds ({told}); name one with --from")
    ((kind, documents),) = by_kind.items()
    for option, is_given in (("--language", wishes.language), ("--name", wishes.name)):
        if is_given and option not in known[kind].options:
            takers = ", ".join(name for name, source in known.items() if option in source.options)
            raise UsageError(f"{option} is for {takers}, not for {kind}")
    try:
        imported = each_once(known[kind].read(documents, wishes))
    except ValidationError as error:
        first = error.errors()[0]
        where, what = ".".join(map(str, first["loc"])), str(first["msg"]).removeprefix("Value error, ")
        raise UsageError(f"{listed([each.name for each in documents])}: {error.title}: {where}: {what}") from error
    if unknown:
        imported = replace(imported, notes=[*imported.notes, f"not read, of another kind: {listed(unknown)}"])
    return imported
