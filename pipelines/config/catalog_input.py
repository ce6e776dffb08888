"""Section `input`: the location of a catalog, and the columns that are read."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from hpd_core.plain_data import Section
from pipelines.config.loading import Mapped

HtmlMode = Literal["auto", "always", "never"]
InputFormat = Literal["auto", "parquet", "jsonl", "csv", "shopify", "xml", "excel"]
LANGUAGE = "language"


class InputConfig(Section):
    """Location of the catalog and the columns that the job reads."""

    path: tuple[str, ...] = Field(
        description="a file, a folder (searched in depth, names with _ or . skipped), a glob ([[] for a bracket), or a "
        "list of them; local or any fsspec URI"
    )
    format: InputFormat = Field(
        "auto",
        description="'auto': by each file's content. 'csv' takes a Shopify export row by row, else it is read a "
        "product at a time",
    )
    id: Mapped | None = Field(None, description="column with the product id; without it: '<file stem>:<row>'")
    category: Mapped = Field(
        Mapped(column="category"),
        description="column that names the product's category: as the schemas do, or by an id or alias of theirs; "
        "{column, separator, level}: as a path; {text}: one for all products",
    )
    fields: dict[str, Mapped] = Field(
        min_length=1, description="name in the prompt -> column, in the prompt's order; a list if both are equal"
    )
    language: Mapped | None = Field(
        None, description=f"column that names the text's language, or {{text}}: read as a first field {LANGUAGE!r}"
    )
    copied: dict[str, Mapped] = Field(
        {},
        description="attribute -> column that may hold its value already; the model is asked only where the cell is "
        "empty or holds no value of the attribute",
    )
    list_separator: str = Field("\n", description="joins the items of a list column into one text")
    html: HtmlMode = Field(
        "auto",
        description="'auto': a field that holds HTML is read as the text that it shows, the rest as it stands; "
        "'always': whatever looks like a tag is one; 'never': tags and entities are text",
    )
    encoding: str | None = Field(
        None, description="of text files without a byte order mark that are not UTF-8: cp1252, latin-1, ..."
    )
    delimiter: str | None = Field(None, description="between the cells of CSV; by default it is found out")
    quote: str | None = Field(None, description="around cells of CSV; '' if nothing is quoted; by default found out")
    escape: str | None = Field(None, description="in front of a quote in a cell of CSV; by default it is doubled")
    sheet: str | None = Field(None, description="of a workbook, by name; needed if several hold rows")
    anonymous: bool = Field(False, description="read s3:// without credentials (public buckets)")

    @model_validator(mode="after")
    def _check_mapping(self) -> InputConfig:
        if self.id is not None and self.id.text is not None:
            raise ValueError("id: a text for all rows is no id; leave it out")
        if self.category.join is not None:
            raise ValueError("category: several columns are no name; name the one, or {column, separator} for a path")
        others = [("id", self.id), ("language", self.language), *self.fields.items(), *self.copied.items()]
        if path := next((name for name, each in others if each is not None and each.is_path), None):
            raise ValueError(f"{path}: separator and level are for the category's column")
        if self.language is not None and LANGUAGE in self.fields:
            raise ValueError(f"a field is called {LANGUAGE!r}, as input.language is: leave out one of the two")
        return self

    @field_validator("encoding")
    @classmethod
    def _check_encoding(cls, value: str | None) -> str | None:
        return None if value is None else encoding_name(value)

    @model_validator(mode="after")
    def _check_dialect(self) -> InputConfig:
        given = [each for each in (self.delimiter, self.quote, self.escape) if each]
        if self.delimiter == "" or any(len(each) != 1 or each in "\r\n" for each in given):
            raise ValueError("delimiter, quote and escape are one character each ('\\t' in double quotes for a tab)")
        if len({*given}) < len(given):
            raise ValueError("delimiter, quote and escape must be different characters")
        return self

    @field_validator("path", mode="before")
    @classmethod
    def _accept_one_path(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("path", mode="after")
    @classmethod
    def _check_paths(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(each.strip() for each in value):
            raise ValueError("a path is empty")
        if not value:
            raise ValueError("at least one path is needed")
        return value

    @field_validator("fields", mode="before")
    @classmethod
    def _accept_list(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = [value]
        if isinstance(value, list):
            if not all(isinstance(each, str) for each in value):
                raise ValueError("a list holds names of columns; write `name: column` for anything else")
            if len(set(value)) != len(value):
                raise ValueError("a column is listed twice")
            return {name: name for name in value}
        return value

    @property
    def texts(self) -> dict[str, Mapped]:
        """Texts that the model reads, in its order: name -> source."""
        return ({} if self.language is None else {LANGUAGE: self.language}) | self.fields

    @property
    def mapped(self) -> list[tuple[str, str]]:
        """Columns that are read, or paths into columns, each with the setting that names it."""
        named = [("input.id", self.id), ("input.category", self.category), ("input.language", self.language)]
        named += [("input.fields", each) for each in self.fields.values()]
        named += [("input.copied", each) for each in self.copied.values()]
        return [(setting, column) for setting, each in named if each is not None for column in each.columns]

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are read, or paths into columns, once each."""
        return tuple(dict.fromkeys(column for _, column in self.mapped))


def encoding_name(given: str) -> str:
    """Return an encoding's canonical name. Raise `ValueError` unless text files can have this encoding."""
    try:
        name = codecs.lookup(given).name
        # Some ways of writing are no text (hex), some are for domain names alone and take no bytes that are none.
        codecs.getincrementaldecoder(name)("surrogateescape").decode("a,b\n".encode(name), True)
    except (LookupError, ValueError):
        raise ValueError(f"there is no encoding {given!r} for texts; cp1252 and latin-1 are frequent ones") from None
    return name


_PACKAGE = Path(__file__).resolve().parents[1]
_IN_WHEEL = _PACKAGE / "shipped"  # where pyproject.toml puts them


def shipped_file(name: str) -> str:
    """Return the path of a file or folder such as "sample/gold.jsonl": beside the packages in a checkout, inside an
    installed package. Paths below the working directory are relative to it."""
    path = (_IN_WHEEL if _IN_WHEEL.is_dir() else _PACKAGE.parent) / name
    here = Path.cwd().resolve()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
