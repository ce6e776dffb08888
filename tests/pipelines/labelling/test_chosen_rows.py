"""Which rows are labelled: those that are products, all of them or a sample."""

from __future__ import annotations

from tests.pipelines.conftest import product, products
from tests.pipelines.labelling.labellings import Labelling, totals
from tests.pipelines.labelling.served_teacher import TroubleMaker, right_answer


def test_rows_that_are_no_products_are_rejected_unasked(labelling: Labelling) -> None:
    rows = [*products(2), product(2, id="p0"), product(3, id=None), product(4, category="Hats"), "{broken"]
    labelling.workplace.write_jsonl("a.jsonl", rows)
    with TroubleMaker(right_answer) as server:
        result = labelling.ask(server.url, "--json")
        assert (result.exit_code, len(server.requests)) == (3, 2), result.output
        reasons = {"doubled_id": 1, "null_id": 1, "no_schema": 1, "broken_line": 1}
        assert totals(result)["rejected_by_reason"] == reasons
        assert {line["provenance"]["source_row"] for line in labelling.rejected()} == {2, 3, 4, 5}
        again = labelling.ask(server.url, "--retry-rejected")
    assert "nothing was done" in again.stdout
    assert again.exit_code == 3
