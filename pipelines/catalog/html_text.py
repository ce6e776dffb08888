"""HTML read as the text that it shows, with the way back to where each character stands.

`auto` reads markup only where it can be nothing else: elements that HTML has, in a text that shows itself to be HTML (a
closing tag, an attribute, `<br>`), and characters that HTML names. "a < b", "R&D", "size <M>" and `List<T>` stay.

The parsers at hand tell no character's place in the original, and all of them swallow `<M>`. Python's own one also
changes from patch to patch what it makes of damaged markup, and with it what a model would read. So this reads by
itself; the names of characters are the standard library's.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from html.entities import html5

from pipelines.config.extraction import HtmlMode


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Elements by what they do to the text around them; those that do nothing are known all the same.
_LINES = _names(
    "address article aside blockquote body br caption center dd details dialog dir div dl dt fieldset figcaption "
    "figure footer form frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li listing main menu nav noframes "
    "ol optgroup option p pre search section summary table tbody tfoot thead title tr ul"
)
_CELLS = _names("td th")
_OBJECTS = _names("audio button canvas embed iframe img input meter object picture progress select video")
_INLINE = _names(
    "a abbr acronym applet area b base basefont bdi bdo big blink cite code col colgroup data datalist del dfn em font "
    "frame i ins kbd label link map mark marquee meta nobr noembed noscript output param q rp rt ruby s samp script "
    "slot small source span strike strong style sub sup svg template textarea time track tt u var wbr"
)
_KNOWN = _LINES | _CELLS | _OBJECTS | _INLINE
_VOID = _names("area base br col embed frame hr img input link meta param source track wbr")
# Their content is not shown; it goes on to their closing tag, whatever stands in it.
_UNSEEN = {
    name: re.compile(rf"</{name}\b", re.IGNORECASE)
    for name in ("iframe", "noembed", "noframes", "script", "style", "svg", "template", "title")
}
# Whose closing tag may be left out, or that may be all that is left of a field that was cut.
_TELLING_ALONE = _names("br dd dt hr li p td th tr wbr")
_TELLING_FIRST = _TELLING_ALONE | _names("body center div dl em font h1 h2 h3 h4 h5 h6 html ol span strong table ul")
_OFFICE = re.compile(r"(?:o|v|w|m|x|st\d):\w+")  # elements that word processors add

_NAME = r"[a-zA-Z][a-zA-Z0-9]*(?:[:-][\w:-]*)?"
_ENTITY_TEXT = r"""
    &(?P<again>(?:amp;)*)(?:
        \#(?:(?P<decimal>\d{1,7})|[xX](?P<hex>[0-9a-fA-F]{1,6}));?
        | (?P<entity>[a-zA-Z][a-zA-Z0-9]*)(?P<named>;)?)
    """
_ENTITY = re.compile(_ENTITY_TEXT, re.VERBOSE)
_MARKUP = re.compile(
    rf"""
    (?P<hidden>
        <!--(?:-?>|.*?(?:--!?>|\Z)) | <!\[CDATA\[
        | <!doctype\b[^<>]*> | <!\[(?:if|else|endif)\b[^<>]*> | <\?[a-z](?:[^<]*?\?>|[^<>]*>)
    )
    | (?P<data_end>\]\]>)
    | <(?P<close>\\?/)?(?P<name>{_NAME})(?=[\s/>]|\Z|(?(close)<))
      (?:(?P<attributes>(?:[^<>=]|=\s*(?:"[^"]*"|'[^']*')|=)*+)>
         | (?P<loose>[^<>]*)> | (?P<cut>\s*/?|\s+[\w:@.-]+\s*(?:=[^<>]*)?)\Z | (?(close)(?=<)|(?!)))
    | (?P<stump></?\Z)
    | {_ENTITY_TEXT}
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_ASSIGNMENT = re.compile(r"\s+[\w:@.-]+\s*=")
# Taken without a semicolon where nothing else is markup; others are mostly the end of something: "&section" of a URL.
_CORE_ENTITIES = frozenset(("amp", "lt", "gt", "quot", "nbsp", "copy", "reg", "deg"))
_SPACES, _ZERO_WIDTH = " \t\n\r\f\v\u00a0", "\u00ad\u200b\u2060\ufeff"
# Some exports write a line end between two tags in letters.
_RUN = re.compile(
    rf"(?P<space>[{_SPACES}]+|(?<![^\s>])(?:\\r)?\\n(?=\s*(?:\\n|\Z)))|[{_ZERO_WIDTH}]+"
    rf"|(?P<text>\\?[^{_SPACES}{_ZERO_WIDTH}\\]*(?:[ ][^{_SPACES}{_ZERO_WIDTH}\\]+)*)"
)
_RAISED = re.compile(r"([+\-−]?\d{1,3}|n)</sup\s*>(?P<over>\s*(?:[/⁄∕]|&frasl;|&sol;|&#47;|&#8260;))?", re.IGNORECASE)
_SUPERSCRIPT = str.maketrans("0123456789+-−nN", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻ⁿⁿ")
_NBSP, _SPACE, _CELL, _LINE = "\u00a0", " ", " | ", "\n"
_STRENGTH = {"": 0, _NBSP: 1, _SPACE: 2, _CELL: 3, _LINE: 4}
# What was escaped twice is read in a second round, and so on; nobody escapes that often in earnest.
_MAX_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class ShownText:
    """The text that a field shows. Character i comes from the original's [starts[i], ends[i]).

    A line break that stands for a tag comes from the tag; in front of it and behind it nothing else is covered.
    """

    text: str
    starts: Sequence[int]
    ends: Sequence[int]

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """Where in the original the characters [start, end) come from; there must be at least one."""
        return self.starts[start], self.ends[end - 1]

    def shown_span(self, start: int, end: int) -> tuple[int, int]:
        """The characters that come from the original's [start, end) and from nowhere else; there may be none."""
        return bisect_left(self.starts, start), bisect_right(self.ends, end)


def read_html(text: str, mode: HtmlMode) -> ShownText | None:
    """What the markup in `text` shows; None if there is none.

    Args:
        mode: "auto": as described above; "always": whatever looks like a tag is one; "never": there is no markup.
    """
    shown = None
    if mode == "never":
        return None
    for number in range(_MAX_ROUNDS):
        now = text if shown is None else shown.text
        if "<" not in now and "&" not in now:
            break
        read = _Reader(now, always=mode == "always" and number == 0).read()
        if read is None:
            break
        shown = read if shown is None else _joined(read, shown)
    return shown


def _joined(read: ShownText, before: ShownText) -> ShownText:
    """`read` of `before.text`, as of the text in front of that."""
    spans = [before.original_span(start, end) for start, end in zip(read.starts, read.ends, strict=True)]
    return ShownText(read.text, [start for start, _ in spans], [end for _, end in spans])


@dataclass(slots=True)
class _Writer:
    """The text so far. A gap is written when text follows it: never first, never last, the strongest of several."""

    texts: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    gap: str = ""
    gap_start: int = 0
    gap_end: int = 0

    def separate(self, gap: str, start: int, end: int) -> None:
        """`gap` comes from the original's [start, end)."""
        if not self.gap:
            self.gap_start = start
        self.gap_end = end
        if gap == self.gap == _NBSP:
            gap = _SPACE
        if _STRENGTH[gap] > _STRENGTH[self.gap]:
            self.gap = gap

    def write(self, text: str, start: int, end: int) -> None:
        """`text` comes as a whole from the original's [start, end)."""
        self._close_gap()
        self.texts.append(text)
        self.starts += [start] * len(text)
        self.ends += [end] * len(text)

    def copy(self, text: str, start: int) -> None:
        """`text` stands at `start` in the original."""
        self._close_gap()
        self.texts.append(text)
        self.starts += range(start, start + len(text))
        self.ends += range(start + 1, start + len(text) + 1)

    @property
    def last(self) -> str:
        """The last character; "" if there is none, or a gap."""
        return self.texts[-1][-1] if self.texts and not self.gap else ""

    def _close_gap(self) -> None:
        if self.gap and self.texts:
            self.texts.append(self.gap)
            self.starts += [self.gap_start] * len(self.gap)
            self.ends += [self.gap_end] * len(self.gap)
        self.gap = ""


class _Reader:
    """Reads one text once."""

    def __init__(self, text: str, *, always: bool) -> None:
        self._text = text
        self._always = always
        self._out = _Writer()
        found = [match for match in _MARKUP.finditer(text) if match["again"] is None]
        self._closed = {match["name"].lower() for match in found if match["close"]}
        self._first = len(text) - len(text.lstrip())
        self._is_html = always or any(map(self._tells, found))
        self._has_data = self._is_html and "<![cdata[" in text.lower()
        self._unclosed: set[str] = set()  # of those whose content is not shown
        self._depth = 0  # of elements in which a line end is a space

    def read(self) -> ShownText | None:
        """None if there is no markup."""
        read = at = 0
        wanted = _MARKUP if self._is_html else _ENTITY
        while match := wanted.search(self._text, at):
            at = match.start() + 1
            if match["again"] is not None:
                if entity := self._entity(match):
                    self._copy(read, match.start())
                    shown, read = entity
                    at = read
                    self._write(shown, match.start(), read)
            elif self._is_markup(match):
                self._copy(read, match.start())
                read = at = self._show(match)
        if not read:
            return None
        self._copy(read, len(self._text))
        return ShownText("".join(self._out.texts), self._out.starts, self._out.ends)

    def _tells(self, match: re.Match[str]) -> bool:
        """Whether there is HTML around this."""
        if match["name"] is None:
            hidden = match["hidden"] or ""
            # A comment that does not end may be an arrow.
            return hidden[-1:] == ">" or "</" in hidden or hidden.startswith("<![")
        name, attributes = match["name"].lower(), match["attributes"] or match["loose"] or match["cut"] or ""
        if name not in _KNOWN and not _OFFICE.fullmatch(name):
            return False
        if match["close"] or _ASSIGNMENT.match(attributes):
            return True
        if not match.group().endswith(">") or attributes.strip(" /\t\n\r\f"):
            return False
        return "/" in attributes or name in (_TELLING_FIRST if match.start() == self._first else _TELLING_ALONE)

    def _is_markup(self, match: re.Match[str]) -> bool:
        """Whether this is markup, in a text that is HTML."""
        if match["name"] is None:
            if match["data_end"]:
                return self._has_data
            return match["stump"] != "<" or not self._text[match.start() - 1 : match.start()].isspace()
        name = match["name"].lower()
        if self._always or name in _KNOWN or _OFFICE.fullmatch(name) or ("-" in name and name in self._closed):
            return True
        is_cut = match.end("name") == len(self._text)
        return is_cut and any(known.startswith(name) for known in _KNOWN)

    def _show(self, match: re.Match[str]) -> int:
        """Writes what the markup does to the text; returns where it ends."""
        if match["name"] is None:
            return match.end()
        name, start, end = match["name"].lower(), *match.span()
        if name == "sup" and not match["close"] and (raised := _RAISED.match(self._text, end)):
            return self._raise(raised, start)
        if name in _LINES:
            self._out.separate(_LINE, start, end)
            if name not in _VOID:
                self._depth = max(0, self._depth + (-1 if match["close"] else 1))
        elif name in _CELLS:
            self._out.separate(_CELL, start, end)
        elif name in _OBJECTS:
            self._out.separate(_SPACE, start, end)
        is_open = not match["close"] and not match.group().endswith("/>")
        return self._behind(name, end) if name in _UNSEEN and is_open else end

    def _behind(self, name: str, start: int) -> int:
        """Where the element's content ends that begins at `start`. A script that is cut goes on to the end."""
        if name not in self._unclosed:
            if closed := _UNSEEN[name].search(self._text, start):
                return closed.start()
            self._unclosed.add(name)
        return len(self._text) if name in ("script", "style") else start

    def _raise(self, raised: re.Match[str], start: int) -> int:
        """Writes raised digits as such: 10<sup>6</sup> is not 106. Over a line they are a fraction's."""
        if raised["over"] is None:
            self._out.copy(raised[1].translate(_SUPERSCRIPT), raised.start())
        else:
            if self._out.last.isdigit():
                self._out.separate(_SPACE, start, raised.start())
            self._out.copy(raised[1], raised.start())
        return raised.start("over") if raised["over"] is not None else raised.end()

    def _entity(self, match: re.Match[str]) -> tuple[str, int] | None:
        """The character that is named, and where its name ends; None if it names none."""
        end = match.end()
        if (number := match["decimal"] or match["hex"]) is not None:
            code = int(number, 10 if match["decimal"] else 16)
            low = _ENTITY.match(self._text, end) if 0xD800 <= code < 0xDC00 else None
            if low is not None and 0xDC00 <= (half := int(low["decimal"] or 0) or int(low["hex"] or "0", 16)) < 0xE000:
                # Half by half, as languages write it whose characters have 16 bits.
                return chr(0x10000 + (code - 0xD800) * 0x400 + half - 0xDC00), low.end()
            return html.unescape(f"&#{code};"), end
        name = match["entity"]
        if match["named"]:
            shown = html5.get(f"{name};") or (html5[f"{name.lower()};"] if name.lower() in _CORE_ENTITIES else None)
        elif self._text[end : end + 1] != "=" and (name in _CORE_ENTITIES or (self._is_html and name in html5)):
            shown = html5[name]
        elif name.startswith("nbsp"):
            shown, end = _NBSP, match.start("entity") + len("nbsp")
        else:
            shown = None
        if shown is None and match["again"]:
            # "&amp;c" is "&c".
            return "&", match.end("again")
        return None if shown is None else (shown, end)

    def _write(self, shown: str, start: int, end: int) -> None:
        """Writes what an entity shows."""
        if self._is_html and not shown.strip(_SPACES):
            self._space(shown, start, end)
        elif shown.strip(_ZERO_WIDTH):
            self._out.write(shown, start, end)

    def _copy(self, start: int, end: int) -> None:
        """Writes text; in HTML, white space as it is shown."""
        if not self._is_html:
            self._out.copy(self._text[start:end], start)
            return
        for run in _RUN.finditer(self._text, start, end):
            if run["space"]:
                self._space(run["space"].replace("\\n", "\n"), *run.span())
            elif run["text"]:
                self._out.copy(run["text"], run.start())

    def _space(self, space: str, start: int, end: int) -> None:
        lines = max(space.count("\n"), space.count("\r"))
        if lines and (self._depth == 0 or lines > 1):
            self._out.separate(_LINE, start, end)
        elif space:
            self._out.separate(_NBSP if space == _NBSP else _SPACE, start, end)
