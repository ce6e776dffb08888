"""Result of a second pass, in words."""

from __future__ import annotations

from collections.abc import Mapping


def second_look(counts: Mapping[str, int]) -> str:
    """Describe how many answers a larger model was asked again, and the result.

    `counts`: a run's (cascading/standing.py).
    """
    answers, asked = counts.get("answers", 0), counts.get("asked", 0)
    share = asked / answers if answers else 0.0
    text = f"{asked:,} of {answers:,} answers ({share:.0%}) asked again, {counts.get('changed', 0):,} changed"
    kept = counts.get("kept", 0)
    return text + (f"; {kept:,} stay, as the larger model has none" if kept else "")
