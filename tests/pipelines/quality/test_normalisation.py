"""Normalisation scored apart from extraction: by hand, and gold that does not say what it means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.errors import UsageError
from pipelines.quality.evaluation import evaluate_run
from pipelines.quality.normalisation import NormalisationScore, Share
from pipelines.store.tables import ATTRIBUTES
from tests.pipelines.quality.test_evaluate import write_run
from tests.tables import table

# Gold forms, normalised gold, the run's raw value, and what the run made of it.
CASES: list[tuple[Any, Any, str, dict[str, Any]]] = [
    (["340"], {"num": 340, "unit": "g", "printed": ["12"]}, "12", {"value_num": 340.19, "unit": "g"}),
    (["340"], {"num": 340, "unit": "g", "printed": ["12"]}, "12", {"value_num": 12.0, "unit": "g"}),
    (["340"], {"num": 340, "unit": "g"}, "340", {"value_num": 340.0, "unit": "kg"}),
    (["340"], {"num": 340, "unit": "g"}, "340", {"norm_status": "ambiguous"}),
    (["340"], {"num": 340, "unit": "g"}, "7", {"value_num": 7.0, "unit": "g"}),  # a wrong raw value is not judged
    (["dark"], {"id": "r4"}, "dark", {"value_norm": "dark", "value_id": "r4"}),
    (["dark"], {"id": "r4"}, "dark", {"value_norm": "dark", "value_id": "r1"}),
    (["Peru"], None, "Peru", {"value_norm": "Peru"}),  # no normalised gold
]


def write_gold(path: Path, norms: list[Any]) -> str:
    forms = [case[0] for case in CASES]
    lines = [
        {"product_id": f"p{index}", "category": "Coffee", "values": {"A": value}, **({} if norm is None else norm)}
        for index, (value, norm) in enumerate(zip(forms, norms, strict=True))
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return str(path)


def run_of(folder: Path) -> str:
    """A run with these raw values, normalised as the cases say."""
    run = write_run(folder / "run", [{"A": raw} for _, _, raw, _ in CASES])
    for path in (folder / "run" / "attributes").glob("*.parquet"):
        rows = pq.read_table(path).to_pylist()
        filled = [row | {"norm_status": "ok"} | CASES[row["source_row"]][3] for row in rows]
        pq.write_table(pa.Table.from_pylist(filled, schema=ATTRIBUTES), path)
    return run


def test_scores_by_hand(tmp_path: Path) -> None:
    gold = write_gold(tmp_path / "gold.jsonl", [norm and {"norm": {"A": norm}} for _, norm, *_ in CASES])
    score = evaluate_run(run_of(tmp_path), gold).normalisation
    assert score == NormalisationScore(
        statuses={"ok": 7, "ambiguous": 1},
        right_raw=Share(6, 2),
        wrong=3,
        numbers=Share(4, 1),
        units=Share(4, 1),
        converted=Share(2, 1),
        ids=Share(2, 1),
    )
    assert score.normalised == Share(8, 7)


@table(
    ("entry", "said"),
    [
        ('{"num": NaN}', "'norm' > 'A' > 'num': nan is no number"),
        ('{"num": 1e400, "unit": "g"}', "'norm' > 'A' > 'num': inf is no number"),
        ('{"num": 340, "unit": "zorks"}', "'norm' > 'A' > 'unit': 'zorks' is no unit"),
        ('{"num": 340, "unit": ""}', "'norm' > 'A' > 'unit': '' is no unit"),
    ],
)
def test_what_is_no_number_or_no_unit_is_refused(tmp_path: Path, entry: str, said: str) -> None:
    gold = write_gold(tmp_path / "gold.jsonl", [{"norm": {"A": "HERE"}}, *(None for _ in CASES[1:])])
    Path(gold).write_text(Path(gold).read_text().replace('"HERE"', entry))
    with pytest.raises(UsageError) as caught:
        evaluate_run(run_of(tmp_path), gold)
    assert f"{gold}, line 1: {said}" in str(caught.value)
