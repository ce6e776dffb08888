"""What a file is, told by its first bytes; its name decides only where these do not."""

from __future__ import annotations

import bz2
import codecs
import json
import lzma
import os
import re
import shlex
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

FileFormat = Literal["parquet", "jsonl", "csv", "xml", "excel"]
STAGED_FORMATS = ("csv", "xml", "excel")
"""Those that are read from the beginning on only, and turned into Parquet before any work."""

HEAD_BYTES = 8192
"""So much of a file is looked at."""

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
class Kind:
    """What a file is.

    Attributes:
        what: for a person, as it stands in a list of things.
        format: how it is read; None where it is not.
        way_out: what makes it readable, in a template for `remedy`.
        is_data: it may hold rows: left out, it is warned of.
        is_refused: it was surely meant to be read: among others it is refused, not left out.
    """

    what: str
    format: FileFormat | None = None
    way_out: str = "store it as Parquet or JSON Lines"
    is_data: bool = True
    is_refused: bool = False

    def remedy(self, name: str) -> str:
        """The way out of one file: a command in it can be run as it stands, and leaves nothing that is refused again.

        Args:
            name: as the user wrote it.
        """
        note, local = "", name.removeprefix("file://")
        if "FILE" in self.way_out and "://" in local:
            note, local = "in a copy of it, which then replaces it: ", local.rpartition("/")[2]
        folder = local.rpartition("/")[0] or "."
        words = {"FILE": _shell_word(local), "FOLDER": _shell_word(folder)}
        return note + re.sub("FILE|FOLDER", lambda match: words[match[0]], self.way_out)


def _shell_word(name: str) -> str:
    """A name as one word of a command, whatever is in it."""
    if name.startswith("-"):
        name = f"./{name}"
    if name.isprintable():
        return shlex.quote(name)
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b"'\\" else f"\\x{byte:02x}" for byte in os.fsencode(name))
    return f"$'{''.join(plain)}'"


def sql_in_quotes(name: str) -> str:
    """A name between single quotes of SQL that stands between double quotes of a shell."""
    return re.sub(r'[\\"$`]', r"\\\g<0>", name.replace("'", "''"))


_PARQUET = Kind("Parquet", "parquet")
_JSONL = Kind("JSON Lines", "jsonl")
_CSV = Kind("CSV", "csv")
_FEED = Kind("XML feed", "xml")
_EXCEL = Kind("Excel", "excel")
_KINDS: dict[FileFormat, Kind] = {"parquet": _PARQUET, "jsonl": _JSONL, "csv": _CSV, "xml": _FEED, "excel": _EXCEL}
_TEXT = Kind("text")
_XML = Kind("XML")
_MARKUP = Kind("web page", is_data=False, way_out="download the file again")
_UNKNOWN = Kind("no known kind of data")
HIDDEN = Kind("hidden", is_data=False, way_out="its name begins with _ or .; name it itself to have it read")
SPECIAL = Kind("no regular file", is_data=False)
_IMAGE = Kind("image", is_data=False)
_EMPTY = Kind("empty", is_data=False, way_out="it has no bytes")
_MARKER = Kind("folder marker", is_data=False)
_WINDOWS = Kind("Windows file", is_data=False)
_UNFINISHED = Kind("unfinished", way_out="let it be finished and renamed")
_BACKUP = Kind("backup copy", way_out="rename it")

_FOLDER_MARKER = "_$folder$"
_UNFINISHED_ENDINGS = (
    *(".tmp", ".temp", ".inprogress", ".in-progress", ".incomplete", "._copying_"),
    *(".part", ".partial", ".filepart", ".download", ".crdownload", ".opdownload", ".aria2", ".gstmp"),
)
_BACKUP_ENDINGS = ("~", ".bak", ".backup", ".orig", ".old", ".swp")
# Text and what no magic number tells.
_BY_ENDING = {
    **dict.fromkeys((".xml", ".rdf"), _XML),
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), Kind("pickle")),
    **dict.fromkeys((".snappy", ".br", ".lzo", ".z", ".deflate"), Kind("compressed data")),
    **dict.fromkeys((".md", ".txt", ".rst", ".html", ".htm", ".log", ".adoc"), Kind("text", is_data=False)),
    **dict.fromkeys(
        (".yaml", ".yml", ".toml", ".ini", ".cfg", ".py", ".sql", ".sh", ".r", ".ipynb"),
        Kind("code or settings", is_data=False),
    ),
    **dict.fromkeys((".crc", ".md5", ".sha1", ".sha256", ".sig", ".asc", ".etag"), Kind("checksum", is_data=False)),
    **dict.fromkeys(
        (".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg", ".bmp", ".ico", ".heic", ".mp4", ".mov"), _IMAGE
    ),
}
_NOTES = re.compile(r"(readme|licen[cs]e|notice|changelog|copying|manifest|makefile)\b", re.IGNORECASE)

_MAGIC = (
    (
        b"PARE",
        Kind("encrypted Parquet", way_out="decrypt it: keys cannot be given here", is_refused=True),
    ),
    (b"ORC", Kind("ORC")),
    (b"Obj\x01", Kind("Avro")),
    (b"ARROW1", Kind("Arrow IPC (Feather)")),
    (b"FEA1", Kind("Feather")),
    (b"SEQ\x04", Kind("Hadoop sequence file")),
    (b"SEQ\x06", Kind("Hadoop sequence file")),
    (b"RCF", Kind("RCFile")),
    (b"SQLite format 3\0", Kind("SQLite")),
    (b"\x89HDF\r\n\x1a\n", Kind("HDF5")),
    (b"\x93NUMPY", Kind("NumPy")),
    (b"\0\x05\x16\x07", Kind("macOS file", is_data=False)),
    (b"\0\0\0\x01Bud1", Kind("macOS file", is_data=False)),
    (b"%PDF-", Kind("PDF", is_data=False)),
    (b"\x89PNG\r\n\x1a\n", _IMAGE),
    (b"\xff\xd8\xff", _IMAGE),
    (b"GIF8", _IMAGE),
    (b"7z\xbc\xaf\x27\x1c", Kind("7z archive", way_out="unpack it")),
    (b"Rar!\x1a\x07", Kind("RAR archive", way_out="unpack it")),
)
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_OFFICE_ENDINGS = (".xlsx", ".xlsm", ".xlsb", ".ods", ".docx", ".odt", ".pptx")
_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


@dataclass(frozen=True, slots=True)
class _Compression:
    """How files are compressed.

    Attributes:
        endings: by which the tool knows what to call the result.
        options: with which the tool puts the result into the file's place.
        is_read: text behind it can be read as a stream.
        begin: decompresses the first bytes, where that needs no library.
    """

    name: str
    magic: bytes
    command: str
    endings: tuple[str, ...] = ()
    begin: Callable[[bytes], bytes] | None = None
    options: str = ""
    is_read: bool = True


_COMPRESSIONS = (
    _Compression(
        "gzip", b"\x1f\x8b", "gunzip", (".gz",), lambda head: zlib.decompressobj(31).decompress(head, HEAD_BYTES)
    ),
    _Compression(
        "bzip2", b"BZh", "bunzip2", (".bz2", ".bz"), lambda head: bz2.BZ2Decompressor().decompress(head, HEAD_BYTES)
    ),
    _Compression(
        "xz", b"\xfd7zXZ\0", "unxz", (".xz",), lambda head: lzma.LZMADecompressor().decompress(head, HEAD_BYTES)
    ),
    _Compression("zstd", b"\x28\xb5\x2f\xfd", "unzstd", (".zst",), options="--rm "),
    _Compression("lz4", b"\x04\x22\x4d\x18", "unlz4", (".lz4",), options="-m --rm "),
    _Compression("snappy", b"\xff\x06\0\0sNaPpY", "snzip -d", (".sz",), is_read=False),
    _Compression("zip", b"PK\x03\x04", "unzip", is_read=False),
)
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


def ending_format(leaf: str) -> FileFormat | None:
    """The format that a file's name promises."""
    name = leaf.lower()
    return next((file_format for ending, file_format in _ENDINGS.items() if name.endswith(ending)), None)


def kind_of(leaf: str, head: bytes, configured: Literal["auto"] | FileFormat = "auto") -> Kind:
    """What a file is.

    Args:
        leaf: its name without folders.
        head: its first `HEAD_BYTES` bytes; all of them, if there are fewer.
        configured: the format that the user says it has: then it is that, or refused.
    """
    found = _kind_of(leaf, head, ending_format(leaf) if configured == "auto" else configured)
    if configured == "auto" or found.format == configured or found in (_EMPTY, _MARKER):
        return found
    told = kind_of(leaf, head)
    way_out = told.way_out if told.is_refused else "leave out input.format"
    return Kind(told.what, None, way_out, is_refused=True)


def _kind_of(leaf: str, head: bytes, promised: FileFormat | None) -> Kind:
    name = leaf.lower()
    if name in ("thumbs.db", "desktop.ini") or name.startswith("~$"):
        return _WINDOWS
    if name.endswith(_FOLDER_MARKER):
        return _MARKER
    if name.endswith(_UNFINISHED_ENDINGS):
        return _UNFINISHED
    if name.endswith(_BACKUP_ENDINGS):
        return _BACKUP
    if not head:
        if promised == "parquet":
            return Kind("empty", way_out="write it again", is_refused=True)
        return _EMPTY if promised is None else _KINDS[promised]
    found = _by_content(leaf, head, promised)
    is_lines = found is _TEXT or (found is _UNKNOWN and any(map(_is_object, head.split(b"\n"))))
    if found is _MARKUP and promised == "excel":
        return Kind(found.what, way_out="open it in a spreadsheet program and save it as .xlsx", is_refused=True)
    if is_lines and promised == "excel":
        # What many systems call .xls is text with tabs.
        return _CSV if _has_header(head) else Kind("text", way_out="save it as .xlsx", is_refused=True)
    if is_lines and promised is not None and promised != "parquet":
        # Its lines say what is wrong with them.
        return _KINDS[promised]
    if (
        found.format is None
        and promised == "csv"
        and (text_encoding(head) is not None or (found is _UNKNOWN and (_has_header(head) or _has_few_controls(head))))
    ):
        return _CSV
    if found.format is None and promised is not None:
        return Kind(found.what, None, found.way_out, is_refused=True)
    named = _by_name(name)
    if found is _TEXT and named is not None and named.what == "text" and not _NOTES.match(name) and _is_table(head):
        return _CSV
    if named is not None and (found in (_TEXT, _UNKNOWN) or (found.format is None and not named.is_data)):
        return named
    return found


def _by_name(name: str) -> Kind | None:
    if _NOTES.match(name):
        return Kind("text", is_data=False)
    return next((kind for ending, kind in _BY_ENDING.items() if name.endswith(ending)), None)


def _by_content(leaf: str, head: bytes, promised: FileFormat | None) -> Kind:
    if _has_header(head) and (promised == "csv" or not _is_binary(head)):
        # A first column PARENT_SKU begins as encrypted Parquet does, ORCID as ORC.
        return _of_characters(head)
    if head.startswith(b"PAR1"):
        return _PARQUET
    if head.startswith(_LFS_POINTER):
        return Kind("Git LFS pointer, not the file itself", way_out="fetch the files: git lfs pull", is_refused=True)
    for compression in _COMPRESSIONS:
        if head.startswith(compression.magic):
            return _compressed(leaf, head, compression, promised)
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if head.startswith(_OLD_OFFICE):
        return _EXCEL if leaf.lower().endswith(".xls") else Kind("Office file")
    if head[8:12] == b"DUCK":
        return Kind("DuckDB")
    if head[8:12] == b"WEBP":
        return _IMAGE
    if head[257:262] == b"ustar":
        return Kind("tar archive", way_out="unpack it")
    if (encoding := _wide_encoding(head)) is not None:
        return _wide_text(head, encoding)
    if not head.strip(b"\0"):
        return Kind("NUL bytes alone", way_out="copy it again: its content is lost")
    return _of_characters(head)


def _of_characters(head: bytes) -> Kind:
    head = head.removeprefix(codecs.BOM_UTF8)
    found = _of_text(head)
    return _UNKNOWN if found is _TEXT and _is_binary(head) and not _JSON_TEXTS.match(head.lstrip()) else found


def _compressed(leaf: str, head: bytes, compression: _Compression, promised: FileFormat | None) -> Kind:
    """Data behind a compression: CSV and XML are read from the beginning on. JSON Lines and Parquet are refused: bytes
    in the midst cannot be found."""
    if compression.name == "zip" and leaf.lower().endswith(_OFFICE_ENDINGS):
        return _EXCEL if ending_format(leaf) == "excel" else Kind("Office file")
    stem = leaf.rsplit(".", 1)[0]
    promised, inner = ending_format(stem) or promised, b""
    if compression.begin is not None:
        try:
            inner = compression.begin(head)
        except (OSError, ValueError, EOFError, zlib.error, lzma.LZMAError):
            return Kind(f"damaged {compression.name}", way_out="write it again", is_refused=promised is not None)
    within = _kind_of(stem, inner, promised) if inner or promised is None else _KINDS[promised]
    if within.format in ("csv", "xml") and compression.is_read:
        return Kind(f"{compression.name} around {within.what}", within.format)
    what = compression.name if within in (_UNKNOWN, _EMPTY) else f"{compression.name} around {within.what}"
    if compression.name == "zip":
        way_out = "unpack it: unzip FILE -d FOLDER && rm FILE"
    elif leaf.endswith(compression.endings):
        way_out = f"decompress it: {compression.command} {compression.options}FILE"
    else:
        way_out = "decompress it: " + _in_place(f"{compression.command} < FILE")
    is_refused = within.format is not None or within.is_refused
    return Kind(what, way_out=way_out, is_data=within.is_data or not inner, is_refused=is_refused)


def _in_place(command: str) -> str:
    """A command that replaces a file by what another one makes of it."""
    return f"{command} > FILE.new && mv FILE.new FILE"


def text_encoding(head: bytes) -> str | None:
    """What a text is written in, if its first bytes tell: a byte order mark, or the zeros of UTF-16 and UTF-32."""
    return "utf-8" if head.startswith(codecs.BOM_UTF8) else _wide_encoding(head)


def _is_table(head: bytes) -> bool:
    """Whether lines of text are rows of a tab-separated file, as feeds called .txt are."""
    lines = [line for line in head.split(b"\n")[:-1] if line.strip()][:20]
    return len(lines) > 1 and all(map(_TABS.match, lines)) and len({line.count(b"\t") for line in lines}) == 1


def _wide_encoding(head: bytes) -> str | None:
    """UTF-16 or UTF-32, by a byte order mark or by the zeros that ASCII characters have there."""
    marked = next((name for mark, name in _MARKS if head.startswith(mark)), None)
    return marked or next((name for pattern, name in _UNMARKED if pattern.match(head)), None)


def _wide_text(head: bytes, encoding: str) -> Kind:
    text = head.decode(encoding, "replace").lstrip("\ufeff \t\r\n")
    if text.startswith("<") and _GOOGLE.decode() in text:
        return _FEED
    way_out = "convert it: " + _in_place(f"iconv -f {encoding} -t UTF-8 FILE")
    return Kind(f"text in {encoding}, not UTF-8", way_out=way_out, is_refused=text.startswith(("{", "[")))


def _is_binary(head: bytes) -> bool:
    """Whether there are zeros or many other control characters, as no text has."""
    return b"\0" in head[:1024] or not _has_few_controls(head)


def _has_few_controls(head: bytes) -> bool:
    beginning = head[:1024]
    count = sum(byte < 32 and byte not in b"\t\n\r\f" for byte in beginning)
    return count <= _FEW_CONTROLS * len(beginning)


def _has_header(head: bytes) -> bool:
    """Whether the first line can be names of columns: several, and nothing but text. Whatever the cells hold."""
    return _HEADER.match(head) is not None


def _of_text(head: bytes) -> Kind:
    text = head.lstrip()
    if text.startswith(b"<"):
        if _GOOGLE in head and _FEED_ROOT.search(text):
            return _FEED
        return _MARKUP if _PAGE.match(text) else _XML if text.startswith((b"<?xml", b"<Error>")) else _TEXT
    if not _JSON_TEXTS.match(text):
        return _TEXT
    if b"\n" not in text.rstrip() and b"\r" in text.rstrip() and _is_object(text.split(b"\r", 1)[0]):
        return Kind(
            "JSON Lines whose lines end with CR alone",
            way_out="give it line feeds: " + _in_place(r"tr '\r' '\n' < FILE"),
            is_refused=True,
        )
    lines = text.split(b"\n")
    if len(head) >= HEAD_BYTES - len(codecs.BOM_UTF8):
        del lines[-1]  # goes on behind what is looked at
    if text.startswith(b"[") and not (lines and _is_json(lines[0]) and any(line.strip() for line in lines[1:])):
        return Kind("one JSON array, not an object a line", way_out="convert it: " + _in_place("jq -c '.[]' FILE"))
    if any(_is_object(line) for line in lines) or (not lines and _LONG_LINE.match(text)):
        return _JSONL
    if lines and lines[0].rstrip().endswith((b"{", b"[", b",", b":")):
        way_out = "convert it: " + _in_place("jq -c . FILE")
        return Kind("one JSON object over several lines, not one a line", way_out=way_out)
    return _TEXT


def _is_object(line: bytes) -> bool:
    line = line.strip()
    return line.startswith(b"{") and line.endswith(b"}") and _is_json(line)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line.decode(errors="replace"), parse_int=str)
    except (ValueError, RecursionError):
        return False
    return True
