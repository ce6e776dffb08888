"""Finding the records that break an engine, simulated: every try fails whose records hold a bad one."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.store.isolation import Partition, Span, Try, partition
from tests.examples import examples


def search(
    num_records: int, bad: set[int], max_attempts: int, *, dies: bool, seed: int = 0
) -> tuple[Partition, list[Try]]:
    """What is given up in the end, and the tries. With `dies`, a failure is the end of the process: what it had decoded
    is decoded again."""
    generator, tries, found = random.Random(seed), list[Try](), set[Span]()
    for _ in range(1000):
        parts = partition(num_records, tries, max_attempts)
        for span in parts.spans:
            if span in found:
                continue
            is_bad = any(record in bad for record in span.indices)
            tries.append(Try(span, not is_bad, generator.choice(["boom", None]) if is_bad else None))
            if is_bad:
                found = set() if dies else found
                break
            found.add(span)
        else:
            return parts, tries
    raise AssertionError("no end")


def num_failures(tries: list[Try]) -> int:
    return sum(not each.is_done for each in tries)


def covered(parts: Partition) -> list[int]:
    return sorted(index for span in [*parts.spans, *parts.given_up] for index in span.indices)


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_few_bad_records_are_found_and_no_other_is_given_up(data: st.DataObject) -> None:
    num_records = data.draw(st.integers(1, 3000))
    bad = data.draw(st.sets(st.integers(0, num_records - 1), max_size=4))
    max_attempts, dies = data.draw(st.integers(1, 3)), data.draw(st.booleans())
    parts, tries = search(num_records, bad, max_attempts, dies=dies)
    assert covered(parts) == list(range(num_records))
    given_up = {index for span in parts.given_up for index in span.indices}
    assert given_up == bad
    # The shard, then at most three cuts by 16 down to a record, and that one once more.
    assert num_failures(tries) <= max_attempts + 4 * len(bad)


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(1, 3000), st.integers(0, 3000), st.integers(1, 3), st.booleans(), st.integers(0, 9))
def test_however_much_is_bad_the_search_ends_soon_and_accounts_for_every_record(
    num_records: int, num_bad: int, max_attempts: int, dies: bool, seed: int
) -> None:
    bad = set(random.Random(seed).sample(range(num_records), min(num_bad, num_records)))
    parts, tries = search(num_records, bad, max_attempts, dies=dies, seed=seed)
    assert covered(parts) == list(range(num_records))
    given_up = {index for span in parts.given_up for index in span.indices}
    assert bad <= given_up
    # What was decoded once is not thrown away with what was not.
    decoded = {index for each in tries if each.is_done for index in each.span.indices}
    assert not decoded & given_up
    # After the limit, parts that stand beside failed ones are still tried once.
    assert num_failures(tries) <= max_attempts + 40 + 16 * 16


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(100, 3000), st.floats(0.005, 0.03), st.integers(0, 99), st.booleans())
def test_a_shard_with_some_bad_records_everywhere_is_not_given_up_whole(
    num_records: int, share: float, seed: int, dies: bool
) -> None:
    bad = set(random.Random(seed).sample(range(num_records), max(1, int(share * num_records))))
    parts, _ = search(num_records, bad, 3, dies=dies, seed=seed)
    assert sum(len(span) for span in parts.spans) > 0


def test_an_engine_that_fails_everywhere_is_not_searched() -> None:
    for dies in (False, True):
        parts, tries = search(2000, set(range(2000)), 3, dies=dies)
        assert num_failures(tries) <= 3 + 16 + 12
        assert list(parts.given_up) == [Span(0, 2000)]
        (reason,) = parts.given_up.values()
        assert "3 failed tries of 2000 records together; so did every part of them alone; the last: " in reason


def test_failures_that_do_not_come_back_cost_nothing() -> None:
    whole = Span(0, 100)
    assert partition(100, [Try(whole, False), Try(whole, False, "lost node")], 3) == Partition([whole])
    after = partition(100, [Try(whole, False)] * 3, 3)
    assert len(after.spans) == 16
    assert not after.given_up
    assert covered(after) == list(range(100))
