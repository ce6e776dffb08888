"""The sentence that a manager reads, and what it is made of."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.reporting.answer_facts import verdict_of
from pipelines.reporting.report_facts import Facts
from pipelines.reporting.table_scan import AnswerSum
from pipelines.store.corrections import ReviewLog
from pipelines.store.folders import Folder
from tests.pipelines.conftest import read_table
from tests.pipelines.reporting.made_runs import Answer, Product, write_run
from tests.pipelines.reporting.reports import facts_of, page_text
from tests.pipelines.reviewing import said


def decided(confidence: float | None, decision: str | None, **columns: str) -> dict[str, object]:
    return {"confidence": confidence, "decision": decision, "source": "model"} | columns


def _products() -> list[Product]:
    answers = {
        "Brand": Answer("Acme", 0.2, columns=decided(0.98, "accept")),
        "Notes": Answer(["plum", "cocoa"], 0.9, columns=decided(0.4, "review")),
        "Origin": Answer("Per", 0.9, "truncated", columns=decided(None, "review")),
        "Form": Answer(None, 0.8, "absent", columns=decided(None, None)),
        "Roast": Answer("dark", None, columns=decided(None, "accept", source="review")),
    }
    return [Product(f"p{number}", {"title": "Acme plum and cocoa"}, answers) for number in range(3)]


@pytest.fixture
def promised(tmp_path: Path) -> Facts:
    """Three products, each with two accepted values, one that a person gave, and two answers to review."""
    return facts_of(write_run(tmp_path, [_products()], precision=0.95))


def test_what_can_be_taken(promised: Facts) -> None:
    verdict = promised.verdict
    assert (verdict.values, verdict.accepted, verdict.review, verdict.corrected) == (9, 6, 6, 3)
    assert verdict.headline == "6 of 9 values can be taken at 95% precision; 6 to review."
    assert verdict.expected_right == pytest.approx(3 * (0.98 + 0.4))
    page = page_text(promised)
    assert page.index(verdict.headline) < page.index("Values by attribute") < page.index("Engine time")
    (notes,) = [each for each in promised.attributes if each.attribute == "Notes"]
    assert (notes.values, notes.accepted, notes.review, notes.fill_rate) == (3, 0, 3, 1.0), "an answer is one"
    (category,) = promised.categories
    assert (category.accepted, category.review) == (6, 6)


@given(
    sums=st.builds(AnswerSum, **{name: st.integers(0, 10**9) for name in ("values", "decided", "review", "scored")}),
    precision=st.none() | st.floats(0.5, 0.999),
)
def test_a_promise_only_where_one_was_asked_for(sums: AnswerSum, precision: float | None) -> None:
    verdict = verdict_of(sums, 7, precision)
    is_decided = precision is not None or sums.decided > 0
    assert (verdict.accepted is not None) == is_decided == ("can be taken" in verdict.headline)
    assert f"{sums.values:,} value" in verdict.headline


def test_what_people_said_counts_though_it_is_not_written_into_the_run(tmp_path: Path) -> None:
    run = write_run(tmp_path, [_products()], precision=0.95)
    log, catalog = ReviewLog(Folder(str(run))), str(tmp_path / "catalog.jsonl")
    answers: list[tuple[int, str, str, tuple[str, ...], str]] = [
        (0, "Notes", "accept", (), "value"),
        (1, "Origin", "correct", ("Peru",), "truncated"),
        (2, "Origin", "absent", (), "truncated"),
    ]
    texts = {row["source_row"]: row["input_hash"] for row in read_table(run, "products")}
    for row, attribute, kind, items, status in answers:
        seen = {"status": status, "items": ["plum", "cocoa"] if status == "value" else []}
        about = {"source_file": catalog, "source_row": row, "product_id": f"p{row}", "attribute": attribute}
        log.append(said.verdict(row, kind=kind, items=items, seen=seen, input_hash=texts[row], **about))
    log.close()
    facts = facts_of(run)
    # Before: 6 of 9 accepted, 6 to review, 3 a person's.
    assert facts.verdict.headline == "8 of 10 values can be taken at 95% precision; 3 to review."
    assert (facts.verdict.corrected, facts.verdict.failed, facts.verdict.absent) == (6, 1, 4)
    (category,) = facts.categories
    assert (category.values, category.absent, category.failed) == (10, 4, 1)
    products = {product.product_id: product for product in facts.sample.products}
    (origin,) = [each for each in products["p1"].values if each.attribute == "Origin"]
    assert {each.certainty for each in products["p0"].values if each.attribute == "Notes"} == {None}
    assert (origin.text, origin.source, origin.certainty) == ("Peru", "review", None)
    assert [(each.text, each.status) for each in origin.replaced] == [("Per", "truncated")]
