"""Single pass over a text with markup: yields the pieces that it shows, each with its position."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from html.entities import html5


class HtmlReader:
    """Reader of one text, used once."""

    def __init__(self, text: str, *, always: bool) -> None:
        self._text = text
        self._always = always
        self.has_tags = False
        self._out = PieceWriter()
        self._first = len(text) - len(text.lstrip())
        self._is_html = always or ("<" in text and any(map(self._tells, MARKUP.finditer(text))))
        self._has_data = self._is_html and "<![cdata[" in text.lower()
        self._closed: frozenset[str] | None = None
        self._unclosed: set[str] = set()  # of those whose content is not shown
        self._depth = 0  # of elements in which a line end is a space

    def read(self) -> list[tuple[str, int, int | None]] | None:
        """Return the pieces of the shown text; None if there is no markup."""
        read = at = 0
        search, text = (MARKUP if self._is_html else ENTITY).search, self._text
        while match := search(text, at):
            start = match.start()
            at = start + 1
            if (effect := PLAIN_TAGS.get(match.group())) is not None:
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
        """Return whether this match shows that the text is HTML."""
        if match["name"] is None:
            hidden = match["hidden"] or ""
            # A comment that does not end may be an arrow.
            return hidden[-1:] == ">" or "</" in hidden or hidden.startswith("![")
        name, attributes = match["name"].lower(), match["attributes"] or match["loose"] or match["cut"] or ""
        if name not in ELEMENTS and not OFFICE.fullmatch(name):
            return False
        if match["close"] or ASSIGNMENT.match(attributes):
            return True
        if not match.group().endswith(">") or attributes.strip(" /\t\n\r\f"):
            return False
        return "/" in attributes or name in (TELLING_FIRST if match.start() == self._first else TELLING_ALONE)

    def _is_markup(self, match: re.Match[str]) -> bool:
        """Return whether this match is markup, in a text that is HTML."""
        name = match["name"]
        if name is None:
            if match["stump"] is None:
                return match["hidden"] is not None or self._has_data
            return match["stump"] != "" or not self._text[match.start() - 1 : match.start()].isspace()
        name = name.lower()
        if self._always:
            return True
        if name in ELEMENTS or OFFICE.fullmatch(name) or ("-" in name and self._is_closed(name)):
            return match["close"] is not None or _is_like_attributes(match)
        is_cut = match.end("name") == len(self._text)
        return is_cut and any(known.startswith(name) for known in ELEMENTS)

    def _is_closed(self, name: str) -> bool:
        if self._closed is None:
            self._closed = frozenset(map(str.lower, CLOSED.findall(self._text)))
        return name in self._closed

    def _show(self, match: re.Match[str]) -> int:
        """Write the effect of the markup on the text; return where the markup ends."""
        name = match["name"]
        start, end = match.span()
        if name is None:
            return end
        name = name.lower()
        is_open = match["close"] is None
        depth = 0 if name in VOID_ELEMENTS or name not in LINES else 1 if is_open else -1
        self._open_or_close(GAPS.get(name, ""), depth, start, end)
        if name in APART:
            if name == "sup" and is_open and (raised := self._raise(start, end)):
                return raised
            self._out.set_apart(start, end, words=name in STRUCK)
        if name in UNSEEN and is_open and self._text[end - 2 : end] != "/>":
            return self._behind(name, end)
        return end

    def _open_or_close(self, gap: str, depth: int, start: int, end: int) -> None:
        """Apply an element's tag at [start, end): write its gap and update the depth."""
        self.has_tags = True
        if gap:
            self._out.separate(gap, start, end)
        if depth:
            self._depth = max(0, self._depth + depth)

    def _behind(self, name: str, start: int) -> int:
        """Return where the content from `start` on ends. An unclosed script or style goes on to the text's end."""
        if name not in self._unclosed:
            if closed := UNSEEN[name].search(self._text, start):
                return closed.start()
            self._unclosed.add(name)
        return len(self._text) if name in ("script", "style") else start

    def _raise(self, start: int, end: int) -> int | None:
        """Write the number in the <sup> that opens at [start, end) as a power or fraction: 10<sup>6</sup> is not 106.

        Returns:
            The end of the element; None if it holds anything else.
        """
        closed = RAISED_END.search(self._text, end, end + MAX_RAISED)
        if closed is None:
            return None
        inside = self._text[end : closed.start()]
        number = html.unescape(re.sub(STYLE_TAG, "", inside)).strip(SPACES + ZERO_WIDTH)
        is_fraction = FRACTION.fullmatch(number) or (number.isdecimal() and self._is_over(closed.end()))
        if is_fraction:
            self._out.set_apart(start, end, words=False)
        elif RAISED.fullmatch(number) is None:
            return None
        elif self._out.is_at_ten and DECIMAL.fullmatch(number):
            self._out.write("^", start, end)
        else:
            self._out.seam = None
            number = number.translate(SUPERSCRIPT)
        if len(number) == len(inside):
            self._out.write(number, end)
        else:
            self._out.write(number, end, closed.start())
        self._out.set_apart(*closed.span(), words=False)
        return closed.end()

    def _is_over(self, end: int) -> bool:
        """Return whether a raised number that ends here is the numerator of a fraction, not a power."""
        bar = BAR.match(self._text, end)
        if bar is None:
            return False
        last = self._out.last
        # 5<sup>1</sup>/2, but 10<sup>9</sup>/2 and m<sup>2</sup>/24
        return bar["lower"] is not None or not last or (last.isdigit() and not self._out.is_at_ten)

    def _entity(self, match: re.Match[str]) -> tuple[str, int] | None:
        """Return the character that a reference names, and where the reference ends; None if it names none."""
        end = match.end()
        if (number := match["decimal"] or match["hex"]) is not None:
            code = int(number, 10 if match["decimal"] else 16)
            low = ENTITY.match(self._text, end) if 0xD800 <= code < 0xDC00 else None
            if low is not None and 0xDC00 <= (half := int(low["decimal"] or 0) or int(low["hex"] or "0", 16)) < 0xE000:
                # Half by half, as languages write it whose characters have 16 bits.
                return chr(0x10000 + (code - 0xD800) * 0x400 + half - 0xDC00), low.end()
            return html.unescape(f"&#{code};"), end
        name = match["entity"]
        if match["again"] and name in ("lt", "gt") and not self._is_html:
            # All of the text may be escaped: what it holds as text is read in a round of its own.
            return "&", match.start("again") + len("amp;")
        if match["named"]:
            shown = html5.get(f"{name};") or (html5[f"{name.lower()};"] if name.lower() in CORE_ENTITIES else None)
        elif self._text[end : end + 1] != "=" and (name in CORE_ENTITIES or (self._is_html and name in html5)):
            shown = html5[name]
        elif name.startswith("nbsp"):
            shown, end = NBSP, match.start("entity") + len("nbsp")
        else:
            shown = None
        if shown is None and match["again"]:
            # "&amp;c" is "&c".
            return "&", match.end("again")
        return None if shown is None else (shown, end)

    def _write(self, shown: str, start: int, end: int) -> None:
        """Write the character of a reference."""
        if self._is_html and not shown.strip(SPACES):
            self._space(shown, start, end)
        elif shown.strip(ZERO_WIDTH):
            self._out.write(shown, start, end)

    def _copy(self, start: int, end: int) -> None:
        """Write text; in HTML, white space is written as it is shown."""
        if start == end:
            return
        if not self._is_html:
            self._out.write(self._text[start:end], start)
        elif line := LINE_OF_TEXT.fullmatch(self._text, start, end):
            before, text, behind = line.groups()
            if before:
                self._out.separate(SPACE, start, start + 1)
            self._out.write(text, start + len(before))
            if behind:
                self._out.separate(SPACE, end - 1, end)
        else:
            for run in RUN.finditer(self._text, start, end):
                if run["space"]:
                    self._space(run["space"].replace("\\n", "\n"), *run.span())
                elif run["text"]:
                    self._out.write(run["text"], run.start())

    def _space(self, space: str, start: int, end: int) -> None:
        lines = max(space.count("\n"), space.count("\r"))
        if lines and (self._depth == 0 or lines > 1):
            self._out.separate(LINE, start, end)
        elif space:
            self._out.separate(NBSP if space == NBSP else SPACE, start, end)


def _is_like_attributes(match: re.Match[str]) -> bool:
    """Return whether the text after an opening tag's name can be its attributes."""
    if (cut := match["cut"]) is not None:
        cut = cut.strip().lower()
        return not cut.strip("/") or "=" in cut or "-" in cut or any(name.startswith(cut) for name in ATTRIBUTE_NAMES)
    attributes = match["attributes"] if match["attributes"] is not None else match["loose"]
    return not attributes or ATTRIBUTES.match(attributes) is not None


@dataclass(slots=True)
class PieceWriter:
    """Writer of shown text. A gap is written before following text: never first or last, the strongest of several."""

    pieces: list[tuple[str, int, int | None]] = field(default_factory=list)
    gap: str = ""
    gap_start: int = 0
    gap_end: int = 0
    seam: tuple[int, int, bool] | None = None

    def separate(self, gap: str, start: int, end: int) -> None:
        """Add `gap`, which comes from the original's [start, end), before the next text."""
        if not self.gap:
            self.gap_start = start
        self.gap_end = end
        if gap == self.gap == NBSP:
            gap = SPACE
        if STRENGTH[gap] > STRENGTH[self.gap]:
            self.gap = gap

    def set_apart(self, start: int, end: int, *, words: bool) -> None:
        """Prevent two numbers, or with `words` also two words, from merging at the tag [start, end)."""
        self.seam = start, end, words or (self.seam is not None and self.seam[2])

    def write(self, text: str, start: int, end: int | None = None) -> None:
        """Write `text`, which comes as a whole from the original's [start, end), or unchanged from `start` on."""
        if self.seam is not None:
            self._close_seam(text[0])
        if self.gap:
            if self.pieces:
                self.pieces.append((self.gap, self.gap_start, self.gap_end))
            self.gap = ""
        self.pieces.append((text, start, end))

    @property
    def last(self) -> str:
        """Last character; "" if there is none, or a gap."""
        return self.pieces[-1][0][-1] if self.pieces and not self.gap else ""

    @property
    def is_at_ten(self) -> bool:
        """Whether the number 10 was written last."""
        return not self.gap and TEN.search("".join([text[-3:] for text, _, _ in self.pieces[-3:]])) is not None

    def _close_seam(self, first: str) -> None:
        assert self.seam is not None
        (start, end, words), self.seam = self.seam, None
        last = self.last
        if (last.isdigit() and first.isdigit()) or (words and last.isalnum() and first.isalnum()):
            self.separate(SPACE, start, end)


def names(text: str) -> frozenset[str]:
    """Return the set of names in space-separated `text`."""
    return frozenset(text.split())


_BARE_ATTRIBUTE = (
    r"(?:allowfullscreen|async|autofocus|autoplay|checked|compact|contenteditable|controls|defer|disabled|download"
    r"|draggable|hidden|href|inert|ismap|itemscope|loop|multiple|muted|nohref|noshade|novalidate|nowrap|open|playsinline"
    r"|readonly|required|reversed|selected|\w+-[\w-]*)"
)
# "<i 10 cm but width>" is text that was never escaped.
ATTRIBUTES = re.compile(
    rf"""(?:[\s/"']++{_BARE_ATTRIBUTE}(?=[\s/]|\Z))*+[\s/"']*+(?:\Z|[\w:@.*\#()\[\]-]+\s*=)""",
    re.IGNORECASE | re.VERBOSE,
)
# What a cut may have left of an attribute's name.
ATTRIBUTE_NAMES = names(
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
ENTITY = re.compile(_ENTITY_TEXT, re.VERBOSE)
# Each alternative begins with a character of its own: such a pattern is searched for fast. The number of attributes is
# limited, or a text of many tags inside each other's quotes is read to its end from each of them.
MARKUP = re.compile(
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
ASSIGNMENT = re.compile(r"\s+[\w:@.-]+\s*=")
CLOSED = re.compile(r"<\\?/([a-z]\w*-[\w:-]*)", re.IGNORECASE)
# Taken without a semicolon where nothing else is markup; others are mostly the end of something: "&section" of a URL.
CORE_ENTITIES = frozenset(("amp", "lt", "gt", "quot", "nbsp", "copy", "reg", "deg"))
SPACES, ZERO_WIDTH = " \t\n\r\f\v\u00a0", "\u00ad\u200b\u2060\ufeff"
# Some exports write a line end between two tags in letters.
RUN = re.compile(
    rf"(?P<space>[{SPACES}]+|(?<![^\s>])(?:\\r)?\\n(?=\s*(?:\\n|\Z)))|[{ZERO_WIDTH}]+"
    rf"|(?P<text>\\?[^{SPACES}{ZERO_WIDTH}\\]*(?:[ ][^{SPACES}{ZERO_WIDTH}\\]+)*)"
)
# A line of text with at most one space in each place is copied at once.
LINE_OF_TEXT = re.compile(rf"( ?)([^{SPACES}{ZERO_WIDTH}\\]+(?:[ ][^{SPACES}{ZERO_WIDTH}\\]+)*+)( ?)")
STYLE_TAG = r"</?(?:b|em|font|i|small|span|strong|u)\b[^<>]*>"
RAISED_END = re.compile(r"</sup\s*>", re.IGNORECASE)
MAX_RAISED = 200  # characters between the tags
RAISED = re.compile(r"[+\-−–]?\d+(?:[.,]\d+)*[+\-−–]?|n", re.IGNORECASE)
DECIMAL = re.compile(r"[+\-−–]?\d+[.,]\d+")
FRACTION = re.compile(r"\d+\s*[/⁄∕]\s*\d+")
BAR = re.compile(
    rf"(?:{STYLE_TAG}|\s)*(?:[/⁄∕]|&(?:frasl|sol|#0*47|#0*8260|#x0*2f|#x0*2044);)(?:{STYLE_TAG}|\s)*"
    rf"(?P<lower><sub\b[^<>]*>(?:{STYLE_TAG}|\s)*)?\d",
    re.IGNORECASE,
)
SUPERSCRIPT = str.maketrans("0123456789+-−–nN", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁻ⁿⁿ")
TEN = re.compile(r"(?<!\d)10\Z")


# Elements by what they do to the text around them; those that do nothing are known all the same.
LINES = names(
    "address article aside blockquote body br caption center dd details dialog dir div dl dt fieldset figcaption "
    "figure footer form frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li listing main menu nav noframes "
    "ol optgroup option p pre search section summary table tbody tfoot thead title tr ul"
)
CELLS = names("td th")
OBJECTS = names("audio button canvas embed iframe img input meter object picture progress select video")
INLINE = names(
    "a abbr acronym applet area b base basefont bdi bdo big blink cite code col colgroup data datalist del dfn em font "
    "frame i ins kbd label link map mark marquee meta nobr noembed noscript output param q rp rt ruby s samp script "
    "slot small source span strike strong style sub sup svg template textarea time track tt u var wbr"
)
ELEMENTS = LINES | CELLS | OBJECTS | INLINE
"""Elements that HTML has or had."""
# Those that set a text apart from what it touches: old and new prices, small digits behind a price. Where they begin or
# end, two numbers must not become one; next to what was struck out, nor two words.
STRUCK = names("del ins s strike")
APART = STRUCK | names(
    "a abbr acronym big cite code data dfn kbd label output q rp rt ruby samp slot small sub sup time var"
)
VOID_ELEMENTS = names("area base br col embed frame hr img input link meta param source track wbr")
"""Elements without content and closing tag."""
# Their content is not shown; it goes on to their closing tag, whatever stands in it.
UNSEEN = {
    name: re.compile(rf"</{name}\b", re.IGNORECASE)
    for name in ("iframe", "noembed", "noframes", "script", "style", "svg", "template", "title")
}
# Whose closing tag may be left out, or that may be all that is left of a field that was cut.
TELLING_ALONE = names("br dd dt hr li p td th tr wbr")
TELLING_FIRST = TELLING_ALONE | names("body center div dl em font h1 h2 h3 h4 h5 h6 html ol span strong table ul")
TEXT_ELEMENTS = TELLING_FIRST | names("article b blockquote i section u")
"""Elements whose names hardly mean anything else."""
OFFICE = re.compile(r"(?:o|v|w|m|x|st\d):\w+")  # elements that word processors add

NBSP, SPACE, CELL, LINE = "\u00a0", " ", " | ", "\n"
GAPS = dict.fromkeys(LINES, LINE) | dict.fromkeys(CELLS, CELL) | dict.fromkeys(OBJECTS, SPACE)
# Most tags are one of these: what it is to the text, and how much deeper it goes into elements of lines.
PLAIN_TAGS = {
    f"<{slash}{name}>": (GAPS.get(name, ""), (-1 if slash else 1) if name in LINES - VOID_ELEMENTS else 0)
    for name in ELEMENTS - APART - UNSEEN.keys()
    for slash in ("", "/")
}
STRENGTH = {"": 0, NBSP: 1, SPACE: 2, CELL: 3, LINE: 4}
