"""Detection of text by its first bytes: encoding; JSON Lines, table, feed or web page."""

from __future__ import annotations

import codecs
import json
import re

from pipelines.catalog.file_kinds import FEED, HEAD_BYTES, JSONL, MARKUP, TEXT, UNKNOWN, XML, FileKind, in_place

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
            way_out="give it line feeds: " + in_place(r"tr '\r' '\n' < FILE"),
            is_refused=True,
        )
    lines = text.split(b"\n")
    if len(head) >= HEAD_BYTES - len(codecs.BOM_UTF8):
        del lines[-1]  # goes on behind what is looked at
    if text.startswith(b"[") and not (lines and _is_json(lines[0]) and any(line.strip() for line in lines[1:])):
        return FileKind("one JSON array, not an object a line", way_out="convert it: " + in_place("jq -c '.[]' FILE"))
    if any(is_json_object(line) for line in lines) or (not lines and _LONG_LINE.match(text)):
        return JSONL
    if lines and lines[0].rstrip().endswith((b"{", b"[", b",", b":")):
        way_out = "convert it: " + in_place("jq -c . FILE")
        return FileKind("one JSON object over several lines, not one a line", way_out=way_out)
    return TEXT


def kind_of_wide_text(head: bytes, encoding: str) -> FileKind:
    """Return the kind of a text in UTF-16 or UTF-32."""
    text = head.decode(encoding, "replace").lstrip("\ufeff \t\r\n")
    if text.startswith("<") and _GOOGLE.decode() in text:
        return FEED
    way_out = "convert it: " + in_place(f"iconv -f {encoding} -t UTF-8 FILE")
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
