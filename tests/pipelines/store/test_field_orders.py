"""Which order of the fields would share how much text."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpd_core import Record
from pipelines.store.field_orders import SAMPLE, FieldOrders
from tests.examples import examples

FIELDS = ("title", "bullets", "description")


def variants(count: int, category: str = "Shoes") -> list[Record]:
    texts = {"bullets": "b" * 30, "description": "d" * 60}
    return [Record(str(n), category, {"title": f"{n:010}", **texts}) for n in range(count)]


def test_what_stands_in_front_decides() -> None:
    found = FieldOrders.of(variants(5), FIELDS)
    assert found.characters == 5 * 100
    assert found.shared == {
        ("title", "bullets", "description"): 0,
        ("title", "description", "bullets"): 0,
        ("bullets", "title", "description"): 4 * 30,
        ("description", "title", "bullets"): 4 * 60,
        ("bullets", "description", "title"): 4 * 90,
        ("description", "bullets", "title"): 4 * 90,
    }
    better = found.better(FIELDS)
    assert better is not None
    assert better.fields == ("bullets", "description", "title"), "of equals, what is nearer to the configured order"
    assert better.share == pytest.approx(0.72)
    assert better.share_as_configured == 0
    assert found.better(better.fields) is None
    assert found.better(("title", "bullets")) is None, "a run with other fields"


def test_of_many_fields_one_at_a_time_is_moved() -> None:
    names = tuple("abcdef")
    records = [Record(str(n), "Shoes", dict.fromkeys(names, "same text") | {"b": f"own {n:05}"}) for n in range(4)]
    found = FieldOrders.of(records, names)
    assert len(found.shared) < 2 * len(names) + 1
    better = found.better(names)
    assert better is not None
    assert better.fields == ("a", "c", "d", "e", "f", "b")


def test_a_sample_is_looked_at() -> None:
    found = FieldOrders.of(variants(5000), FIELDS)
    assert found.characters == SAMPLE * 100
    assert FieldOrders.of([], FIELDS).better(FIELDS) is None


@settings(max_examples=examples(100))
@given(st.lists(st.lists(st.sampled_from(["", "x", "yy", "zzz"]), min_size=3, max_size=3), max_size=8))
def test_it_is_what_a_tree_of_fields_shares(rows: list[list[str]]) -> None:
    """Every field that was seen behind the same fields is shared."""
    records = [Record(str(n), "Shoes", dict(zip(FIELDS, row, strict=True))) for n, row in enumerate(rows)]
    found = FieldOrders.of(records, FIELDS)
    for order in permutations(FIELDS):
        seen, shared = set(), 0
        for record in records:
            for length in range(1, 4):
                texts = tuple(record.fields[name] for name in order[:length])
                shared += len(texts[-1]) if texts in seen else 0
                seen.add(texts)
        assert found.shared[order] == shared
