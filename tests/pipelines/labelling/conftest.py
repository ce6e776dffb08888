"""A catalog to be labelled, a real model that was taught to label it, and a real server for that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hpd_core import Record
from pipelines.config.labelling import OpenAITeacherConfig
from pipelines.config.schema_file import parse_schemas
from pipelines.labelling.teacher_answers import product_messages
from tests.pipelines.conftest import SCHEMAS, Workplace, products
from tests.pipelines.labelling.labellings import Labelling
from tests.pipelines.labelling.served_teacher import INSTRUCTION, teach_tiny_model, transformers_serve


@pytest.fixture
def labelling(workplace: Workplace) -> Labelling:
    workplace.write_jsonl("a.jsonl", products(6))
    return Labelling(workplace)


@pytest.fixture(scope="session")
def taught_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    schemas = parse_schemas(SCHEMAS, "schemas")
    config = OpenAITeacherConfig(kind="openai", base_url="http://localhost/v1", model="m", instruction=INSTRUCTION)
    questions: dict[str, list[str]] = {name: [] for name in schemas}
    for row in products(24):
        fields = {"title": row["title"], "bullets": "\n".join(row["bullets"])}
        record = Record(row["id"], row["category"], fields)
        questions[record.category].append(product_messages(config, schemas[record.category], record)[-1]["content"])
    return teach_tiny_model(tmp_path_factory.mktemp("taught-model"), questions)


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with transformers_serve(tmp_path_factory.mktemp("serve") / "log.txt") as url:
        yield url
