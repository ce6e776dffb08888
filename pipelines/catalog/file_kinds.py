"""Kinds of files, told by their first bytes; the name decides only where these do not."""

from __future__ import annotations

import bz2
import codecs
import json
import lzma
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

FileFormat = Literal["parquet", "jsonl", "packed jsonl", "csv", "xml", "excel"]
STAGED_FORMATS = ("packed jsonl", "csv", "xml", "excel")
"""Formats that can only be read from the beginning, and are converted to Parquet before any work."""

HEAD_BYTES = 8192
"""Number of bytes that are inspected at the start of a file."""

_ENDINGS: dict[FileFormat, tuple[str, ...]] = {
    "parquet": (".parquet", ".pq", ".parq"),
    "jsonl": (".jsonl", ".ndjson", ".jsonlines", ".jl", ".json"),
    "csv": (".csv", ".tsv", ".psv", ".tab"),
    "excel": (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"),
}


@dataclass(frozen=True, slots=True)
class FileKind:
    """Kind of a file.

    Attributes:
        what: name for a person, as used in a list.
        format: reader format; None if it is not read.
        way_out: how to make it readable.
        is_data: whether it may hold rows; if so, leaving it out causes a warning.
        is_refused: whether it was surely meant to be read; if so, it is refused rather than left out.
    """

    what: str
    format: FileFormat | None = None
    way_out: str = "store it as Parquet or JSON Lines"
    is_data: bool = True
    is_refused: bool = False


PARQUET = FileKind("Parquet", "parquet")
JSONL = FileKind("JSON Lines", "jsonl")
CSV = FileKind("CSV", "csv")
FEED = FileKind("XML feed", "xml")
EXCEL = FileKind("Excel", "excel")
_PACKED = FileKind("packed JSON Lines", "packed jsonl")
KINDS = {kind.format: kind for kind in (PARQUET, JSONL, _PACKED, CSV, FEED, EXCEL)}
SAME_FORMAT: dict[FileFormat | None, FileFormat] = {"packed jsonl": "jsonl"}
"""User-facing format of the formats that only the readers distinguish."""
TEXT = FileKind("text")
XML = FileKind(
    "XML",
    way_out="XML is read if it is a product feed: item elements of an RSS channel, or entry elements of an Atom feed. "
    "Convert other XML to JSON Lines or CSV, a line for each product",
)
MARKUP = FileKind("web page", is_data=False, way_out="download the file again")
UNKNOWN = FileKind("no known kind of data")
HIDDEN = FileKind("hidden", is_data=False, way_out="name it itself: its name begins with _ or .")
SPECIAL = FileKind("no regular file", is_data=False)
OF_RUN = FileKind("file of a run", way_out="name it itself")
IMAGE = FileKind("image", is_data=False)
EMPTY = FileKind("empty", is_data=False, way_out="it has no bytes")
MARKER = FileKind("folder marker", is_data=False)
WINDOWS = FileKind("Windows file", is_data=False)
UNFINISHED = FileKind("unfinished", way_out="let it be finished and renamed")
BACKUP = FileKind("backup copy", way_out="rename it")

FOLDER_MARKER = "_$folder$"
UNFINISHED_ENDINGS = (
    *(".tmp", ".temp", ".inprogress", ".in-progress", ".incomplete", "._copying_"),
    *(".part", ".partial", ".filepart", ".download", ".crdownload", ".opdownload", ".aria2", ".gstmp"),
)
BACKUP_ENDINGS = ("~", ".bak", ".backup", ".orig", ".old", ".swp")
# Text and what no magic number tells.
BY_ENDING = {
    **dict.fromkeys((".xml", ".rdf"), XML),
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), FileKind("pickle")),
    **dict.fromkeys((".snappy", ".br", ".lzo", ".z", ".deflate"), FileKind("compressed data")),
    **dict.fromkeys((".md", ".txt", ".rst", ".html", ".htm", ".log", ".adoc"), FileKind("text", is_data=False)),
    **dict.fromkeys(
        (".yaml", ".yml", ".toml", ".ini", ".cfg", ".py", ".sql", ".sh", ".r", ".ipynb"),
        FileKind("code or settings", is_data=False),
    ),
    **dict.fromkeys((".crc", ".md5", ".sha1", ".sha256", ".sig", ".asc", ".etag"), FileKind("checksum", is_data=False)),
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg", ".bmp", ".ico", ".heic", ".mp4", ".mov"), IMAGE),
}
NOTES = re.compile(r"(readme|licen[cs]e|notice|changelog|copying|manifest|makefile)\b", re.IGNORECASE)

MAGIC = (
    (
        b"PARE",
        FileKind("encrypted Parquet", way_out="decrypt it: keys cannot be given here", is_refused=True),
    ),
    (b"ORC", FileKind("ORC")),
    (b"Obj\x01", FileKind("Avro")),
    (b"ARROW1", FileKind("Arrow IPC (Feather)")),
    (b"FEA1", FileKind("Feather")),
    (b"SEQ\x04", FileKind("Hadoop sequence file")),
    (b"SEQ\x06", FileKind("Hadoop sequence file")),
    (b"RCF", FileKind("RCFile")),
    (b"SQLite format 3\0", FileKind("SQLite")),
    (b"\x89HDF\r\n\x1a\n", FileKind("HDF5")),
    (b"\x93NUMPY", FileKind("NumPy")),
    (b"\0\x05\x16\x07", FileKind("macOS file", is_data=False)),
    (b"\0\0\0\x01Bud1", FileKind("macOS file", is_data=False)),
    (b"%PDF-", FileKind("PDF", is_data=False)),
    (b"\x89PNG\r\n\x1a\n", IMAGE),
    (b"\xff\xd8\xff", IMAGE),
    (b"GIF8", IMAGE),
    (b"7z\xbc\xaf\x27\x1c", FileKind("7z archive", way_out="unpack it")),
    (b"Rar!\x1a\x07", FileKind("RAR archive", way_out="unpack it")),
)
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
OFFICE_ENDINGS = (".xlsx", ".xlsm", ".xlsb", ".ods", ".docx", ".odt", ".pptx")
OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


@dataclass(frozen=True, slots=True)
class Compression:
    """A compression of files.

    Attributes:
        endings: file endings that the tool uses to name its output.
        is_read: whether compressed text can be read as a stream.
        begin: decompresses the first bytes, where that needs no library.
    """

    name: str
    magic: bytes
    command: str
    endings: tuple[str, ...] = ()
    begin: Callable[[bytes], bytes] | None = None
    is_read: bool = True


COMPRESSIONS = (
    Compression(
        "gzip", b"\x1f\x8b", "gunzip", (".gz",), lambda head: zlib.decompressobj(31).decompress(head, HEAD_BYTES)
    ),
    Compression(
        "bzip2", b"BZh", "bunzip2", (".bz2", ".bz"), lambda head: bz2.BZ2Decompressor().decompress(head, HEAD_BYTES)
    ),
    Compression(
        "xz", b"\xfd7zXZ\0", "unxz", (".xz",), lambda head: lzma.LZMADecompressor().decompress(head, HEAD_BYTES)
    ),
    Compression("zstd", b"\x28\xb5\x2f\xfd", "unzstd", (".zst",)),
    Compression("lz4", b"\x04\x22\x4d\x18", "unlz4", (".lz4",)),
    Compression("snappy", b"\xff\x06\0\0sNaPpY", "snzip -d", (".sz",), is_read=False),
    Compression("zip", b"PK\x03\x04", "unzip", is_read=False),
)


def unpacked_name(name: str) -> str:
    """Return the name without the ending of a compression."""
    endings = (ending for each in COMPRESSIONS for ending in each.endings if name.lower().endswith(ending))
    return name[: -len(ending)] if (ending := next(endings, "")) else name


def ending_format(leaf: str) -> FileFormat | None:
    """Return the format that a file's ending promises; None if there is none."""
    return next((each for each, endings in _ENDINGS.items() if leaf.lower().endswith(endings)), None)


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
    is_refused = within.format is not None or within.is_refused
    way_out = f"unpack it ({compression.command})"
    return FileKind(what, way_out=way_out, is_data=within.is_data or not inner, is_refused=is_refused)


_MARKS = (
    # UTF-32's mark begins like UTF-16's.
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
# An ASCII character and the zeros beside it.
_UNMARKED = (
    (re.compile(rb"[ -~\t\r\n]\0\0\0", re.DOTALL), "UTF-32LE"),
    (re.compile(rb"\0\0\0[ -~\t\r\n]", re.DOTALL), "UTF-32BE"),
    (re.compile(rb"[ -~\t\r\n]\0[^\0]", re.DOTALL), "UTF-16LE"),
    (re.compile(rb"\0[ -~\t\r\n]\0", re.DOTALL), "UTF-16BE"),
)
_FEW_CONTROLS = 0.05  # of the bytes of a text
_LONG_LINE = re.compile(rb'\{\s*"')
_FEED_ROOT = re.compile(rb"<(rss|feed|rdf:RDF)\b", re.IGNORECASE)
_GOOGLE = b"base.google.com/ns/1.0"
_HEADER = re.compile(rb"(?![\[{<])[^\0-\x08\x0a-\x1f\x7f,;|\t]*[,;|\t][^\0-\x08\x0a-\x1f\x7f]*[\r\n]")
_TABS = re.compile(rb"[^\t\r\n]*(\t[^\t\r\n]*){2,}")
_PAGE = re.compile(rb"<(!doctype html|html|head|body)\b", re.IGNORECASE)
_JSON_TEXTS = re.compile(rb"[\[{]")


def text_encoding(head: bytes) -> str | None:
    """Return a text's encoding if its first bytes show it: a byte order mark, or the zeros of UTF-16 and UTF-32."""
    return "utf-8" if head.startswith(codecs.BOM_UTF8) else wide_encoding(head)


def wide_encoding(head: bytes) -> str | None:
    """Return UTF-16 or UTF-32 if a byte order mark, or the zeros of ASCII characters in it, show it; else None."""
    marked = next((name for mark, name in _MARKS if head.startswith(mark)), None)
    return marked or next((name for pattern, name in _UNMARKED if pattern.match(head)), None)


def kind_of_text(head: bytes) -> FileKind:
    """Return the kind of a file that is of no other format and not UTF-16: some text, or unknown."""
    head = head.removeprefix(codecs.BOM_UTF8)
    found = _of_text(head)
    return UNKNOWN if found is TEXT and is_binary(head) and not _JSON_TEXTS.match(head.lstrip()) else found


def _of_text(head: bytes) -> FileKind:
    text = head.lstrip()
    if text.startswith(b"<"):
        if _GOOGLE in head and _FEED_ROOT.search(text):
            return FEED
        return MARKUP if _PAGE.match(text) else XML if text.startswith((b"<?xml", b"<Error>")) else TEXT
    if not _JSON_TEXTS.match(text):
        return TEXT
    if b"\n" not in text.rstrip() and b"\r" in text.rstrip() and is_json_object(text.split(b"\r", 1)[0]):
        return FileKind(
            "JSON Lines whose lines end with CR alone",
            way_out=r"give it line feeds (tr '\r' '\n')",
            is_refused=True,
        )
    lines = text.split(b"\n")
    if len(head) >= HEAD_BYTES - len(codecs.BOM_UTF8):
        del lines[-1]  # goes on behind what is looked at
    if text.startswith(b"[") and not (lines and _is_json(lines[0]) and any(line.strip() for line in lines[1:])):
        return FileKind("one JSON array, not an object a line", way_out="convert it (jq -c '.[]')")
    if any(is_json_object(line) for line in lines) or (not lines and _LONG_LINE.match(text)):
        return JSONL
    if lines and lines[0].rstrip().endswith((b"{", b"[", b",", b":")):
        return FileKind("one JSON object over several lines, not one a line", way_out="convert it (jq -c .)")
    return TEXT


def kind_of_wide_text(head: bytes, encoding: str) -> FileKind:
    """Return the kind of a text in UTF-16 or UTF-32."""
    text = head.decode(encoding, "replace").lstrip("\ufeff \t\r\n")
    if text.startswith("<") and _GOOGLE.decode() in text:
        return FEED
    way_out = f"convert it (iconv -f {encoding} -t UTF-8)"
    return FileKind(f"text in {encoding}, not UTF-8", way_out=way_out, is_refused=text.startswith(("{", "[")))


def is_table(head: bytes) -> bool:
    """Return whether lines of text are rows of a tab-separated file, as in feeds called .txt."""
    lines = [line for line in head.split(b"\n")[:-1] if line.strip()][:20]
    return len(lines) > 1 and all(map(_TABS.match, lines)) and len({line.count(b"\t") for line in lines}) == 1


def has_header(head: bytes) -> bool:
    """Return whether the first line can hold column names: several, all of them text. The other lines do not matter."""
    return _HEADER.match(head) is not None


def is_binary(head: bytes) -> bool:
    """Return whether there are zeros or many other control characters, as in no text."""
    return b"\0" in head[:1024] or not has_few_controls(head)


def has_few_controls(head: bytes) -> bool:
    """Return whether there are no more control characters than a damaged text may have."""
    beginning = head[:1024]
    count = sum(byte < 32 and byte not in b"\t\n\r\f" for byte in beginning)
    return count <= _FEW_CONTROLS * len(beginning)


def is_json_object(line: bytes) -> bool:
    """Return whether a line is one whole JSON object."""
    line = line.strip()
    return line.startswith(b"{") and line.endswith(b"}") and _is_json(line)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line.decode(errors="replace"), parse_int=str)
    except (ValueError, RecursionError):
        return False
    return True
