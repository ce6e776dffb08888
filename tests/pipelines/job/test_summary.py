"""What the end of a run says of text that products share."""

from __future__ import annotations

from collections import Counter

from pipelines.job.summary import shared_text_lines
from pipelines.store.field_orders import FieldOrders
from pipelines.store.totals import Totals

FIELDS = ("title", "description")


def totals(shared: int, characters: int, by_order: dict[tuple[str, ...], int]) -> Totals:
    found = Totals(field_orders=FieldOrders(characters, Counter(by_order)))
    found.metrics.update({"document_tokens": 1000, "document_tokens_shared": shared})
    return found


def test_what_was_shared_and_what_another_order_would_have_shared() -> None:
    orders: dict[tuple[str, ...], int] = {("title", "description"): 100, ("description", "title"): 650}
    assert shared_text_lines(totals(3000, 1000, orders), FIELDS) == [
        "shared text  3,000 tokens of texts (75%) were computed once for several products",
        "shared text  of a sample, 10% is in fields with which others begin, too; it would be 65% with input.fields in "
        "the order [description, title], which may change answers",
    ]


def test_nothing_is_said_where_nothing_is_to_be_said() -> None:
    assert shared_text_lines(totals(0, 1000, {FIELDS: 100, FIELDS[::-1]: 140}), FIELDS) == []
    assert shared_text_lines(Totals(), FIELDS) == []
