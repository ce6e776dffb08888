"""Kinds of files: the endings and first bytes that identify each, and what makes it readable."""

from __future__ import annotations

import bz2
import lzma
import os
import re
import shlex
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

FileFormat = Literal["parquet", "jsonl", "packed jsonl", "csv", "xml", "excel"]
STAGED_FORMATS = ("packed jsonl", "csv", "xml", "excel")
"""Formats that can only be read from the beginning, and are converted to Parquet before any work."""

HEAD_BYTES = 8192
"""Number of bytes that are inspected at the start of a file."""

_ENDINGS: dict[str, FileFormat] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".parq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".jsonlines": "jsonl",
    ".jl": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".psv": "csv",
    ".tab": "csv",
    ".xlsx": "excel",
    ".xlsm": "excel",
    ".xlsb": "excel",
    ".xls": "excel",
    ".ods": "excel",
}


@dataclass(frozen=True, slots=True)
class FileKind:
    """Kind of a file.

    Attributes:
        what: name for a person, as used in a list.
        format: reader format; None if it is not read.
        way_out: how to make it readable, as a template for `remedy`.
        is_data: whether it may hold rows; if so, leaving it out causes a warning.
        is_refused: whether it was surely meant to be read; if so, it is refused rather than left out.
    """

    what: str
    format: FileFormat | None = None
    way_out: str = "store it as Parquet or JSON Lines"
    is_data: bool = True
    is_refused: bool = False

    def remedy(self, name: str) -> str:
        """Return how to make one file readable: a command can be run as written, and leaves nothing refused again.

        Args:
            name: name as the user wrote it.
        """
        note, local = "", name.removeprefix("file://")
        if "FILE" in self.way_out and "://" in local:
            note, local = "in a copy of it, which then replaces it: ", local.rpartition("/")[2]
        folder = local.rpartition("/")[0] or "."
        words = {"FILE": _shell_word(local), "FOLDER": _shell_word(folder)}
        return note + re.sub("FILE|FOLDER", lambda match: words[match[0]], self.way_out)


def _shell_word(name: str) -> str:
    """Quote a name as one word of a shell command, whatever it holds."""
    if name.startswith("-"):
        name = f"./{name}"
    if name.isprintable():
        return shlex.quote(name)
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b"'\\" else f"\\x{byte:02x}" for byte in os.fsencode(name))
    return f"$'{''.join(plain)}'"


def sql_in_quotes(name: str) -> str:
    """Escape a name for single quotes of SQL within double quotes of a shell."""
    return re.sub(r'[\\"$`]', r"\\\g<0>", name.replace("'", "''"))


PARQUET = FileKind("Parquet", "parquet")
JSONL = FileKind("JSON Lines", "jsonl")
PACKED_JSONL = FileKind("packed JSON Lines", "packed jsonl")
CSV = FileKind("CSV", "csv")
FEED = FileKind("XML feed", "xml")
EXCEL = FileKind("Excel", "excel")
KINDS: dict[FileFormat, FileKind] = {
    "parquet": PARQUET,
    "jsonl": JSONL,
    "packed jsonl": PACKED_JSONL,
    "csv": CSV,
    "xml": FEED,
    "excel": EXCEL,
}
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
HIDDEN = FileKind("hidden", is_data=False, way_out="its name begins with _ or .; name it itself to have it read")
SPECIAL = FileKind("no regular file", is_data=False)
OF_RUN = FileKind("file of a run", way_out="name it itself to have it read")
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
        options: options that make the tool replace the file by its output.
        is_read: whether compressed text can be read as a stream.
        begin: decompresses the first bytes, where that needs no library.
    """

    name: str
    magic: bytes
    command: str
    endings: tuple[str, ...] = ()
    begin: Callable[[bytes], bytes] | None = None
    options: str = ""
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
    Compression("zstd", b"\x28\xb5\x2f\xfd", "unzstd", (".zst",), options="--rm "),
    Compression("lz4", b"\x04\x22\x4d\x18", "unlz4", (".lz4",), options="-m --rm "),
    Compression("snappy", b"\xff\x06\0\0sNaPpY", "snzip -d", (".sz",), is_read=False),
    Compression("zip", b"PK\x03\x04", "unzip", is_read=False),
)


def in_place(command: str) -> str:
    """Return a command that replaces a file by the output of `command`."""
    return f"{command} > FILE.new && mv FILE.new FILE"


def unpacked_name(name: str) -> str:
    """Return the name without the ending of a compression."""
    endings = (ending for each in COMPRESSIONS for ending in each.endings if name.lower().endswith(ending))
    return name[: -len(ending)] if (ending := next(endings, "")) else name


def ending_format(leaf: str) -> FileFormat | None:
    """Return the format that a file's ending promises; None if there is none."""
    name = leaf.lower()
    return next((file_format for ending, file_format in _ENDINGS.items() if name.endswith(ending)), None)
