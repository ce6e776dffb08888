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
from functools import cached_property
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
ELEMENTS = _LINES | _CELLS | _OBJECTS | _INLINE
"""Those that HTML has or had."""
# Those that set a text apart from what it touches: old and new prices, small digits behind a price. Where they begin or
# end, two numbers must not become one; next to what was struck out, nor two words.
_STRUCK = _names("del ins s strike")
_APART = _STRUCK | _names(
    "a abbr acronym big cite code data dfn kbd label output q rp rt ruby samp slot small sub sup time var"
)
VOID_ELEMENTS = _names("area base br col embed frame hr img input link meta param source track wbr")
"""Those that have nothing in them and no closing tag."""
# Their content is not shown; it goes on to their closing tag, whatever stands in it.
_UNSEEN = {
    name: re.compile(rf"</{name}\b", re.IGNORECASE)
    for name in ("iframe", "noembed", "noframes", "script", "style", "svg", "template", "title")
}
# Whose closing tag may be left out, or that may be all that is left of a field that was cut.
_TELLING_ALONE = _names("br dd dt hr li p td th tr wbr")
_TELLING_FIRST = _TELLING_ALONE | _names("body center div dl em font h1 h2 h3 h4 h5 h6 html ol span strong table ul")
TEXT_ELEMENTS = _TELLING_FIRST | _names("article b blockquote i section u")
"""Those whose names hardly mean anything else."""
_OFFICE = re.compile(r"(?:o|v|w|m|x|st\d):\w+")  # elements that word processors add

_BARE_ATTRIBUTE = (
    r"(?:allowfullscreen|async|autofocus|autoplay|checked|compact|contenteditable|controls|defer|disabled|download"
    r"|draggable|hidden|href|inert|ismap|itemscope|loop|multiple|muted|nohref|noshade|novalidate|nowrap|open|playsinline"
    r"|readonly|required|reversed|selected|\w+-[\w-]*)"
)
# "<i 10 cm but width>" is text that was never escaped.
_ATTRIBUTES = re.compile(
    rf"""(?:[\s/"']++{_BARE_ATTRIBUTE}(?=[\s/]|\Z))*+[\s/"']*+(?:\Z|[\w:@.*\#()\[\]-]+\s*=)""",
    re.IGNORECASE | re.VERBOSE,
)
# What a cut may have left of an attribute's name.
_ATTRIBUTE_NAMES = _names(
    "align alt bgcolor border cellpadding cellspacing class color colspan content dir face height href hspace id "
    "itemprop itemscope itemtype lang name rel role rowspan scope size src srcset start style tabindex target title "
    "type valign value vspace width"
)

_NAME = r"[a-zA-Z][a-zA-Z0-9]*(?:[:-][\w:-]*)?"
_ENTITY_TEXT = r"""
    &(?P<again>(?:amp;)*)(?:
        \#(?:(?P<decimal>\d{1,7})|[xX](?P<hex>[0-9a-fA-F]{1,6}));?
        | (?P<entity>[a-zA-Z][a-zA-Z0-9]*)(?P<named>;)?)
    """
_ENTITY = re.compile(_ENTITY_TEXT, re.VERBOSE)
# Each alternative begins with a character of its own: such a pattern is searched for fast. The number of attributes is
# limited, or a text of many tags inside each other's quotes is read to its end from each of them.
_MARKUP = re.compile(
    rf"""
    <(?:
        (?P<close>\\?/)?(?P<name>{_NAME})(?=[\s/>]|\Z|(?(close)<))
        (?:>
           | (?P<attributes>(?:[^<>=]*+=(?:\s*+(?:"[^"]*"|'[^']*'))?+){{0,60}}+[^<>=]*+)>
           | (?P<loose>[^<>]*)> | (?P<cut>\s*/?|\s+[\w:@.-]+\s*(?:=[^<>]*)?)\Z | (?(close)(?=<)|(?!)))
        | (?P<hidden>
            !--(?:-?>|.*?(?:--!?>|\Z)) | !\[CDATA\[
            | !doctype\b[^<>]*> | !\[(?:if|else|endif)\b[^<>]*> | \?[a-z](?:[^<]*?\?>|[^<>]*>)
          )
        | (?P<stump>/?\Z)
      )
    | {_ENTITY_TEXT.strip()}
    | \]\]>
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_ASSIGNMENT = re.compile(r"\s+[\w:@.-]+\s*=")
_CLOSED = re.compile(r"<\\?/([a-z]\w*-[\w:-]*)", re.IGNORECASE)
# Taken without a semicolon where nothing else is markup; others are mostly the end of something: "&section" of a URL.
_CORE_ENTITIES = frozenset(("amp", "lt", "gt", "quot", "nbsp", "copy", "reg", "deg"))
_SPACES, _ZERO_WIDTH = " \t\n\r\f\v\u00a0", "\u00ad\u200b\u2060\ufeff"
# Some exports write a line end between two tags in letters.
_RUN = re.compile(
    rf"(?P<space>[{_SPACES}]+|(?<![^\s>])(?:\\r)?\\n(?=\s*(?:\\n|\Z)))|[{_ZERO_WIDTH}]+"
    rf"|(?P<text>\\?[^{_SPACES}{_ZERO_WIDTH}\\]*(?:[ ][^{_SPACES}{_ZERO_WIDTH}\\]+)*)"
)
# A line of text with at most one space in each place is copied at once.
_LINE_OF_TEXT = re.compile(rf"( ?)([^{_SPACES}{_ZERO_WIDTH}\\]+(?:[ ][^{_SPACES}{_ZERO_WIDTH}\\]+)*+)( ?)")
_STYLE_TAG = r"</?(?:b|em|font|i|small|span|strong|u)\b[^<>]*>"
_RAISED_END = re.compile(r"</sup\s*>", re.IGNORECASE)
_MAX_RAISED = 200  # characters between the tags
_RAISED = re.compile(r"[+\-−–]?\d+(?:[.,]\d+)*[+\-−–]?|n", re.IGNORECASE)
_DECIMAL = re.compile(r"[+\-−–]?\d+[.,]\d+")
_FRACTION = re.compile(r"\d+\s*[/⁄∕]\s*\d+")
_BAR = re.compile(
    rf"(?:{_STYLE_TAG}|\s)*(?:[/⁄∕]|&(?:frasl|sol|#0*47|#0*8260|#x0*2f|#x0*2044);)(?:{_STYLE_TAG}|\s)*"
    rf"(?P<lower><sub\b[^<>]*>(?:{_STYLE_TAG}|\s)*)?\d",
    re.IGNORECASE,
)
_SUPERSCRIPT = str.maketrans("0123456789+-−–nN", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁻ⁿⁿ")
_TEN = re.compile(r"(?<!\d)10\Z")
_NBSP, _SPACE, _CELL, _LINE = "\u00a0", " ", " | ", "\n"
_GAPS = dict.fromkeys(_LINES, _LINE) | dict.fromkeys(_CELLS, _CELL) | dict.fromkeys(_OBJECTS, _SPACE)
# Most tags are one of these: what it is to the text, and how much deeper it goes into elements of lines.
_PLAIN_TAGS = {
    f"<{slash}{name}>": (_GAPS.get(name, ""), (-1 if slash else 1) if name in _LINES - VOID_ELEMENTS else 0)
    for name in ELEMENTS - _APART - _UNSEEN.keys()
    for slash in ("", "/")
}
_STRENGTH = {"": 0, _NBSP: 1, _SPACE: 2, _CELL: 3, _LINE: 4}
# What was escaped twice is read in a second round, and so on; nobody escapes that often in earnest.
_MAX_ROUNDS = 4
# Magento's pages keep HTML like that.
_ESCAPED_CONTENT = re.compile(r"""<\w[^<>]*\sdata-content-type=["']?html\b""")


@dataclass(frozen=True)
class ShownText:
    """The text that a field shows. Character i comes from the original's [starts[i], ends[i]).

    A line break that stands for a tag comes from the tag; in front of it and behind it nothing else is covered.

    Attributes:
        pieces: what `text` is made of. A piece comes as a whole from the original's [start, end), or, if end is None,
            stands at start as it is.
        before: what `pieces` were read from, if that is not the original itself.
    """

    text: str
    pieces: Sequence[tuple[str, int, int | None]]
    before: ShownText | None = None

    @property
    def starts(self) -> Sequence[int]:
        """Ascending."""
        return self._places[0]

    @property
    def ends(self) -> Sequence[int]:
        """Ascending."""
        return self._places[1]

    @cached_property
    def _places(self) -> tuple[list[int], list[int]]:
        """Made when asked for: of most texts only the text is wanted."""
        starts: list[int] = []
        ends: list[int] = []
        for text, start, end in self.pieces:
            if end is None:
                starts += range(start, start + len(text))
                ends += range(start + 1, start + len(text) + 1)
            else:
                starts += [start] * len(text)
                ends += [end] * len(text)
        if self.before is not None:
            spans = [self.before.original_span(start, end) for start, end in zip(starts, ends, strict=True)]
            starts, ends = [start for start, _ in spans], [end for _, end in spans]
        return starts, ends

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
    if mode == "never":
        return None
    shown = None
    for number in range(_MAX_ROUNDS):
        now = text if shown is None else shown.text
        if "<" not in now and "&" not in now:
            break
        reader = _Reader(now, always=mode == "always" and number == 0)
        pieces = reader.read()
        if pieces is None:
            break
        shown = ShownText("".join([piece[0] for piece in pieces]), pieces, shown)
        if reader.has_tags and not _ESCAPED_CONTENT.search(text):
            # Beside real tags, "&lt;br&gt;" is there to be seen.
            break
    return shown


@dataclass(slots=True)
class _Writer:
    """The text so far. A gap is written when text follows it: never first, never last, the strongest of several."""

    pieces: list[tuple[str, int, int | None]] = field(default_factory=list)
    gap: str = ""
    gap_start: int = 0
    gap_end: int = 0
    seam: tuple[int, int, bool] | None = None

    def separate(self, gap: str, start: int, end: int) -> None:
        """`gap` comes from the original's [start, end)."""
        if not self.gap:
            self.gap_start = start
        self.gap_end = end
        if gap == self.gap == _NBSP:
            gap = _SPACE
        if _STRENGTH[gap] > _STRENGTH[self.gap]:
            self.gap = gap

    def set_apart(self, start: int, end: int, *, words: bool) -> None:
        """At the tag [start, end) two numbers, or also two words, do not become one."""
        self.seam = start, end, words or (self.seam is not None and self.seam[2])

    def write(self, text: str, start: int, end: int | None = None) -> None:
        """`text` comes as a whole from the original's [start, end), or stands at `start` as it is."""
        if self.seam is not None:
            self._close_seam(text[0])
        if self.gap:
            if self.pieces:
                self.pieces.append((self.gap, self.gap_start, self.gap_end))
            self.gap = ""
        self.pieces.append((text, start, end))

    @property
    def last(self) -> str:
        """The last character; "" if there is none, or a gap."""
        return self.pieces[-1][0][-1] if self.pieces and not self.gap else ""

    @property
    def is_at_ten(self) -> bool:
        """Whether the number 10 was written last."""
        return not self.gap and _TEN.search("".join([text[-3:] for text, _, _ in self.pieces[-3:]])) is not None

    def _close_seam(self, first: str) -> None:
        assert self.seam is not None
        (start, end, words), self.seam = self.seam, None
        last = self.last
        if (last.isdigit() and first.isdigit()) or (words and last.isalnum() and first.isalnum()):
            self.separate(_SPACE, start, end)


class _Reader:
    """Reads one text once."""

    def __init__(self, text: str, *, always: bool) -> None:
        self._text = text
        self._always = always
        self.has_tags = False
        self._out = _Writer()
        self._first = len(text) - len(text.lstrip())
        self._is_html = always or ("<" in text and any(map(self._tells, _MARKUP.finditer(text))))
        self._has_data = self._is_html and "<![cdata[" in text.lower()
        self._closed: frozenset[str] | None = None
        self._unclosed: set[str] = set()  # of those whose content is not shown
        self._depth = 0  # of elements in which a line end is a space

    def read(self) -> list[tuple[str, int, int | None]] | None:
        """The pieces of what is shown; None if there is no markup."""
        read = at = 0
        search, text = (_MARKUP if self._is_html else _ENTITY).search, self._text
        while match := search(text, at):
            start = match.start()
            at = start + 1
            if (effect := _PLAIN_TAGS.get(match.group())) is not None:
                if read < start:
                    self._copy(read, start)
                read = at = match.end()
                self._open_or_close(*effect, start, at)
            elif match["again"] is not None:
                if entity := self._entity(match):
                    self._copy(read, start)
                    shown, read = entity
                    at = read
                    self._write(shown, start, read)
            elif self._is_markup(match):
                self._copy(read, start)
                read = at = self._show(match)
        if not read:
            return None
        self._copy(read, len(text))
        return self._out.pieces

    def _tells(self, match: re.Match[str]) -> bool:
        """Whether there is HTML around this."""
        if match["name"] is None:
            hidden = match["hidden"] or ""
            # A comment that does not end may be an arrow.
            return hidden[-1:] == ">" or "</" in hidden or hidden.startswith("![")
        name, attributes = match["name"].lower(), match["attributes"] or match["loose"] or match["cut"] or ""
        if name not in ELEMENTS and not _OFFICE.fullmatch(name):
            return False
        if match["close"] or _ASSIGNMENT.match(attributes):
            return True
        if not match.group().endswith(">") or attributes.strip(" /\t\n\r\f"):
            return False
        return "/" in attributes or name in (_TELLING_FIRST if match.start() == self._first else _TELLING_ALONE)

    def _is_markup(self, match: re.Match[str]) -> bool:
        """Whether this is markup, in a text that is HTML."""
        name = match["name"]
        if name is None:
            if match["stump"] is None:
                return match["hidden"] is not None or self._has_data
            return match["stump"] != "" or not self._text[match.start() - 1 : match.start()].isspace()
        name = name.lower()
        if self._always:
            return True
        if name in ELEMENTS or _OFFICE.fullmatch(name) or ("-" in name and self._is_closed(name)):
            return match["close"] is not None or _is_like_attributes(match)
        is_cut = match.end("name") == len(self._text)
        return is_cut and any(known.startswith(name) for known in ELEMENTS)

    def _is_closed(self, name: str) -> bool:
        if self._closed is None:
            self._closed = frozenset(map(str.lower, _CLOSED.findall(self._text)))
        return name in self._closed

    def _show(self, match: re.Match[str]) -> int:
        """Writes what the markup does to the text; returns where it ends."""
        name = match["name"]
        start, end = match.span()
        if name is None:
            return end
        name = name.lower()
        is_open = match["close"] is None
        depth = 0 if name in VOID_ELEMENTS or name not in _LINES else 1 if is_open else -1
        self._open_or_close(_GAPS.get(name, ""), depth, start, end)
        if name in _APART:
            if name == "sup" and is_open and (raised := self._raise(start, end)):
                return raised
            self._out.set_apart(start, end, words=name in _STRUCK)
        if name in _UNSEEN and is_open and self._text[end - 2 : end] != "/>":
            return self._behind(name, end)
        return end

    def _open_or_close(self, gap: str, depth: int, start: int, end: int) -> None:
        """What an element's tag at [start, end) is to the text around it."""
        self.has_tags = True
        if gap:
            self._out.separate(gap, start, end)
        if depth:
            self._depth = max(0, self._depth + depth)

    def _behind(self, name: str, start: int) -> int:
        """Where the element's content ends that begins at `start`. A script that is cut goes on to the end."""
        if name not in self._unclosed:
            if closed := _UNSEEN[name].search(self._text, start):
                return closed.start()
            self._unclosed.add(name)
        return len(self._text) if name in ("script", "style") else start

    def _raise(self, start: int, end: int) -> int | None:
        """Writes a number of the element that opens at [start, end) as what it is: 10<sup>6</sup> is not 106.

        Returns:
            Where the element ends; None if there is something else in it.
        """
        closed = _RAISED_END.search(self._text, end, end + _MAX_RAISED)
        if closed is None:
            return None
        inside = self._text[end : closed.start()]
        number = html.unescape(re.sub(_STYLE_TAG, "", inside)).strip(_SPACES + _ZERO_WIDTH)
        is_fraction = _FRACTION.fullmatch(number) or (number.isdecimal() and self._is_over(closed.end()))
        if is_fraction:
            self._out.set_apart(start, end, words=False)
        elif _RAISED.fullmatch(number) is None:
            return None
        elif self._out.is_at_ten and _DECIMAL.fullmatch(number):
            self._out.write("^", start, end)
        else:
            self._out.seam = None
            number = number.translate(_SUPERSCRIPT)
        if len(number) == len(inside):
            self._out.write(number, end)
        else:
            self._out.write(number, end, closed.start())
        self._out.set_apart(*closed.span(), words=False)
        return closed.end()

    def _is_over(self, end: int) -> bool:
        """Whether a raised number that ends here stands over the line of a fraction, and is no power."""
        bar = _BAR.match(self._text, end)
        if bar is None:
            return False
        last = self._out.last
        # 5<sup>1</sup>/2, but 10<sup>9</sup>/2 and m<sup>2</sup>/24
        return bar["lower"] is not None or not last or (last.isdigit() and not self._out.is_at_ten)

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
        if match["again"] and name in ("lt", "gt") and not self._is_html:
            # All of the text may be escaped: what it holds as text is read in a round of its own.
            return "&", match.start("again") + len("amp;")
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
        if start == end:
            return
        if not self._is_html:
            self._out.write(self._text[start:end], start)
        elif line := _LINE_OF_TEXT.fullmatch(self._text, start, end):
            before, text, behind = line.groups()
            if before:
                self._out.separate(_SPACE, start, start + 1)
            self._out.write(text, start + len(before))
            if behind:
                self._out.separate(_SPACE, end - 1, end)
        else:
            for run in _RUN.finditer(self._text, start, end):
                if run["space"]:
                    self._space(run["space"].replace("\\n", "\n"), *run.span())
                elif run["text"]:
                    self._out.write(run["text"], run.start())

    def _space(self, space: str, start: int, end: int) -> None:
        lines = max(space.count("\n"), space.count("\r"))
        if lines and (self._depth == 0 or lines > 1):
            self._out.separate(_LINE, start, end)
        elif space:
            self._out.separate(_NBSP if space == _NBSP else _SPACE, start, end)


def _is_like_attributes(match: re.Match[str]) -> bool:
    """Whether what stands behind the name of an opening tag can be its attributes."""
    if (cut := match["cut"]) is not None:
        cut = cut.strip().lower()
        return not cut.strip("/") or "=" in cut or "-" in cut or any(name.startswith(cut) for name in _ATTRIBUTE_NAMES)
    attributes = match["attributes"] if match["attributes"] is not None else match["loose"]
    return not attributes or _ATTRIBUTES.match(attributes) is not None
