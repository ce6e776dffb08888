"""A run over a catalog with HTML in it: what is read, where evidence is, and what is taken over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipelines.catalog.html_text import shown_text
from tests.pipelines import conftest
from tests.pipelines.conftest import Workplace, read_table
from tests.pipelines.reporting.reports import facts_of


def product(number: int, **changes: Any) -> dict[str, Any]:
    """A product that holds what the tiny model answers."""
    return conftest.product(number, **{"bullets": [f"size {number}", "light blue"], **changes})


def marked_up(number: int, tag: str = "b") -> dict[str, Any]:
    """Product `number`, of which the page shows the very same."""
    plain = product(number)
    title = plain["title"].replace("item", f"<{tag}>it</{tag}>em").replace(" red", "&#32;r<i>e</i>d")
    size, weight = plain["bullets"]
    return plain | {
        "title": f"<p class='a>b'>{title}</p><!-- {number} -->",
        "bullets": [f"&lt;p&gt;{size}&lt;/p&gt;", weight],
    }


def texts_of(row: dict[str, Any]) -> dict[str, str]:
    return {"title": row["title"], "bullets": "\n".join(row["bullets"])}


def answers(output: Path) -> dict[tuple[int, str, int], tuple[Any, ...]]:
    return {
        (row["source_row"], row["attribute"], row["value_index"]): (row["value_raw"], row["status"])
        for row in read_table(output, "attributes")
    }


def check_evidence(output: Path, rows: list[dict[str, Any]]) -> None:
    """Each place holds what it says, in the catalog, and shows the value or nearly."""
    places = 0
    for answer in read_table(output, "attributes"):
        fields = texts_of(rows[answer["source_row"]])
        for place in answer["evidence"] or ():
            assert fields[place["field"]][place["start"] : place["end"]] == place["text"]
            if place["match"] == "exact":
                assert shown_text(place["text"], "auto") == answer["value_raw"]
            places += 1
    assert places, "some values stand in the text"


def test_html_is_read_as_what_it_shows(workplace: Workplace) -> None:
    first, second = workplace.folder / "first", workplace.folder / "second"
    rows = [marked_up(number) for number in range(6)]
    assert [shown_text(row["title"], "auto") for row in rows] == [product(number)["title"] for number in range(6)]
    workplace.write_jsonl("c.jsonl", rows)
    workplace.run(output=str(first), run_id="first")
    check_evidence(first, rows)

    # The same markup; another one; none; and a page that shows nothing.
    empty = product(6, title="<p>&nbsp;</p>", bullets=["\u200b", "<br>"])
    rows = [*rows[:3], marked_up(3, "em"), product(4), product(5), empty]
    workplace.write_jsonl("c.jsonl", rows)
    outcome = workplace.run(output=str(second), base=str(first))
    assert outcome.changes is not None
    assert outcome.changes.obstacles == []
    carried = {row["source_row"]: row["carried_from"] for row in read_table(second, "products")}
    assert carried == {0: "first", 1: "first", 2: "first", 3: None, 4: None, 5: None}
    assert answers(second) == answers(first), "what is read has not changed"
    check_evidence(second, rows)
    (dead,) = read_table(second, "dead_letter")
    assert (dead["source_row"], dead["error_code"]) == (6, "no_text")
    assert json.loads(dead["row_json"]) == empty

    # The report shows what was read, with the values marked in it.
    facts = facts_of(second)
    assert facts.notes == ()
    for sampled in facts.sample.products:
        assert sampled.fields is not None
        shown = {each.name: "".join(segment.text for segment in each.segments) for each in sampled.fields}
        assert shown == texts_of(product(sampled.source_row))
    marks = [s for p in facts.sample.products for each in p.fields or () for s in each.segments if s.values]
    assert marks
