"""What nobody has foreseen of one row costs that row: in the tokenizer, and where answers become tables."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq
import pytest

from hpd_core import Record
from pipelines.job import finish_stage, prepare_stage
from pipelines.job.decode_stage import ShardDecoder
from pipelines.job.finish_stage import finish_shard
from pipelines.job.preflight import plan_job
from pipelines.job.prepare_stage import prepare_shard
from pipelines.job.rounds import job_context
from pipelines.store.ledger import Ledger
from tests.pipelines.conftest import Workplace, products


def dead_letters(workplace: Workplace) -> list[dict[str, Any]]:
    """Of a shard of six rows that goes through every stage."""
    workplace.write_jsonl("c.jsonl", products(6))
    job = plan_job(workplace.config(decoding="made-up", shards={"target_tokens": 10**6, "ramp": []}))
    context = job_context(job, Ledger(job.output, "aaaa"))
    _, tables, facts = finish_shard(ShardDecoder(context).decode(prepare_shard(job.plan.shards[0], context)), context)
    assert (facts["counts"]["rows"], facts["counts"]["products"]) == (6, 5)
    rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(tables["dead_letter"].data)).to_pylist()
    return rows


def test_a_text_that_the_tokenizer_does_not_take(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    real = prepare_stage.document_tokenizer

    class Picky:
        def __init__(self, *arguments: Any) -> None:
            self._tokenizer = real(*arguments)

        def encode(self, records: Sequence[Record]) -> list[list[int]]:
            if any(record.id == "p3" for record in records):
                raise Exception("WordPiece error: Missing [UNK] token from the vocabulary")
            return self._tokenizer.encode(records)

    monkeypatch.setattr(prepare_stage, "document_tokenizer", Picky)
    (dead,) = dead_letters(workplace)
    assert (dead["product_id"], dead["stage"], dead["error_code"]) == ("p3", "prepare", "unreadable")
    assert (
        dead["error"] == "it cannot be tokenized: Exception: WordPiece error: Missing [UNK] token from the vocabulary"
    )
    assert '"p3"' in dead["row_json"]


def test_answers_that_cannot_be_written(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = finish_stage._answers

    def picky(record: Any, *arguments: Any) -> Any:
        if record.record.id == "p3":
            raise KeyError("Brand")
        return real(record, *arguments)

    monkeypatch.setattr(finish_stage, "_answers", picky)
    (dead,) = dead_letters(workplace)
    assert (dead["product_id"], dead["stage"], dead["error_code"]) == ("p3", "decode", "engine")
    assert dead["error"] == "its answers cannot be written: KeyError: 'Brand'"
    assert "answers could not be written" in caplog.text
