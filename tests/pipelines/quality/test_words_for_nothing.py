"""One rule: a word says the same in extraction, labelling and gold, and an enum's member is a value everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from hpd_core import Attribute, CategorySchema
from hpd_core.text.values import parse_value
from pipelines.errors import UsageError
from pipelines.labelling.final_answer import read_answer
from pipelines.labelling.teacher_answers import judge
from pipelines.quality.evaluation import evaluate_run
from pipelines.quality.gold import read_gold
from pipelines.quality.scoring import Comparison
from tests.pipelines.evaluating.made_runs import Row, write_run
from tests.tables import table

CATEGORY = "Mugs"
MEMBERS = ("None", "N/A", "null", "Unknown", "unknown", "--", "Not Specified", "k.A.", "NA", "zip")

Decision = Literal["value", "absent"]


def schemas(**options: Any) -> dict[str, CategorySchema]:
    attribute = Attribute(name="Brand", **options)
    return {CATEGORY: CategorySchema(category=CATEGORY, attributes=(attribute,))}


def extracted(asked: dict[str, CategorySchema], word: str, fields: dict[str, str]) -> Decision:
    (attribute,) = asked[CATEGORY].attributes
    value = parse_value(attribute, f" {json.dumps(word)},\n", closed=True, fields=fields)
    assert value.status in ("value", "absent")
    return "value" if value.items == (word,) else "absent"


def labelled(asked: dict[str, CategorySchema], word: str, fields: dict[str, str]) -> Decision:
    answer = read_answer(asked[CATEGORY], json.dumps({"Brand": word}), fields)
    assert not isinstance(answer, str)
    labels = judge(asked[CATEGORY], answer.values, fields, require_evidence=False).values
    return "value" if labels["Brand"] == [word] else "absent"


def gold(asked: dict[str, CategorySchema], word: str, fields: dict[str, str], folder: Path) -> Decision:
    line = {"product_id": "p", "category": CATEGORY, "values": {"Brand": [word]}, "input": fields}
    path = folder / "gold.jsonl"
    path.write_text(json.dumps(line), encoding="utf-8")
    try:
        (product,) = read_gold(str(path), asked)
    except UsageError as error:
        if "never counts as a value; write null" not in str(error):
            raise
        return "absent"
    assert product.values["Brand"].items == ((word,),)
    return "value"


@table(
    ("word", "text", "decision"),
    [
        ("Kestrel", "Kestrel mug", "value"),
        ("Not Your Mother's", "Not Your Mother's mug", "value"),
        ("not specified", "mug, brand: not specified", "absent"),
        ("Does not apply", "Does not apply", "absent"),
        ("--", "mug --", "absent"),
        ("不明", "ブランド：不明", "absent"),
        ("Unknown", "mug. Brand: Unknown", "absent"),
        ("Nothing", "mug by Kestrel", "absent"),
        ("Nothing", "Nothing Mug (2)", "value"),
        ("NA", "mug, ships to NA and EU", "value"),
    ],
)
def test_a_word_says_the_same_everywhere(word: str, text: str, decision: Decision, tmp_path: Path) -> None:
    fields, asked = {"title": text}, schemas()
    assert extracted(asked, word, fields) == decision
    assert labelled(asked, word, fields) == decision
    assert gold(asked, word, fields, tmp_path) == decision


@table("member", MEMBERS)
def test_a_member_is_one_for_all(member: str, tmp_path: Path) -> None:
    fields, asked = {"title": "mug"}, schemas(type="enum", values=MEMBERS)
    assert extracted(asked, member, fields) == "value"
    assert labelled(asked, member, fields) == "value"
    assert gold(asked, member, fields, tmp_path) == "value"


def test_scores_know_the_run_s_types(tmp_path: Path) -> None:
    """Numbers by their worth and members in any case, in both comparisons; of a string every letter counts."""
    asked = [
        Attribute(name="Weight", type="number"),
        Attribute(name="Closure", type="enum", values=("N/A", "zip")),
        Attribute(name="Size"),
    ]
    rows = [
        Row("p0", {"Weight": "0.5", "Closure": "N/A", "Size": "0.5"}),
        Row("p1", {"Weight": "1500", "Closure": "zip", "Size": "1500"}),
    ]
    run = write_run(tmp_path / "run", rows, schemas={"Coffee": asked})
    lines = [
        {"product_id": "p0", "values": {"Weight": ["1/2"], "Closure": ["n/a"], "Size": ["1/2"]}},
        {"product_id": "p1", "values": {"Weight": ["1,500"], "Closure": ["Zip"], "Size": ["1,500"]}},
    ]
    path = tmp_path / "gold.jsonl"
    path.write_text("\n".join(json.dumps({**line, "category": "Coffee"}) for line in lines), encoding="utf-8")
    for score in evaluate_run(run, str(path), comparison=Comparison.FOLDED).scores:
        assert (score.counts.vc, score.counts.vw) == (4, 2)
        assert {each.attribute for each in score.by_attribute if each.counts.vw} == {"Size"}
