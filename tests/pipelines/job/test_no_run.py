"""A place that holds no run: every command that reads one says so in the same words, and what to name instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.errors import UsageError
from pipelines.job.run_plan import find_run
from tests.pipelines.conftest import Workplace
from tests.pipelines.evaluating.made_runs import Row, write_run
from tests.pipelines.job.no_runs import assert_all_refuse, places, readers
from tests.tables import table


def test_every_command_says_the_same_of_a_place_without_a_run(workplace: Workplace) -> None:
    asked = readers(workplace)
    for place, told in places(workplace.folder).values():
        assert_all_refuse(asked, place, told)
    assert not (workplace.folder / "nowhere").exists()


def test_no_command_takes_an_empty_name_for_a_place(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a variable that is not set, not the run in the current folder."""
    asked = readers(workplace)
    monkeypatch.chdir(write_run(workplace.folder / "here", [Row("p0", {"Brand": "Acme"})]))
    for place in ("", " "):
        for command, ask in asked.items():
            code, text = ask(place)
            flat = " ".join(text.split())
            assert code == 2, (command, text)
            assert "an empty name is no folder: name one" in flat or "must not be empty" in flat, (command, text)


# Who needs the whole of a run; of the others, who says something of one that has committed nothing.
_OF_FINISHED = ("plan", "extract", "normalise", "evaluate --calibrate", "evaluate --apply", "review --write")
_OF_ANY = ("status", "report")
# They end otherwise than by a run: one serves a page, the others need reviews or a catalog that can be read.
_APART = ("review", "review --gold", "evaluate --judge")


def test_a_run_that_is_not_finished_is_read_as_far_as_it_is_or_refused(workplace: Workplace) -> None:
    asked = readers(workplace)
    rows = [Row(f"p{number}", {"Brand": "Acme"}) for number in range(6)]
    begun = write_run(workplace.folder / "begun", rows, unfinished_shards=2)
    half = write_run(workplace.folder / "half", rows, unfinished_shards=1)
    for command, ask in asked.items():
        if command in _APART:
            continue
        done = 1 if command.startswith("status") else 0
        for run in (begun, half):
            code, text = ask(run)
            flat = " ".join(text.split())
            if command.startswith(_OF_FINISHED):
                said = f"the run in {run} is not finished; finish it, or name another"
                assert (code, said in flat) == (2, True), (command, text)
            elif run == begun and not command.startswith(_OF_ANY):
                said = f"the run in {run} has not committed anything yet"
                assert (code, said in flat) == (2, True), (command, text)
            else:
                assert code == done, (command, text)


@table("content", ["{", "[]", "5", '{"version": 1}', '{"version": 1, "files": 3, "shards": []}'])
def test_a_damaged_plan_is_named(tmp_path: Path, content: str) -> None:
    run = write_run(tmp_path / "run", [Row("p0", {"Brand": "Acme"})])
    (tmp_path / "run" / "_plan.json").write_text(content)
    with pytest.raises(UsageError, match=r"cannot read .*_plan\.json: it is damaged.* extract anew into another"):
        find_run(run)
