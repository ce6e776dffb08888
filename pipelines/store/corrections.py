"""Corrections from people's verdicts: the right answer for each judged answer.

An undone verdict does not count. A person's last verdict counts, and of several people's the last one. If they differ,
the correction is marked as disputed.

Logs of a run's reviews, in its folder `reviews`. A line is durable before it is acknowledged.

    reviews/<reviewer>-<start>.jsonl             on a disk: a line is appended and fsynced for each verdict
    reviews/<reviewer>-<start>-<number>.jsonl    on an object store, which cannot append: an object for each verdict

Every start of a reviewer has files of its own, so that nothing is appended to a line that a kill has torn.
"""

from __future__ import annotations

import os
import re
import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations, count
from pathlib import Path
from typing import Any

from pipelines.errors import RunError
from pipelines.store.folders import Folder, map_requests
from pipelines.store.verdicts import AnswerKey, ReviewVerdict, SeenAnswer, answer_items, parse_log, plain_number


@dataclass(frozen=True, slots=True)
class Correction:
    """Outcome of people's verdicts on an answer.

    Attributes:
        verdict: the one that counts.
        others: last verdicts of other reviewers, oldest first.
    """

    verdict: ReviewVerdict
    others: tuple[ReviewVerdict, ...] = ()

    @property
    def key(self) -> AnswerKey:
        """Key of the answer that it is about."""
        return self.verdict.key

    @property
    def items(self) -> tuple[str, ...]:
        """Right values; empty if the text states none."""
        return self.verdict.answer.items

    @property
    def is_accepted(self) -> bool:
        """Whether the model's answer was accepted unchanged."""
        return self.verdict.verdict == "accept"

    def is_of(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether an answer, given as its rows, is the one that was judged.

        If the run was redone in this folder, another model may have answered.
        """
        seen, first = self.verdict.seen, rows[0]
        return (first["status"], answer_items(rows)) == (seen.status, seen.items)

    @property
    def is_corrected(self) -> bool:
        """Whether the right answer differs from the model's."""
        return not same_answer(self.verdict.answer, self.verdict.seen)

    @property
    def is_disputed(self) -> bool:
        """Whether the reviewers' answers differ."""
        return any(not same_answer(other.answer, self.verdict.answer) for other in self.others)


def settle(verdicts: Iterable[ReviewVerdict]) -> dict[AnswerKey, Correction]:
    """Merge verdicts, ordered as by `in_order`, into corrections."""
    found: dict[AnswerKey, Correction] = {}
    for key, by_reviewer in latest(verdicts).items():
        *others, last = by_reviewer.values()
        found[key] = Correction(last, tuple(others))
    return found


def latest(verdicts: Iterable[ReviewVerdict]) -> dict[AnswerKey, dict[str, ReviewVerdict]]:
    """Return for each answer every reviewer's last verdict that gives the right answer, in order of time.

    A later skip of an answer withdraws the reviewer's verdict.
    """
    verdicts = list(verdicts)
    undone = {verdict.undoes for verdict in verdicts if verdict.verdict == "undo"}
    found: dict[AnswerKey, dict[str, ReviewVerdict]] = {}
    for verdict in verdicts:
        if verdict.verdict == "undo" or verdict.id in undone:
            continue
        here = found.setdefault(verdict.key, {})
        here.pop(verdict.reviewer, None)  # the last one stands at the end
        if verdict.is_answer:
            here[verdict.reviewer] = verdict
    return {key: here for key, here in found.items() if here}


def same_answer(first: SeenAnswer, second: SeenAnswer) -> bool:
    """Return whether two answers are equal, ignoring case, spaces, order of items and units of numbers."""
    if first.status != second.status:
        return False
    if first.forms and second.forms and set(first.forms) == set(second.forms):
        return True
    if bool(first.forms) != bool(second.forms):
        # What one of the numbers is worth is not known: that its unit is left open makes it no other number.
        return _folded(map(_number, first.items)) == _folded(map(_number, second.items))
    return _folded(first.items) == _folded(second.items)


def _number(item: str) -> str:
    text = plain_number(item)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _folded(items: Iterable[str]) -> set[str]:
    return {" ".join(item.split()).casefold() for item in items}


@dataclass(frozen=True, slots=True)
class ReviewerAgreement:
    """Agreement over all pairs of reviewers of an answer.

    Attributes:
        pairs: number of reviewer pairs with the same answer judged (three reviewers of one answer are three pairs).
        same: number of pairs with the same right answer.
        kappa: Cohen's kappa on whether the model is right: 1 full agreement, 0 chance agreement. None without pairs, or
            if all verdicts are the same.
    """

    pairs: int
    same: int
    kappa: float | None

    @property
    def share(self) -> float | None:
        """Share of pairs that agree; None without pairs."""
        return self.same / self.pairs if self.pairs else None


def agreement(verdicts: Iterable[ReviewVerdict]) -> ReviewerAgreement:
    """Compute the agreement from verdicts in order, without undone ones."""
    same = 0
    judged: Counter[tuple[bool, bool]] = Counter()
    for by_reviewer in latest(verdicts).values():
        # By name: whoever comes first in a pair is the same one every time.
        for first, second in combinations([by_reviewer[name] for name in sorted(by_reviewer)], 2):
            same += same_answer(first.answer, second.answer)
            judged[_finds_right(first), _finds_right(second)] += 1
    return ReviewerAgreement(judged.total(), same, kappa(judged))


def _finds_right(verdict: ReviewVerdict) -> bool:
    return same_answer(verdict.answer, verdict.seen)


def kappa(judged: Counter[tuple[Any, Any]]) -> float | None:
    """Return Cohen's kappa of pairs of judgements; None without pairs, or if chance alone would always agree."""
    total, firsts, seconds = judged.total(), Counter[Any](), Counter[Any]()
    for (first, second), number in judged.items():
        firsts[first] += number
        seconds[second] += number
    observed = sum(number for (first, second), number in judged.items() if first == second)
    chance = sum(firsts[each] * seconds[each] for each in firsts) / total if total else 0.0
    return (observed - chance) / (total - chance) if chance < total else None


REVIEWS_FOLDER = "reviews"
_SUFFIX = ".jsonl"


def read_verdicts(run: Folder) -> list[ReviewVerdict]:
    """Read all verdicts on the run's answers, each once, oldest first.

    Raises `UsageError` for a damaged log, `OSError` if one cannot be read.
    """
    names = [f"{REVIEWS_FOLDER}/{name}" for name in run.list(REVIEWS_FOLDER) if name.endswith(_SUFFIX)]
    logs = zip(names, map_requests(run.read, names), strict=True)
    return in_order(verdict for name, data in logs for verdict in parse_log(data, run.describe(name)))


def in_order(verdicts: Iterable[ReviewVerdict]) -> list[ReviewVerdict]:
    """Sort verdicts by time and dedupe them by id; the oldest of equal ids counts."""
    found: dict[str, ReviewVerdict] = {}
    for verdict in sorted(verdicts, key=lambda each: (each.time, each.id)):
        found.setdefault(verdict.id, verdict)
    return list(found.values())


class ReviewLog:
    """Writer of verdicts; thread-safe."""

    def __init__(self, run: Folder) -> None:
        self._run = run
        self._start = uuid.uuid4().hex[:12]
        self._files: dict[str, int] = {}
        self._numbers = count()
        self._lock = threading.Lock()

    def append(self, verdict: ReviewVerdict) -> None:
        """Write a verdict durably, to the disk or to the store.

        Raises `OSError` or `RunError` if that may have failed; the same verdict may then be appended again.
        """
        with self._lock:
            folder = self._run.local_path(REVIEWS_FOLDER)
            if folder is None:
                self._put(verdict)
            else:
                self._append(folder, verdict)

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            for file in self._files.values():
                os.close(file)
            self._files.clear()

    def _append(self, folder: Path, verdict: ReviewVerdict) -> None:
        if verdict.reviewer not in self._files:
            self._files[verdict.reviewer] = _create(folder / f"{_plain(verdict.reviewer)}-{self._name()}{_SUFFIX}")
        file = self._files[verdict.reviewer]
        try:
            data = verdict.line()
            while data:
                data = data[os.write(file, data) :]
            os.fsync(file)
        except OSError:
            # It may be torn: what comes next must not stand behind it.
            del self._files[verdict.reviewer]
            with suppress(OSError):
                os.close(file)
            raise

    def _put(self, verdict: ReviewVerdict) -> None:
        name = f"{REVIEWS_FOLDER}/{_plain(verdict.reviewer)}-{self._name()}{_SUFFIX}"
        data = verdict.line()
        # A repeated request can say that the object was there already, although it is ours.
        if not self._run.create(name, data) and self._run.read(name) != data:
            raise RunError(f"{self._run.describe(name)}: another process has written it")

    def _name(self) -> str:
        return f"{self._start}-{next(self._numbers):06d}"


def _create(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
    for folder in (path.parent, path.parent.parent):
        _sync_folder(folder)
    return file


def _sync_folder(folder: Path) -> None:
    """Sync a folder, because a file whose name is not on the disk is lost in a power failure."""
    with suppress(OSError):  # not every file system lets a folder be synced
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _plain(reviewer: str) -> str:
    """Return the reviewer's name as part of a file name; the lines hold the full name."""
    return re.sub(r"[^a-z0-9]+", "-", reviewer.lower()).strip("-")[:40] or "reviewer"
