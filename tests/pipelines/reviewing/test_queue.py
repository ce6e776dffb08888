"""Who is asked what: the least certain and most worth first, nobody twice, and no two the same one at once."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.reviewing.candidates import LEASE_SECONDS, Candidates, Queue, ReviewCandidate, Wish
from pipelines.store.verdicts import AnswerKey, ReviewVerdict
from tests.examples import examples
from tests.pipelines.reviewing.said import verdict

ANY = Wish()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def candidates(**certainties: list[float]) -> Candidates:
    """Answers by attribute."""
    lines = [
        [
            ReviewCandidate(AnswerKey("f", row, name), "Coffee", certainty, 0)
            for row, certainty in enumerate(sorted(numbers))
        ]
        for name, numbers in certainties.items()
    ]
    waiting = {("Coffee", name): len(numbers) for name, numbers in certainties.items()}
    return Candidates("all", lines, waiting)


def queue(overlap: float = 0.0, clock: Clock | None = None, **certainties: list[float]) -> Queue:
    return Queue(candidates(**certainties), [], overlap, clock or Clock())


def said_of(candidate: ReviewCandidate, reviewer: str, kind: str = "accept", second: float = 0) -> ReviewVerdict:
    return verdict(second, reviewer, kind, **candidate.key._asdict())


def test_doubt_times_what_hangs_on_it_and_less_with_every_review() -> None:
    found = queue(Brand=[0.5, 0.6, 0.7, 0.8], Roast=[0.1, 0.2])
    asked = []
    for _ in range(6):
        candidate = found.next("Ada", ANY)
        assert candidate is not None
        asked.append((candidate.key.attribute, candidate.certainty))
        found.record(said_of(candidate, "Ada"))
    # (1 - 0.5) x 4 beats (1 - 0.1) x 2; then the attribute has a label, and its worth is half.
    assert asked == [
        *(("Brand", 0.5), ("Roast", 0.1), ("Brand", 0.6), ("Roast", 0.2)),
        *(("Brand", 0.7), ("Brand", 0.8)),
    ]
    assert found.next("Ada", ANY) is None


def test_what_is_lent_comes_back_in_time_and_what_is_left_comes_last() -> None:
    clock = Clock()
    found = queue(clock=clock, Brand=[0.1, 0.5])
    first, second = found.next("Ada", ANY), found.next("Bob", ANY)
    assert first is not None
    assert second is not None
    assert first.key != second.key
    assert found.next("Eve", ANY) is None, "both are lent"
    assert found.next("Ada", ANY) == first, "what she moved on from, as there is nothing else"
    clock.now = LEASE_SECONDS + 1
    assert found.next("Eve", ANY) == first


@settings(max_examples=examples(80))
@given(
    st.sampled_from([0.0, 0.4, 1.0]),
    st.lists(st.floats(0, 1), min_size=1, max_size=8),
    st.lists(st.floats(0, 1), max_size=8),
    st.integers(0, 2**32),
)
def test_everybody_is_asked_once_and_every_answer_by_as_many_as_it_needs(
    overlap: float, brands: list[float], roasts: list[float], seed: int
) -> None:
    found = queue(overlap, Brand=brands, Roast=roasts)
    generator = random.Random(seed)
    reviewers, held = ["Ada", "Bob", "Eve"], dict[str, ReviewCandidate]()
    answered: dict[AnswerKey, list[str]] = defaultdict(list)
    skipped: dict[AnswerKey, list[str]] = defaultdict(list)
    numbers, is_open = count(), dict.fromkeys(reviewers, True)
    while any(is_open.values()):
        reviewer = generator.choice(reviewers)
        if reviewer not in held:
            candidate = found.next(reviewer, ANY)
            if candidate is None:
                is_open[reviewer] = bool(held)  # others may yet skip what they hold
                continue
            assert reviewer not in answered[candidate.key] + skipped[candidate.key]
            others = [name for name, each in held.items() if each.key == candidate.key]
            assert len(others) + len(answered[candidate.key]) < 1 + (overlap > 0)
            held[reviewer] = candidate
        else:
            candidate = held.pop(reviewer)
            kind = "skip" if generator.random() < 0.2 else "accept"
            (skipped if kind == "skip" else answered)[candidate.key].append(reviewer)
            found.record(said_of(candidate, reviewer, kind, next(numbers)))
            is_open = dict.fromkeys(reviewers, True)
    for name, numbers_of in (("Brand", brands), ("Roast", roasts)):
        for row in range(len(numbers_of)):
            key = AnswerKey("f", row, name)
            enough = len(answered[key]) >= (2 if overlap == 1 else 1)
            assert enough or len(answered[key] + skipped[key]) == len(reviewers), "all were asked"
    assert sum(found.reviews.values()) == sum(bool(names) for names in answered.values())
