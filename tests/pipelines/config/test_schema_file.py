from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.config.extraction import JobConfig
from pipelines.config.loading import parse_config
from pipelines.config.schema_file import load_schemas, schemas_hash
from pipelines.errors import UsageError
from pipelines.job.preflight import schema_warnings


def write(folder: Path, text: str) -> str:
    path = folder / "schemas.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_job_that_cannot_copy_refuses_to(tmp_path: Path) -> None:
    path = write(tmp_path, "categories:\n  A:\n    - {name: x, verbatim: true}\n")
    job = {"model": "m", "input": {"path": "in", "id": "id", "fields": ["t"]}, "schemas": path, "output": "out"}
    for changes, message in (
        ({"engine": {"layout": "stacked"}}, "engine: it is for the layout 'tree'"),
        ({"engine": {"constrain_values": False}}, "engine: it is a constraint"),
        ({"decoding": "ar"}, "decoding: 'ar' writes what it likes"),
    ):
        with pytest.raises(UsageError, match=f"attribute 'x' of 'A' is verbatim or implied. {message}"):
            schema_warnings(parse_config(JobConfig, job | changes, "job.yaml"), load_schemas(path))
    assert schema_warnings(parse_config(JobConfig, job, "job.yaml"), load_schemas(path)) == []
    with pytest.raises(UsageError, match=r"engine\.strings 'verbatim' is for decoding: hpd"):
        parse_config(JobConfig, job | {"decoding": "ar", "engine": {"strings": "verbatim"}}, "job.yaml")
    with pytest.raises(UsageError, match=r"engine\.answer_threshold is for decoding: hpd"):
        parse_config(JobConfig, job | {"decoding": "ar", "engine": {"answer_threshold": 0.4}}, "job.yaml")


def test_the_hash_follows_the_content_and_not_the_order_of_categories(tmp_path: Path) -> None:
    one = schemas_hash(load_schemas(write(tmp_path, "categories:\n  A: [x, y]\n  B: [z]\n")))
    assert one == schemas_hash(load_schemas(write(tmp_path, "categories:\n  B: [z]\n  A: [x, {name: y}]\n")))
    assert one != schemas_hash(load_schemas(write(tmp_path, "categories:\n  A: [y, x]\n  B: [z]\n")))
