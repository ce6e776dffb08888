from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.config.extraction import JobConfig
from pipelines.config.loading import parse_config
from pipelines.errors import UsageError
from pipelines.job.schema_warnings import schema_warnings
from pipelines.schemas.schema_file import load_schemas, schemas_hash
from tests.tables import table


def write(folder: Path, text: str) -> str:
    path = folder / "schemas.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@table(
    ("text", "message"),
    [
        ("categories:\n  A:\n    - {name: x}\n    - {name: x}\n", "category 'A': attribute 'x' is listed twice"),
        ("categories:\n  A: [x]\n  A: [y]\n", "line 3: key 'A' is written twice (first in line 2)"),
        ("categories:\n  A:\n    - {name: x, name: y}\n", "line 3: key 'name' is written twice"),
        ("categories:\n  A:\n    - {nmae: x}\n", "category 'A', attribute 1: unknown key 'nmae'; did you mean 'name'?"),
        ("categories:\n  A:\n    - {name: x, type: enmu}\n", "category 'A', attribute 'x': type: Input should be"),
        ("categories:\n  A:\n    - {name: x, type: enum}\n", "is an enum and needs a non-empty list 'values'"),
        ("categories:\n  A:\n    - {name: x, type: date, verbatim: true}\n", "'verbatim' is for one string"),
        ("categories:\n  A:\n    - {name: x, values: [a]}\n", "lists 'values' but its type is 'string'"),
        (
            "categories:\n  A:\n    - {name: x, type: enum, values: [yes, no]}\n",
            "value yes is read by YAML as a truth value",
        ),
        (
            "categories:\n  A:\n    - {name: 3}\n",
            ", line 3: category 'A', attribute 1: name 3 is read by YAML as the number 3, not as text; put it",
        ),
        ("categories:\n  no: [x]\n", ", line 2: category no is read by YAML as a truth value, not as text"),
        ("categories:\n  A: []\n", "category 'A': a non-empty list of attributes is needed"),
        ("categories:\n  A: x\n", "category 'A': a non-empty list of attributes is needed"),
        ("categories:\n  A: [[x]]\n", "category 'A': attribute 1 must be a name or a mapping, not a list"),
        ("categories:\n  A:\n    - {description: x}\n", "name: Field required"),
        ("categories: {}\n", "'categories' must be a mapping"),
        ("categories: [A]\n", "'categories' must be a mapping"),
        ("category:\n  A: [x]\n", "a schema file holds one mapping"),
        ("categories:\n  A: [x]\nextra: 1\n", "unknown key 'extra'"),
        ("", "a schema file holds one mapping"),
    ],
)
def test_what_is_no_schema_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load_schemas(path)
    assert str(caught.value).startswith(path)
    assert message in str(caught.value)


def test_a_job_that_cannot_copy_refuses_to(tmp_path: Path) -> None:
    path = write(tmp_path, "categories:\n  A:\n    - {name: x, verbatim: true}\n")
    job = {"model": "m", "input": {"path": "in", "id": "id", "fields": ["t"]}, "schemas": path, "output": "out"}
    for changes, message in (
        ({"engine": {"layout": "stacked"}}, "engine: it is for the layout 'tree'"),
        ({"engine": {"constrain_values": False}}, "engine: it is a constraint"),
        ({"decoding": "ar"}, "decoding: 'ar' writes what it likes"),
    ):
        with pytest.raises(UsageError, match=f"attribute 'x' of 'A' is verbatim. {message}"):
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
