"""Detection of a file's kind by its first bytes; the name decides only where these do not."""

from __future__ import annotations

import lzma
import re
import zlib
from typing import Literal

from pipelines.catalog.file_kinds import (
    BACKUP,
    BACKUP_ENDINGS,
    BY_ENDING,
    COMPRESSIONS,
    CSV,
    EMPTY,
    EXCEL,
    FOLDER_MARKER,
    IMAGE,
    KINDS,
    LFS_POINTER,
    MAGIC,
    MARKER,
    MARKUP,
    NOTES,
    OFFICE_ENDINGS,
    OLD_OFFICE,
    PARQUET,
    SAME_FORMAT,
    TEXT,
    UNFINISHED,
    UNFINISHED_ENDINGS,
    UNKNOWN,
    WINDOWS,
    Compression,
    FileFormat,
    FileKind,
    ending_format,
    in_place,
)
from pipelines.catalog.text_telling import (
    has_few_controls,
    has_header,
    is_binary,
    is_json_object,
    is_table,
    kind_of_text,
    kind_of_wide_text,
    text_encoding,
    wide_encoding,
)

_READ_PACKED: dict[FileFormat | None, FileFormat] = {"csv": "csv", "xml": "xml", "jsonl": "packed jsonl"}
_WORKBOOK = re.compile(rb"(?s)\[Content_Types\]\.xml.*xl/|mimetypeapplication/vnd\.oasis\.opendocument\.spreadsheet")


def kind_of(leaf: str, head: bytes, configured: Literal["auto"] | FileFormat = "auto") -> FileKind:
    """Return the kind of a file.

    Args:
        leaf: its name without folders.
        head: its first `HEAD_BYTES` bytes; all of them, if there are fewer.
        configured: the format set by the user; a file of any other kind is refused.
    """
    found = _kind_of(leaf, head, ending_format(leaf) if configured == "auto" else configured)
    if configured in ("auto", found.format, SAME_FORMAT.get(found.format)) or found in (EMPTY, MARKER):
        return found
    told = kind_of(leaf, head)
    way_out = told.way_out if told.is_refused else "leave out input.format"
    return FileKind(told.what, None, way_out, is_refused=True)


def _kind_of(leaf: str, head: bytes, promised: FileFormat | None) -> FileKind:
    name = leaf.lower()
    if name in ("thumbs.db", "desktop.ini") or name.startswith("~$"):
        return WINDOWS
    if name.endswith(FOLDER_MARKER):
        return MARKER
    if name.endswith(UNFINISHED_ENDINGS):
        return UNFINISHED
    if name.endswith(BACKUP_ENDINGS):
        return BACKUP
    if not head:
        if promised == "parquet":
            return FileKind("empty", way_out="write it again", is_refused=True)
        return EMPTY if promised is None else KINDS[promised]
    found = _by_content(leaf, head, promised)
    is_lines = found is TEXT or (found is UNKNOWN and any(map(is_json_object, head.split(b"\n"))))
    if found is MARKUP and promised == "excel":
        return FileKind(found.what, way_out="open it in a spreadsheet program and save it as .xlsx", is_refused=True)
    if is_lines and promised == "excel":
        # What many systems call .xls is text with tabs.
        return CSV if has_header(head) else FileKind("text", way_out="save it as .xlsx", is_refused=True)
    if is_lines and promised is not None and promised != "parquet":
        # Its lines say what is wrong with them.
        return KINDS[promised]
    if (
        found.format is None
        and promised == "csv"
        and (text_encoding(head) is not None or (found is UNKNOWN and (has_header(head) or has_few_controls(head))))
    ):
        return CSV
    if found.format is None and promised is not None:
        return FileKind(found.what, None, found.way_out, is_refused=True)
    named = _by_name(name)
    if found is TEXT and named is not None and named.what == "text" and not NOTES.match(name) and is_table(head):
        return CSV
    if named is not None and (found in (TEXT, UNKNOWN) or (found.format is None and not named.is_data)):
        return named
    return found


def _by_name(name: str) -> FileKind | None:
    if NOTES.match(name):
        return FileKind("text", is_data=False)
    return next((kind for ending, kind in BY_ENDING.items() if name.endswith(ending)), None)


def _by_content(leaf: str, head: bytes, promised: FileFormat | None) -> FileKind:
    if has_header(head) and (promised == "csv" or not is_binary(head)):
        # A first column PARENT_SKU begins as encrypted Parquet does, ORCID as ORC.
        return kind_of_text(head)
    if head.startswith(b"PAR1"):
        return PARQUET
    if head.startswith(LFS_POINTER):
        return FileKind(
            "Git LFS pointer, not the file itself", way_out="fetch the files: git lfs pull", is_refused=True
        )
    for compression in COMPRESSIONS:
        if head.startswith(compression.magic):
            return _compressed(leaf, head, compression, promised)
    for magic, kind in MAGIC:
        if head.startswith(magic):
            return kind
    if head.startswith(OLD_OFFICE):
        # A workbook with a password begins so, too.
        return EXCEL if ending_format(leaf) == "excel" else FileKind("Office file")
    if head[8:12] == b"DUCK":
        return FileKind("DuckDB")
    if head[8:12] == b"WEBP":
        return IMAGE
    if head[257:262] == b"ustar":
        return FileKind("tar archive", way_out="unpack it")
    if (encoding := wide_encoding(head)) is not None:
        return kind_of_wide_text(head, encoding)
    if not head.strip(b"\0"):
        return FileKind("NUL bytes alone", way_out="copy it again: its content is lost")
    return kind_of_text(head)


def _compressed(leaf: str, head: bytes, compression: Compression, promised: FileFormat | None) -> FileKind:
    """Return the kind of compressed data: text is read as a stream. Parquet is refused, because it needs random
    access."""
    if compression.name == "zip" and leaf.lower().endswith(OFFICE_ENDINGS):
        return EXCEL if ending_format(leaf) == "excel" else FileKind("Office file")
    if compression.name == "zip" and _WORKBOOK.search(head):
        return EXCEL  # whatever it is called
    stem = leaf.rsplit(".", 1)[0]
    promised, inner = ending_format(stem) or promised, b""
    if compression.begin is not None:
        try:
            inner = compression.begin(head)
        except (OSError, ValueError, EOFError, zlib.error, lzma.LZMAError):
            return FileKind(f"damaged {compression.name}", way_out="write it again", is_refused=promised is not None)
    within = _kind_of(stem, inner, promised) if inner or promised is None else KINDS[promised]
    if within.format in _READ_PACKED and compression.is_read:
        return FileKind(f"{compression.name} around {within.what}", _READ_PACKED[within.format])
    what = compression.name if within in (UNKNOWN, EMPTY) else f"{compression.name} around {within.what}"
    if compression.name == "zip":
        way_out = "unpack it: unzip FILE -d FOLDER && rm FILE"
    elif leaf.endswith(compression.endings):
        way_out = f"decompress it: {compression.command} {compression.options}FILE"
    else:
        way_out = "decompress it: " + in_place(f"{compression.command} < FILE")
    is_refused = within.format is not None or within.is_refused
    return FileKind(what, way_out=way_out, is_data=within.is_data or not inner, is_refused=is_refused)
