"""Values are marked where they stand, in any script; a long text is cut, and nothing else is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipelines.job.source_texts import Mark, cut


@given(st.text(max_size=60), st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20), st.integers(0, 5)), max_size=8))
def test_cutting_loses_nothing(text: str, places: list[tuple[int, int, int]]) -> None:
    marks = [Mark(s, min(len(text), s + n), value, "exact") for s, n, value in places if s < len(text)]
    segments = cut(text, marks)
    assert "".join(segment.text for segment in segments) == text
    position = 0
    for segment in segments:
        here = {mark.value for mark in marks if mark.start <= position < mark.end}
        assert set(segment.values) == here
        position += len(segment.text)
