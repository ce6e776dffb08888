"""Runs as they lie on disk, against gold files in both layouts, through the function and the real command."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipelines.errors import UsageError
from pipelines.quality.evaluation import evaluate_run
from pipelines.quality.scoring import Counts
from pipelines.store.tables import to_table

# One product of a run: its answers, as the single value, several ones, or a status other than "value".
Answers = Mapping[str, str | list[str] | tuple[str]]
ABSENT, TRUNCATED, INVALID = ("absent",), ("truncated",), ("invalid",)


def write_run(
    folder: Path,
    products: Sequence[Answers | None],
    *,
    source: str = "catalog.parquet",
    category: str = "Coffee",
    ids: Sequence[str] | None = None,
    rows: Sequence[int] | None = None,
    finished: bool = True,
    probabilities: Mapping[str, float] | None = None,
) -> str:
    """The tables of a run; `None` is a dead-lettered product, `probabilities` those of values."""
    tables: dict[str, list[dict[str, Any]]] = {"attributes": [], "products": [], "dead_letter": []}
    for index, answers in enumerate(products):
        row = rows[index] if rows else index
        identity = {
            "run_id": "r1",
            "source_file": source,
            "source_row": row,
            "product_id": ids[index] if ids else f"p{row}",
            "category": category,
        }
        if answers is None:
            failure = {"stage": "decode", "error_code": "too_long", "error": "too long", "attempts": 1}
            tables["dead_letter"].append(identity | failure)
            continue
        provenance = identity | dict.fromkeys(["model_id", "schema_hash", "prompt_hash", "layout", "input_hash"], "x")
        counts = {f"num_{status}": 0 for status in ("value", "absent", "truncated", "invalid")}
        tables["products"].append(provenance | counts | {"values": []})
        for attribute, answer in answers.items():
            status = answer[0] if isinstance(answer, tuple) else "value"
            kept = None if status == "absent" else "what the model wrote"
            texts = [kept] if isinstance(answer, tuple) else [answer] if isinstance(answer, str) else answer
            tables["attributes"] += [
                provenance
                | {"attribute": attribute, "value_index": position, "value_raw": text, "status": status}
                | {"num_tokens": 2, "num_dropped": 0}
                | {"logprob_mean": math.log(probabilities[text or ""]) / 2 if probabilities else None}
                for position, text in enumerate(texts)
            ]
    for name, entries in tables.items():
        (folder / name).mkdir(parents=True)
        # Items of one attribute need not come in order, nor in one file.
        for part, half in enumerate((entries[1::2], entries[::2])):
            pq.write_table(to_table(name, half), folder / name / f"part-{part:06d}.parquet")
    if finished:
        (folder / "manifest.json").write_text("{}")
    return str(folder)


def write_gold(path: Path, *values: Mapping[str, Any], category: str = "Coffee") -> str:
    lines = [
        json.dumps({"product_id": f"p{index}", "category": category, "values": each})
        for index, each in enumerate(values)
    ]
    path.write_text("\n".join(lines))
    return str(path)


def write_extractgpt(path: Path, *scores: Mapping[str, Sequence[str]], category: str = "Coffee") -> str:
    lines = [
        json.dumps(
            {
                "input": "a title",
                "category": category,
                "target_scores": {name: dict.fromkeys(forms, 1) for name, forms in each.items()},
            }
        )
        for each in scores
    ]
    path.write_text("\n".join(lines))
    return str(path)


def test_scores_by_hand_in_our_layout(tmp_path: Path) -> None:
    gold = write_gold(
        tmp_path / "gold.jsonl",
        {"Brand": ["Acme"], "Roast": ["dark"], "Origin": [["Peru"], ["Kenya"]]},
        {"Brand": ["Brew", "Brew Co"], "Roast": None},
        {"Brand": ["Cup"], "Roast": None},
    )
    run = write_run(
        tmp_path / "run",
        [
            {"Brand": "Acme", "Roast": ABSENT, "Origin": ["Kenya", "Peru"], "Unlabelled": "ignored"},
            {"Brand": "Brew Co", "Roast": "light"},
            {"Brand": "Mug", "Roast": INVALID},
        ],
    )
    evaluation = evaluate_run(run, gold)
    assert evaluation.exact.counts == Counts(nn=1, nv=1, vn=1, vc=3, vw=1)
    assert evaluation.exact.micro.precision.value == pytest.approx(3 / 5)
    assert evaluation.exact.micro.recall.value == pytest.approx(3 / 5)
    assert evaluation.exact.micro.f1.value == pytest.approx(3 / 5)
    assert evaluation.exact.macro.f1.value == pytest.approx((2 / 3 + 0 + 1) / 3)
    assert evaluation.exact.hallucination_rate == 0.5
    assert {score.attribute: score.counts for score in evaluation.exact.by_attribute} == {
        "Brand": Counts(vc=2, vw=1),
        "Roast": Counts(nn=1, nv=1, vn=1),
        "Origin": Counts(vc=1),
    }
    assert [score.counts for score in evaluation.exact.by_category] == [evaluation.exact.counts]
    assert evaluation.statuses == {"value": 5, "absent": 1, "invalid": 1}
    assert (evaluation.unlabelled.num_asked, evaluation.unlabelled.num_values) == (1, 1)
    assert evaluation.notes == evaluation.dead_lettered == evaluation.not_in_run == ()
    assert (evaluation.num_products, evaluation.num_gold_products) == (3, 3)


def test_extractgpt_gold_is_matched_by_row_of_the_very_file(tmp_path: Path) -> None:
    gold = write_extractgpt(
        tmp_path / "test.jsonl", {"Brand": ["Acme"]}, {"Brand": ["n/a"]}, {"Brand": ["Cup", "Cups"]}
    )
    run = write_run(
        tmp_path / "run",
        [{"Brand": "Cups"}, {"Brand": ABSENT}, {"Brand": "Acme"}],
        source="data/test.jsonl",
        rows=[2, 1, 0],
        ids=["test:2", "test:1", "test:0"],
    )
    assert evaluate_run(run, gold).exact.counts == Counts(nn=1, vc=2)


def test_rows_of_another_input_file_are_no_match(tmp_path: Path) -> None:
    gold = write_extractgpt(tmp_path / "test.jsonl", {"Brand": ["Acme"]})
    run = write_run(tmp_path / "run", [{"Brand": "Acme"}], source="train.jsonl")
    with pytest.raises(UsageError, match=r"must have read this very file \(the run read train\.jsonl\)"):
        evaluate_run(run, gold)


def test_gold_of_another_category_is_refused(tmp_path: Path) -> None:
    gold = write_extractgpt(tmp_path / "test.jsonl", {"Brand": ["Acme"]}, category="Tea")
    run = write_run(tmp_path / "run", [{"Brand": "Acme"}], source="test.jsonl")
    with pytest.raises(UsageError, match=r"test\.jsonl, line 1: row 0 is of category 'Tea' here and 'Coffee' in"):
        evaluate_run(run, gold)


def test_an_id_that_two_rows_have_cannot_be_scored(tmp_path: Path) -> None:
    gold = write_gold(tmp_path / "gold.jsonl", {"Brand": ["Acme"]})
    run = write_run(tmp_path / "run", [{"Brand": "Acme"}, {"Brand": "Cup"}], ids=["p0", "p0"])
    with pytest.raises(UsageError, match=r"p0 is two rows of .*catalog\.parquet row . and catalog\.parquet row"):
        evaluate_run(run, gold)


def test_dead_lettered_products_are_scored_as_errors_and_named(tmp_path: Path) -> None:
    gold = write_gold(tmp_path / "gold.jsonl", {"Brand": ["Acme"]}, {"Brand": ["Cup"], "Roast": None})
    run = write_run(tmp_path / "run", [{"Brand": "Acme"}, None])
    evaluation = evaluate_run(run, gold)
    assert evaluation.dead_lettered == ("p1",)
    assert evaluation.exact.counts == Counts(nn=1, vn=1, vc=1)
    assert evaluation.statuses == {"error": 2, "value": 1}


def test_an_attribute_that_the_run_was_not_asked_for_counts_as_no_answer(tmp_path: Path) -> None:
    gold = write_gold(tmp_path / "gold.jsonl", {"Brand": ["Acme"], "Roast": ["dark"]})
    run = write_run(tmp_path / "run", [{"Brand": "Acme"}])
    evaluation = evaluate_run(run, gold)
    assert evaluation.exact.counts == Counts(vn=1, vc=1)
    assert evaluation.statuses == {"value": 1, "not_asked": 1}


# The command


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pipelines.cli", "evaluate", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": "", "PYTHONIOENCODING": "utf-8"},
    )


def test_the_command_prints_tables_and_ends_with_json(tmp_path: Path) -> None:
    gold = write_gold(tmp_path / "gold.jsonl", {"Brand": ["Acme [bold]"], "Roast": None}, {"Brand": ["Cup"]})
    run = write_run(tmp_path / "run", [{"Brand": "[red]Mug[/red]", "Roast": "dark"}, {"Brand": "Cup"}])
    done = command(run, "--gold", gold, "--comparison", "folded", "--json")
    assert done.returncode == 0, done.stderr
    for text in ("exact micro", "folded macro", "By category", "Most mistakes", "[red]Mug[/red]"):
        assert text in done.stdout
    summary = json.loads(done.stdout.splitlines()[-1])
    exact, folded = summary["scores"]
    assert exact["counts"] == {"nn": 0, "nv": 1, "vn": 0, "vc": 1, "vw": 1}
    assert (exact["comparison"], folded["comparison"]) == ("exact", "folded")
    assert exact["micro"]["f1"]["value"] == pytest.approx(0.4)
    assert "judgements" not in summary
