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

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.errors import UsageError
from pipelines.quality.evaluation import evaluate_run
from pipelines.quality.scoring import AnswerOutcome, Counts
from pipelines.store.tables import to_table
from tests.examples import examples
from tests.pipelines.commands import ROOT
from tests.tables import table

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


def test_gold_whose_category_is_only_spelled_otherwise_says_how(tmp_path: Path) -> None:
    gold = write_gold(tmp_path / "gold.jsonl", {"Brand": ["Acme"]}, category="coffee\u200b")
    run = write_run(tmp_path / "run", [{"Brand": "Acme"}])
    with pytest.raises(UsageError, match=r"they differ in invisible characters and capitals; write both the same way"):
        evaluate_run(run, gold)


def test_labels_of_an_attribute_that_the_run_spells_otherwise_are_named(tmp_path: Path) -> None:
    labels = {"brand": ["Acme"], "Roast": ["dark"], "Weight": ["1"], "Origin": None}
    gold = write_gold(tmp_path / "gold.jsonl", labels, labels)
    answers = {"Brand": "Acme", "Roast": "dark", "Weights": "1", "Colour": "red"}
    (note,) = evaluate_run(write_run(tmp_path / "run", [answers, {**answers, "Weight": "1"}]), gold).notes
    assert note == (
        "Coffee: 2 labels of 'brand', which the run was not asked for; did you mean 'Brand' (differs in capitals)?"
    )


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


def test_a_run_with_a_limit_is_scored_on_what_it_has_with_a_note(tmp_path: Path) -> None:
    gold = write_gold(tmp_path / "gold.jsonl", *({"Brand": ["Acme"]} for _ in range(9)))
    run = write_run(tmp_path / "run", [{"Brand": "Acme"}, {"Brand": "Acme"}])
    evaluation = evaluate_run(run, gold)
    assert evaluation.exact.counts == Counts(vc=2)
    assert evaluation.not_in_run == ("p2", "p3", "p4", "p5", "p6", "p7", "p8")
    (note,) = evaluation.notes
    assert "7 of 9 gold products are not in" in note
    assert "p2, p3, p4, p5, p6, ..." in note
    assert "Only the 2 products that the run has are scored" in note


def test_a_run_without_dead_letters_and_one_of_dead_letters_alone(tmp_path: Path) -> None:
    gold = write_gold(tmp_path / "gold.jsonl", {"Brand": ["Acme"]})
    run = write_run(tmp_path / "run", [{"Brand": "Acme"}])
    for file in (tmp_path / "run" / "dead_letter").iterdir():
        file.unlink()
    (tmp_path / "run" / "dead_letter").rmdir()
    assert evaluate_run(run, gold).exact.counts == Counts(vc=1)
    assert evaluate_run(write_run(tmp_path / "dead", [None]), gold).exact.counts == Counts(vn=1)


def test_folders_that_are_no_run(tmp_path: Path) -> None:
    gold = write_gold(tmp_path / "gold.jsonl", {"Brand": ["Acme"]})
    with pytest.raises(UsageError, match=r"there is no run in .*nowhere: there is no such folder"):
        evaluate_run(str(tmp_path / "nowhere"), gold)
    with pytest.raises(UsageError, match=r"there is no run in .* \(it has no _plan\.json\)"):
        evaluate_run(str(tmp_path), gold)
    with pytest.raises(UsageError, match=r"there is no run in .*: it is a file"):
        evaluate_run(gold, gold)


def test_broken_tables(tmp_path: Path) -> None:
    gold = write_gold(tmp_path / "gold.jsonl", {"Brand": ["Acme"]})
    broken = write_run(tmp_path / "broken", [{"Brand": "Acme"}])
    (tmp_path / "broken" / "attributes" / "part-000002.parquet").write_bytes(b"no Parquet")
    with pytest.raises(UsageError, match=r"cannot read .*part-000002\.parquet"):
        evaluate_run(broken, gold)
    other = write_run(tmp_path / "other", [{"Brand": "Acme"}])
    pq.write_table(pa.table({"source_file": ["x"]}), tmp_path / "other" / "products" / "part-000001.parquet")
    with pytest.raises(UsageError, match="column 'source_row' is missing; this is no products table"):
        evaluate_run(other, gold)
    with pytest.raises(UsageError, match="status 'maybe' is none of value, absent"):
        evaluate_run(write_run(tmp_path / "status", [{"Brand": ("maybe",)}]), gold)


forms = st.sampled_from(["red", "blue", "12 oz"])
gold_products = st.lists(
    st.dictionaries(st.sampled_from(["Brand", "Roast", "Form"]), st.none() | st.lists(forms, min_size=1)),
    min_size=1,
    max_size=5,
)


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(products=gold_products)
def test_a_run_that_says_what_gold_says_is_perfect(
    products: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("perfect")
    gold = write_gold(folder / "gold.jsonl", *products)
    answers = [{name: ABSENT if value is None else value[-1] for name, value in each.items()} for each in products]
    evaluation = evaluate_run(write_run(folder / "run", answers), gold, num_resamples=10)
    assert {each.outcome for each in evaluation.judgements} <= {AnswerOutcome.NN, AnswerOutcome.VC}
    has_value = any(value for each in products for value in each.values())
    assert evaluation.exact.micro.f1.value == evaluation.exact.macro.f1.value == (1.0 if has_value else 0.0)


# The command


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "pipelines" / "evaluate.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": "", "PYTHONIOENCODING": "utf-8"},
    )


def test_values_are_counted_by_the_probability_of_the_whole_answer(tmp_path: Path) -> None:
    gold = write_gold(
        tmp_path / "gold.jsonl", {"Brand": ["a", "b", "c", "d", "e"], "Roast": None, "Origin": [["a"], ["b"]]}
    )
    labels = {"a": 1.0, "b": 0.9, "c": 0.899, "d": 0.25, "e": 0.2, "x": 0.95}
    bands: dict[str, list[tuple[int, int]]] = {}
    for text in labels:
        answers = {"Brand": text, "Roast": text, "Unlabelled": text}
        evaluation = evaluate_run(write_run(tmp_path / text, [answers], probabilities=labels), gold, num_resamples=10)
        bands[text] = [(band.num_values, band.num_right) for band in evaluation.by_probability]
        assert [(band.low, band.high) for band in evaluation.by_probability][-1] == (0.9, 1.0)
    none = (0, 0)
    # Right for Brand, made up for Roast; what has no label is not counted.
    assert bands["a"] == bands["b"] == [none, none, none, none, (2, 1)]
    assert bands["c"] == [none, none, none, (2, 1), none]
    assert bands["d"] == [none, (2, 1), none, none, none]
    assert bands["e"] == [(2, 1), none, none, none, none]
    assert bands["x"] == [none, none, none, none, (2, 0)]
    several = write_run(tmp_path / "several", [{"Origin": ["a", "b"]}], probabilities={"a": 0.3, "b": 0.3})
    found = evaluate_run(several, gold, num_resamples=10).by_probability
    assert [(band.num_values, band.num_right) for band in found] == [none, (1, 1), none, none, none]
    assert evaluate_run(write_run(tmp_path / "without", [{"Brand": "a"}]), gold, num_resamples=10).by_probability == ()


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


@table(
    ("arguments", "message"),
    [
        (["{run}"], "--gold"),
        (["{run}", "--gold", "{folder}/nowhere.jsonl"], "Error: no such gold file"),
        (["{folder}", "--gold", "{gold}"], "there is no run in"),
        (["{run}", "--gold", "{gold}", "--comparison", "fuzzy"], "fuzzy"),
    ],
)
def test_usage_errors_exit_with_2_and_no_stack_trace(tmp_path: Path, arguments: list[str], message: str) -> None:
    gold = write_gold(tmp_path / "gold.jsonl", {"Brand": ["Acme"]})
    run = write_run(tmp_path / "run", [{"Brand": "Acme"}])
    done = command(*(each.format(run=run, folder=tmp_path, gold=gold) for each in arguments))
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
