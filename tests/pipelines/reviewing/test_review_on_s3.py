"""A run on S3 under review: a real server, which cannot append, and one object for each verdict. Seconds to start."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from hpd_core.system import storage
from pipelines.job.run import Run
from pipelines.reviewing.gold_file import write_gold
from pipelines.reviewing.reviewed_run import write_reviews
from pipelines.store.corrections import ReviewLog, read_verdicts, settle
from pipelines.store.folders import Folder
from pipelines.store.layer import Layer
from pipelines.store.no_run import read_schemas
from tests.pipelines.job.on_s3.s3_server import BUCKET, s3_server
from tests.pipelines.reviewing.made_runs import key_of, reviewable_run
from tests.pipelines.reviewing.said import verdict
from tests.pipelines.reviewing.served import serving


def test_a_run_on_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = reviewable_run(tmp_path / "made")
    key = key_of(local, 1, "Roast")._asdict()
    with s3_server(tmp_path / "s3") as server:
        for name, value in {**server.environment, "AWS_EC2_METADATA_DISABLED": "true"}.items():
            monkeypatch.setenv(name, value)
        storage._s3_class().clear_instance_cache()
        run = Folder(f"s3://{BUCKET}/run")
        for path in (each for each in local.rglob("*") if each.is_file()):
            run.write(str(path.relative_to(local)), path.read_bytes())
        for item in ("dark", "light"):
            with serving(run.uri) as review:
                assert review.next("Ada") is not None
                assert review.say("Ada", key, "correct", item, id=f"said-{item}")["items"] == [item]
                assert review.say("Ada", key, "correct", item, id=f"said-{item}")["items"] == [item]
        assert len(run.list("reviews")) == 2, "an object for each verdict"
        (found,) = settle(read_verdicts(run)).values()
        assert found.items == ("light",)
        assert write_reviews(run.uri, Console(quiet=True)).num_rewritten == 1
        with run.open("attributes/part-000000.parquet") as file:
            rows = pq.read_table(file).to_pylist()
        assert [row["value_raw"] for row in rows if row["source"] == "review"] == ["light"]
        with serving(run.uri) as review:
            assert review.ask("undo", {"reviewer": "Ada", "id": "undo-light"})[1]["key"] == key
        layer = Layer.open(run, read_schemas(run))
        assert [each.items for each in layer.corrections.values()] == [("dark",)]
        opened = Run.open(run.uri)
        counts = write_gold(opened, read_schemas(run) or {}, f"s3://{BUCKET}/gold.jsonl")
        assert (counts.products, counts.answers) == (1, 1)
        line = json.loads(Folder(f"s3://{BUCKET}").read("gold.jsonl"))
        assert line["values"] == {"Roast": ["dark"]}
        log = ReviewLog(run)
        said = verdict(0)
        log.append(said)
        log.append(said)
        assert len([each for each in run.list("reviews") if each.startswith("ada")]) == 5
    storage._s3_class().clear_instance_cache()
