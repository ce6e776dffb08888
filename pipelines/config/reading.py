"""Options for reading catalog files that do not declare their own format."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

InputFormat = Literal["auto", "parquet", "jsonl", "csv", "shopify", "xml", "excel"]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Known properties of the files; None: detected.

    Attributes:
        format: "csv" reads a Shopify export row by row, "auto" one product at a time.
        encoding: encoding of text that is not UTF-8 and has no byte order mark.
        delimiter, quote, escape: dialect of CSV.
        sheet: sheet of a workbook.
        anonymous: whether to read s3:// without credentials.
    """

    format: InputFormat = "auto"
    encoding: str | None = None
    delimiter: str | None = None
    quote: str | None = None
    escape: str | None = None
    sheet: str | None = None
    anonymous: bool = False


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
