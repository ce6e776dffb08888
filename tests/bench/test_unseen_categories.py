"""Folds leave every category out at most once, and the tables count what was answered. No model is trained (1 s)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from bench import unseen_categories
from bench.unseen_categories import Data

CATEGORIES = [f"Category {letter}" for letter in "ABCDEFGHIJ"]
SETS = ("oa-mine", "ae-110k")


@pytest.fixture(name="data")
def _data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in SETS:
        lines = [
            {"input": f"Velor {number} {category}", "category": category, "target_scores": {"Brand": {"Velor": 1}}}
            for category in CATEGORIES
            for number in range(3)
        ]
        for part in ("train", "test"):
            (folder / f"{name}.{part}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


def _write_answers(data: Path, out: Path, recipe: str, right: int) -> None:
    """Answers of a fold's model to OA-Mine: of each category the first `right` of three are right."""
    answers = {str(row): {"Brand": ("value", ["Velor" if row % 3 < right else "Other"])} for row in range(30)}
    unseen = Data(data, None).unseen("oa-mine", 0)
    content = {"recipe": recipe, "set": "oa-mine", "seconds": 1.0, "answers": answers, "fold": 0, "seed": 0}
    folder = out / recipe / "fold-0-seed-0"
    folder.mkdir(parents=True)
    text = json.dumps({**content, "num_labels": 0, "minutes": 2.0, "unseen": unseen})
    (folder / "oa-mine.answers.json").write_text(text)


def _call(data: Path, out: Path, *options: str) -> Result:
    return CliRunner().invoke(unseen_categories.app, [str(data), "--out", str(out), *options])


def test_no_category_is_unseen_twice_and_lines_are_drawn_alike(data: Path) -> None:
    first, again = Data(data, None), Data(data, None)
    for name in SETS:
        unseen = [category for fold in range(3) for category in first.unseen(name, fold)]
        assert len(unseen) == len(set(unseen)) == 9
        assert set(unseen) < set(CATEGORIES)
        assert unseen == [category for fold in range(3) for category in again.unseen(name, fold)]
        assert first.lines[name] == again.lines[name]
        assert sorted(map(len, first.lines[name].values())) == [3] * 10


def test_the_table_counts_unseen_and_seen_apart_and_compares_recipes(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    _write_answers(data, out, "today", 1)
    _write_answers(data, out, "tomorrow", 3)
    result = _call(data, out)
    assert result.exit_code == 0, result.output
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in result.output.splitlines()[2:]]
    by_key = {(row[0], row[2]): row for row in rows}
    assert set(by_key) == {(recipe, part) for recipe in ("today", "tomorrow") for part in ("seen", "unseen")}
    assert by_key["today", "unseen"][5] == "9"
    assert by_key["today", "seen"][5] == "21"
    assert by_key["today", "unseen"][6].startswith("0.333")
    assert by_key["tomorrow", "unseen"][6] == "1.000 [1.000, 1.000]"
    assert by_key["tomorrow", "unseen"][7].startswith("+0.667")
    assert by_key["today", "unseen"][7] == ""


def test_a_category_with_few_labels_stands_beside_itself_without_any(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    _write_answers(data, out, "today", 1)
    first = out / "today" / "fold-0-seed-0" / "oa-mine.answers.json"
    content = json.loads(first.read_text())
    category = content["unseen"][0]
    own = {row: {"Brand": ("value", ["Velor"])} for row in map(str, range(30)) if CATEGORIES[int(row) // 3] == category}
    assert len(own) == 3
    folder = out / "today" / "fold-0-seed-0-few-2"
    folder.mkdir()
    after = {**content, "num_labels": 2, "unseen": [category], "answers": own}
    (folder / "oa-mine.answers.json").write_text(json.dumps(after))
    result = _call(data, out)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in result.output.splitlines()[2:]]
    few = {row[3]: row for row in rows if row[2] == "few"}
    assert {labels: row[5] for labels, row in few.items()} == {"0": "3", "2": "3"}
    assert few["0"][6].startswith("0.333")
    assert few["2"][6] == "1.000 [1.000, 1.000]"
    assert [row[5] for row in rows if row[2] == "unseen"] == ["9"]


@pytest.mark.parametrize(
    ("options", "named"),
    [(("--recipe", "today", "--folds", "3"), "no fold 3"), (("--recipe", "today", "--seeds", "x"), "'x'")],
)
def test_wrong_options_are_named_before_anything_is_trained(
    data: Path, tmp_path: Path, options: tuple[str, ...], named: str
) -> None:
    result = _call(data, tmp_path / "out", *options)
    assert result.exit_code == 2
    assert named in result.output


def test_another_recipe_of_the_same_name_is_refused(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "today").mkdir(parents=True)
    (out / "today" / "recipe.json").write_text("{}")
    result = _call(data, out, "--recipe", "today")
    assert result.exit_code == 2
    assert "take another --recipe" in result.output
