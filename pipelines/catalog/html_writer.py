"""Writer of the text that HTML shows: pieces with their positions, and the gaps between them."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipelines.catalog.html_elements import NBSP, SPACE, STRENGTH
from pipelines.catalog.html_patterns import TEN


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
