"""The log of reviews: nothing that was acknowledged is lost, whoever is killed when, however it is read."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import UsageError
from pipelines.store.corrections import ReviewLog, in_order, read_verdicts, settle
from pipelines.store.folders import Folder
from pipelines.store.verdicts import AnswerKey, ReviewVerdict
from tests.examples import examples
from tests.pipelines.commands import ROOT
from tests.pipelines.reviewing.said import verdict
from tests.tables import table

REVIEWERS = ("Ada", "Béla", "../Ada")
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


def answer(second: float, reviewer: str, attribute: str, item: str | None) -> ReviewVerdict:
    kind = "accept" if item is None else "correct"
    return verdict(second, reviewer, kind, attribute=attribute, items=[item] if item is not None else [])


def undo(second: float, of: ReviewVerdict) -> ReviewVerdict:
    return verdict(second, of.reviewer, "undo", attribute=of.attribute, undoes=of.id)


def expected(said: Sequence[ReviewVerdict]) -> dict[AnswerKey, tuple[str, tuple[str, ...]]]:
    """By an oracle that keeps, for each answer, a stack of what stands."""
    stacks: dict[AnswerKey, list[ReviewVerdict]] = {}
    for each in said:
        stack = stacks.setdefault(each.key, [])
        if each.verdict == "undo":
            stack[:] = [other for other in stack if other.id != each.undoes]
        elif each.verdict != "skip":
            stack.append(each)
    return {key: (stack[-1].reviewer, stack[-1].answer.items) for key, stack in stacks.items() if stack}


def found(said: dict[AnswerKey, Any]) -> dict[AnswerKey, tuple[str, tuple[str, ...]]]:
    return {key: (each.verdict.reviewer, each.items) for key, each in said.items()}


@settings(max_examples=examples(60))
@given(st.data())
def test_whoever_says_what_in_between_and_is_killed_at_whichever_byte_it_comes_to_what_was_said(data: Any) -> None:
    with TemporaryDirectory() as folder:
        run, said = Folder(folder), list[ReviewVerdict]()
        log = ReviewLog(run)
        for second in range(data.draw(st.integers(1, 15), label="how much is said")):
            reviewer, action = data.draw(st.sampled_from(REVIEWERS)), data.draw(st.integers(0, 9))
            mine = [each for each in said if each.reviewer == reviewer and each.is_answer]
            if action == 0:  # a kill while a line is written: it was not acknowledged
                lost = answer(second, reviewer, "Brand", data.draw(texts))
                log.append(lost)
                log.close()
                _tear(folder, lost, data)
                log = ReviewLog(run)
                continue
            if action == 1 and mine:
                new = undo(second, mine[-1])
            elif action == 2:
                new = verdict(second, reviewer, "skip")
            else:
                new = answer(second, reviewer, data.draw(st.sampled_from("AB")), data.draw(st.none() | texts))
            log.append(new)
            said.append(new)
            if action == 3:
                log.append(new)  # its acknowledgement was lost, and it is said again
        log.close()
        assert found(settle(read_verdicts(run))) == expected(said)
        assert read_verdicts(run) == said


def _tear(folder: str, lost: ReviewVerdict, data: Any) -> None:
    line = lost.line()
    (path,) = (each for each in Path(folder, "reviews").iterdir() if each.read_bytes().endswith(line))
    kept = data.draw(st.integers(0, len(line) - 2), label="bytes that were written")
    path.write_bytes(path.read_bytes()[: kept - len(line)])


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.sampled_from(REVIEWERS), st.none() | texts), min_size=1, max_size=12), st.randoms())
def test_the_order_in_which_logs_are_read_does_not_matter(
    said: list[tuple[str, str | None]], generator: random.Random
) -> None:
    lines = [answer(index // 2, reviewer, "Brand", item) for index, (reviewer, item) in enumerate(said)]
    shuffled = generator.sample(lines, len(lines)) + generator.sample(lines, len(lines) // 2)
    assert in_order(shuffled) == in_order(lines)
    assert settle(in_order(shuffled)) == settle(in_order(lines))


@table(
    ("line", "said"),
    [
        (b'{"id": "12345678"}', "time: Field required"),
        (b"nonsense", "Invalid JSON"),
        (verdict(0).line().replace(b"accept", b"praise").strip(), "verdict: Input should be"),
        (verdict(0).line().replace(b"accept", b"correct").strip(), "a correction has items"),
    ],
)
def test_a_damaged_line_is_named_and_nothing_is_passed_over(tmp_path: Path, line: bytes, said: str) -> None:
    path = tmp_path / "reviews" / "ada.jsonl"
    path.parent.mkdir()
    path.write_bytes(verdict(0).line() + line + b"\n" + verdict(1).line())
    with pytest.raises(UsageError, match=rf"ada\.jsonl, line 2: .*{said}.*mend or remove"):
        settle(read_verdicts(Folder(str(tmp_path))))


def test_a_full_disk_is_said_and_what_is_said_again_stands_behind_no_torn_line(tmp_path: Path) -> None:
    """A real process whose files may not grow beyond 900 bytes: the third line is torn."""
    code = """
import resource, signal, sys
from pipelines.store.corrections import ReviewLog
from pipelines.store.folders import Folder
from tests.pipelines.reviewing.said import verdict
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = ReviewLog(Folder(sys.argv[1]))
most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (900, most))
said = [verdict(number) for number in range(4)]
for each in said:
    try:
        log.append(each)
    except OSError:
        print("refused")
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        log.append(each)
print(*[each.id for each in said])
"""
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    refused, ids = result.stdout.splitlines()
    assert refused == "refused"
    assert [each.id for each in read_verdicts(Folder(str(tmp_path)))] == ids.split()
    assert len(list((tmp_path / "reviews").iterdir())) == 2


def test_a_name_is_no_path(tmp_path: Path) -> None:
    log = ReviewLog(Folder(str(tmp_path / "run")))
    for name in ("../../evil", "a/b", "名前", ".", "x" * 80):
        log.append(verdict(0, name))
    log.close()
    assert [each.name for each in tmp_path.iterdir()] == ["run"]
    assert {each.reviewer for each in read_verdicts(Folder(str(tmp_path / "run")))} == {
        *("../../evil", "a/b", "名前", ".", "x" * 80)
    }
