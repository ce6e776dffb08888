"""The backtest on made sets whose truth is known, from files as decoding leaves them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench import acceptance_backtest
from bench.acceptance_backtest import draw, halves, line
from pipelines.confidence.calibration_file import Calibration
from pipelines.confidence.learning import learn
from tests.pipelines.confidence.made_answers import MODEL, made_answers

SETS = ("oa-mine.validation", "ae-110k.validation", "oa-mine.test", "ae-110k.test", "sample")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    for seed, name in enumerate(SETS):
        made = (replace(each, product=f"{name}:{each.product}") for each in made_answers(seed, 60)[0])
        answers = [each.to_dict() for each in made]
        content = {"model": asdict(MODEL), "products": 60, "seconds": 1.0, "answers": answers}
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


def test_what_was_decoded_is_read_and_what_was_learned_is_written(cache: Path, tmp_path: Path) -> None:
    written = tmp_path / "written.json"
    arguments = ["none", "--cache", str(cache), "--seeds", "2", "--precisions", "0.7", "--write", str(written)]
    result = CliRunner().invoke(acceptance_backtest.app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    lines = [each for each in result.output.splitlines() if each.startswith("| ")]
    assert len(lines) == 1 + 3 + 3
    assert all(each.count("|") == lines[0].count("|") for each in lines)
    assert Calibration.read(str(written)).about["labels"]["values"] == 480


def test_halves_share_no_product() -> None:
    answers, _ = made_answers(1, 31)
    known, others = halves(answers, 3)
    assert len(known) + len(others) == len(answers)
    assert not {each.product for each in known} & {each.product for each in others}


def test_what_is_found_is_counted() -> None:
    answers, _ = made_answers(1, 300)
    calibration = learn(answers, MODEL)
    right = [replace(each, is_right=True) for each in answers]
    wrong = [replace(each, is_right=False) for each in answers]
    found = [draw(calibration, each, 0.7, pools=True) for each in (right, wrong)]
    assert found[0].found.num == found[0].found.right == found[1].found.num > 0
    assert found[1].found.right == 0
    assert sum(each.num for each in found[0].by_attribute.values()) == found[0].found.num
    cells = line("a", "b", 0.7, found).split(" | ")
    assert cells[5].startswith("0.500 [")
    assert cells[6] == "1 / 1 of 2"
    assert cells[7].startswith(f"{len(found[1].by_attribute)} / {2 * len(found[1].by_attribute)}")
