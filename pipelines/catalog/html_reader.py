"""Single pass over a text with markup: yields the pieces that it shows, each with its position."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from html.entities import html5

from pipelines.catalog.html_patterns import (
    APART,
    ASSIGNMENT,
    ATTRIBUTE_NAMES,
    ATTRIBUTES,
    BAR,
    CLOSED,
    CORE_ENTITIES,
    DECIMAL,
    ELEMENTS,
    ENTITY,
    FRACTION,
    GAPS,
    LINE,
    LINE_OF_TEXT,
    LINES,
    MARKUP,
    MAX_RAISED,
    NBSP,
    OFFICE,
    PLAIN_TAGS,
    RAISED,
    RAISED_END,
    RUN,
    SPACE,
    SPACES,
    STRENGTH,
    STRUCK,
    STYLE_TAG,
    SUPERSCRIPT,
    TELLING_ALONE,
    TELLING_FIRST,
    TEN,
    UNSEEN,
    VOID_ELEMENTS,
    ZERO_WIDTH,
)


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
