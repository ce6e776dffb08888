"""HTML read as the text that it shows, with the way back to where each character stands.

`auto` reads markup only where it can be nothing else: elements that HTML has, in a text that shows itself to be HTML (a
closing tag, an attribute, `<br>`), and characters that HTML names. "a < b", "R&D", "size <M>" and `List<T>` stay.

The parsers at hand tell no character's place in the original, and all of them swallow `<M>`. Python's own one also
changes from patch to patch what it makes of damaged markup, and with it what a model would read. So this reads by
itself; the names of characters are the standard library's.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pipelines.catalog.html_reader import HtmlReader
from pipelines.config.catalog_input import HtmlMode

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
        reader = HtmlReader(now, always=mode == "always" and number == 0)
        pieces = reader.read()
        if pieces is None:
            break
        shown = ShownText("".join([piece[0] for piece in pieces]), pieces, shown)
        if reader.has_tags and not _ESCAPED_CONTENT.search(text):
            # Beside real tags, "&lt;br&gt;" is there to be seen.
            break
    return shown
