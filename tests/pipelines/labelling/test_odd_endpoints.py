"""Endpoints that answer in their own way, behind the real client: no answer is lost, no error becomes a verdict."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipelines.labelling.labellings import Labelling, totals
from tests.pipelines.labelling.served_teacher import Reply, TroubleMaker

RIGHT = '{"Brand": "Velor", "Colour": "red", "Sizes": null}'
ONE_TRY = {"max_concurrency": 1, "max_retries": 0, "answer_attempts": 1}


def shoes(labelling: Labelling, count: int) -> None:
    rows = [
        {"id": f"p{number}", "category": "Shoes", "title": f"Velor item {number}. red", "bullets": ["light"]}
        for number in range(count)
    ]
    labelling.workplace.write_jsonl("a.jsonl", rows)


@pytest.mark.parametrize("body", [{"error": {"message": "busy", "code": 429}}, {"choices": None}])
def test_an_outage_in_200s_stops_the_run(labelling: Labelling, body: dict[str, Any]) -> None:
    shoes(labelling, 25)
    with TroubleMaker(lambda *_: Reply(body)) as server:
        result = labelling.ask(server.url, teacher=ONE_TRY)
        assert (result.exit_code, len(server.requests)) == (1, 10), result.output
        assert "10 products in a row got no answer, the last one: an error inside of a 200: " in result.stderr
        server.behaviour = lambda *_: Reply(RIGHT)
        again = labelling.ask(server.url, "--json", teacher=ONE_TRY)
    assert (again.exit_code, totals(again)["labelled"]) == (0, 25)
