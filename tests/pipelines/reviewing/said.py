"""Verdicts as people's pages send them, said of a run without a page."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.job.run import Run
from pipelines.reviewing.desk import DeskOptions, ReviewDesk
from pipelines.store.no_run import read_schemas
from pipelines.store.verdicts import AnswerKey, ReviewVerdict

START = datetime.datetime(2026, 11, 21, 9, tzinfo=datetime.UTC)


def desk(run: Path | str, **options: Any) -> ReviewDesk:
    opened = Run.open(str(run))
    return ReviewDesk(opened, read_schemas(opened.folder) or {}, DeskOptions(**options))


def say(desk: ReviewDesk, key: AnswerKey, verdict: Any, *items: str, reviewer: str = "Ada") -> str:
    """Says it and returns the verdict's id."""
    id_ = uuid.uuid4().hex
    desk.judge(id_, reviewer, key, desk.answer(key, reviewer)["input_hash"], verdict, items)
    return id_


def verdict(second: float, reviewer: str = "Ada", kind: Any = "accept", **changes: Any) -> ReviewVerdict:
    """A line of a log, `second` seconds after the start."""
    fields: Mapping[str, Any] = {
        "id": uuid.uuid4().hex,
        "time": START + datetime.timedelta(seconds=second),
        "reviewer": reviewer,
        "source_file": "a.jsonl",
        "source_row": 0,
        "product_id": "p0",
        "category": "Coffee",
        "attribute": "Brand",
        "verdict": kind,
        "seen": {"status": "value", "items": ["Acme"]},
        "input_hash": "00",
    }
    return ReviewVerdict.model_validate({**fields, **changes})
