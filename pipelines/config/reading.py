"""How the files of a catalog are read that do not say it themselves."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Literal

InputFormat = Literal["auto", "parquet", "jsonl", "csv", "shopify", "xml", "excel"]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What is known of the files; None: found out.

    Attributes:
        format: "csv" takes a Shopify export row by row, "auto" a product at a time.
        encoding: of text that is not UTF-8 and has no byte order mark.
        delimiter, quote, escape: of CSV.
        sheet: of a workbook.
        anonymous: read s3:// without credentials.
    """

    format: InputFormat = "auto"
    encoding: str | None = None
    delimiter: str | None = None
    quote: str | None = None
    escape: str | None = None
    sheet: str | None = None
    anonymous: bool = False


def encoding_name(given: str) -> str:
    """An encoding's own name. Raises `ValueError` unless it is one that text of a file can be in."""
    try:
        name = codecs.lookup(given).name
        # Some ways of writing are no text (hex), some are for domain names alone and take no bytes that are none.
        codecs.getincrementaldecoder(name)("surrogateescape").decode("a,b\n".encode(name), True)
    except (LookupError, ValueError):
        raise ValueError(f"there is no encoding {given!r} for texts; cp1252 and latin-1 are frequent ones") from None
    return name
