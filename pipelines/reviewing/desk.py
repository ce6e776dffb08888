"""A run under review: hands out answers, accepts verdicts, and logs each before confirming it."""

from __future__ import annotations

import datetime
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from hpd_core import Attribute, CategorySchema
from pipelines.errors import UsageError
from pipelines.job.run import Run
from pipelines.reviewing.candidates import Candidates, Queue, ReviewCandidate, Wish, draw_sample, find_candidates
from pipelines.reviewing.shown_answer import (
    ReviewedProduct,
    is_unclear,
    places_of_items,
    read_product,
    seen_forms,
    shard_of,
    shown_answer,
    shown_vocabulary,
)
from pipelines.store.corrections import ReviewLog, agreement, latest
from pipelines.store.layer import Layer
from pipelines.store.texts_in_run import LeftOutReviews
from pipelines.store.verdicts import (
    AnswerKey,
    ItemError,
    ReviewVerdict,
    SeenAnswer,
    VerdictName,
    answer_items,
    checked_items,
    number_forms,
    plain_number,
)

_REMEMBERED = 200
"""Number of products that are kept: one has several answers."""


@dataclass(frozen=True, slots=True)
class DeskOptions:
    """Options of a review.

    Attributes:
        overlap: share of the answers that two reviewers judge.
        sample: number of products drawn at random, whose answers are all reviewed; None: the least certain answers.
        seed: seed of the draw.
    """

    overlap: float = 0.0
    sample: int | None = None
    seed: int = 0


class UnknownAnswerError(KeyError):
    """Raised if the run has no such answer."""


class OtherTextError(ValueError):
    """Raised if a verdict is about another text than the row now has."""


class ReviewDesk:
    """Review of one run; thread-safe. Every confirmed verdict is in the log."""

    def __init__(self, run: Run, schemas: Mapping[str, CategorySchema], options: DeskOptions) -> None:
        """Read the candidates and the earlier verdicts. Raises `UsageError` or `OSError` if they cannot be read."""
        self._run, self._schemas, self._options = run, schemas, options
        self._log = ReviewLog(run.folder)
        self._layer = Layer.open(run.folder, schemas)
        # Verdicts on other texts than the run now has are left out.
        self._verdicts = {verdict.id: verdict for verdict in self._layer.verdicts}
        self._last = max((verdict.time for verdict in self._verdicts.values()), default=_now())
        self._read = lru_cache(_REMEMBERED)(partial(read_product, run, self._layer))
        self._lock = threading.RLock()
        candidates = self._candidates(_reviewed(self._verdicts.values()))
        if not any(candidates.lines) and not self._verdicts:
            raise UsageError(f"{run.folder.uri} has no answer to review")
        self._kind = candidates.kind
        self._queue = Queue(candidates, self._verdicts.values(), options.overlap, time.monotonic)

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    @property
    def left_out(self) -> Sequence[LeftOutReviews]:
        """Verdicts on other texts or answers than the run now has, or on rows that it lacks."""
        return self._layer.left_out

    def state(self, reviewer: str | None) -> dict[str, Any]:
        """Return the data that the page shows around the answers."""
        with self._lock:
            verdicts = list(self._verdicts.values())
            waiting = self._queue.waiting
        agreed = agreement(verdicts)
        by_key = latest(verdicts)
        mine = [each for each in by_key.values() if reviewer in each]
        return {
            "run": self._run.name,
            # Whatever it was called by: a browser keeps what is not saved for this run alone.
            "folder": f"{self._run.folder.absolute_uri} {self._run.plan.run_id}",
            "kind": self._kind,
            "pairs": [[*pair, count] for pair, count in sorted(waiting.items())],
            "reviewed": len(by_key),
            "waiting": sum(waiting.values()),
            "mine": len(mine),
            "reviewers": sorted({name for each in by_key.values() for name in each}),
            "agreement": {"pairs": agreed.pairs, "share": agreed.share, "kappa": agreed.kappa},
        }

    def next(self, reviewer: str, wish: Wish) -> dict[str, Any] | None:
        """Return the next answer for a reviewer; None if none is left."""
        with self._lock:
            found = self._queue.next(reviewer, wish) or self._refilled(reviewer, wish)
        if found is None:
            return None
        return self._shown(found.key, self._read(found.key[:2], found.shard), reviewer)

    def answer(self, key: AnswerKey, reviewer: str) -> dict[str, Any]:
        """Return an answer that a reviewer requests. Raises `UnknownAnswerError`."""
        product = self._product(key)
        with self._lock:
            self._queue.lend(key, reviewer)
        return self._shown(key, product, reviewer)

    def vocabulary(self, category: str, attribute: str) -> list[dict[str, Any]]:
        """Return the members of an attribute. Raises `UnknownAnswerError`."""
        return shown_vocabulary(self._attribute(category, attribute))

    def judge(
        self, id: str, reviewer: str, key: AnswerKey, shown_hash: str, verdict: VerdictName, items: Sequence[str]
    ) -> tuple[str, ...]:
        """Record a verdict and return the right values as parsed. A verdict with a known id is not recorded again.

        Args:
            shown_hash: the `input_hash` of the text that the reviewer was shown.

        Raises:
            ItemError: the attribute cannot have the items.
            OtherTextError: the run was redone since, and the row has another text.
            UnknownAnswerError: the run has no such answer.
            OSError, RunError: it could not be stored.
        """
        if (known := self._verdicts.get(id)) is not None:
            return known.answer.items
        product = self._product(key)
        if product.input_hash != shown_hash:
            raise OtherTextError("the row has another text now than the one that this was said of: look at it again")
        attribute = self._attribute(product.category, key.attribute)
        if verdict == "accept" and product.answers[key.attribute][0]["status"] not in ("value", "absent"):
            raise ItemError("there is no whole value to accept: correct it, or mark it as not stated")
        if verdict == "accept" and any(is_unclear(row, attribute) for row in product.answers[key.attribute]):
            raise ItemError("what the number is worth is not clear: correct it, with its unit")
        found = checked_items(attribute, items, product.texts) if verdict == "correct" else ()
        parts = {"forms": number_forms(attribute, found), "evidence": self._places(product, key, found)}
        said = self._say(id, reviewer, key, product, verdict, items=found, **parts)
        return said.answer.items if said.is_answer else ()

    def undo(self, id: str, reviewer: str) -> AnswerKey | None:
        """Undo the reviewer's last verdict and return the key of its answer; None if there is none."""
        with self._lock:
            if (known := self._verdicts.get(id)) is not None:
                return known.key
            undone = {verdict.undoes for verdict in self._verdicts.values()}
            mine = [
                each
                for each in self._verdicts.values()
                if each.reviewer == reviewer and each.verdict != "undo" and each.id not in undone
            ]
        if not mine:
            return None
        # From the verdict alone: the answer may be gone from the queue, and the row from the run.
        self._keep(
            mine[-1].model_copy(
                update={
                    **{"id": id, "time": self._next_time(), "verdict": "undo", "undoes": mine[-1].id},
                    **{"items": (), "forms": (), "evidence": None},
                }
            )
        )
        with self._lock:
            self._queue.lend(mine[-1].key, reviewer)
        return mine[-1].key

    def _say(
        self, id: str, reviewer: str, key: AnswerKey, product: ReviewedProduct, verdict: VerdictName, **parts: Any
    ) -> ReviewVerdict:
        rows = product.answers[key.attribute]
        attribute = self._attribute(product.category, key.attribute)
        said = ReviewVerdict(
            id=id,
            time=self._next_time(),
            reviewer=reviewer,
            **key._asdict(),
            product_id=product.product_id,
            category=product.category,
            verdict=verdict,
            seen=SeenAnswer(status=rows[0]["status"], items=answer_items(rows), forms=seen_forms(attribute, rows)),
            input_hash=product.input_hash,
            unit=attribute.unit.want if attribute.unit is not None else None,
            **parts,
        )
        self._keep(said)
        return said

    def _keep(self, said: ReviewVerdict) -> None:
        self._log.append(said)
        with self._lock:
            if said.id not in self._verdicts:
                self._verdicts[said.id] = said
                self._queue.record(said)

    def _next_time(self) -> datetime.datetime:
        """Return a time later than any earlier verdict's, even if a clock was set back."""
        with self._lock:
            self._last = max(_now(), self._last + datetime.timedelta(microseconds=1))
            return self._last

    def _places(self, product: ReviewedProduct, key: AnswerKey, items: Sequence[str]) -> Any:
        if not items:
            return None
        html = self._run.input_settings.get("html", "never")
        numbers = [plain_number(item) for item in items]
        return places_of_items(product, self._schemas[product.category], key.attribute, numbers, html)

    def _product(self, key: AnswerKey) -> ReviewedProduct:
        with self._lock:
            candidate = self._queue.find(key)
        shard = candidate.shard if candidate is not None else shard_of(self._run, key)
        product = self._read(key[:2], shard) if shard is not None else None
        if product is None or key.attribute not in product.answers:
            raise UnknownAnswerError(key)
        return product

    def _shown(self, key: AnswerKey, product: ReviewedProduct | None, reviewer: str) -> dict[str, Any]:
        if product is None:
            raise UnknownAnswerError(key)
        with self._lock:
            here = [verdict for verdict in self._verdicts.values() if verdict.key == key]
        mine = latest(here).get(key, {}).get(reviewer)
        return shown_answer(key, product, self._attribute(product.category, key.attribute), mine)

    def _attribute(self, category: str, name: str) -> Attribute:
        schema = self._schemas.get(category)
        for attribute in schema.attributes if schema is not None else ():
            if attribute.name == name:
                return attribute
        raise UnknownAnswerError(f"{category} > {name}")

    def _refilled(self, reviewer: str, wish: Wish) -> ReviewCandidate | None:
        """Refill the queue with answers that were not in memory; return the next one, or None if none is left."""
        if not self._queue.has_more(wish):
            return None
        self._queue.fill(self._candidates(self._queue.touched))
        return self._queue.next(reviewer, wish)

    def _candidates(self, reviewed: Mapping[tuple[str, str], int]) -> Candidates:
        if self._options.sample is not None:
            return draw_sample(self._run.parts, self._options.sample, self._options.seed)
        return find_candidates(self._run.parts, reviewed)


def _reviewed(verdicts: Any) -> Counter[tuple[str, str]]:
    return Counter((next(iter(each.values())).category, key.attribute) for key, each in latest(verdicts).items())


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
