"""Whatever a teacher answers becomes one verdict, and one line that any reader of JSON can read."""

from __future__ import annotations

import asyncio
import functools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpd_core import Attribute, CategorySchema, Record
from hpd_core.types import is_encodable
from pipelines.config.labelling import OpenAITeacherConfig
from pipelines.labelling.completions import ChatCompletion
from pipelines.labelling.label_files import LabelFiles
from pipelines.labelling.openai_teacher import OpenAITeacher
from pipelines.labelling.teachers import Usage
from pipelines.quality.run_answers import RowKey
from tests.examples import examples

SCHEMA = CategorySchema(
    category="Lamps",
    attributes=(
        Attribute(name="Brand"),
        Attribute(name="Shade", type="enum", values=("red", "green"), multiple=True),
        Attribute(name="Power", type="number", unit="W", multiple=True),
        Attribute(name="Dimmable", type="boolean"),
    ),
)
SCHEMAS = {"Lamps": SCHEMA}
RECORD = Record("p1", "Lamps", {"title": "Corvina lamp, red, 1,500 W, a, b"})

TEXTS = st.text(alphabet="ab, 15.\\\"'{}\n\x00\ud83d\udca1€", max_size=12) | st.sampled_from(
    ["Corvina", "red, green", "1,500", "true", "NaN", "9" * 5000, "<think>", "a, b"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["value", "unit", "\ud83d"]), inner),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.sampled_from(["Brand", "Shade", "Power", "Dimmable", "brand", "\ud83d"]), VALUES)
ANSWERS = st.lists(OBJECTS.map(json.dumps) | TEXTS, max_size=3).map(" ".join)
COMPLETIONS = st.builds(
    ChatCompletion,
    text=ANSWERS,
    declined=st.just("") | TEXTS,
    is_cut=st.booleans(),
)


@functools.cache
def a_teacher(require_evidence: bool) -> OpenAITeacher:
    config = OpenAITeacherConfig(kind="openai", base_url="http://localhost:1/v1", model="m")
    return OpenAITeacher(config, SCHEMAS, require_evidence=require_evidence)


@given(st.lists(COMPLETIONS, min_size=2, max_size=2), st.booleans())
@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_answer_is_a_verdict_and_a_line(
    tmp_path: Path, completions: list[ChatCompletion], require_evidence: bool
) -> None:
    teacher = a_teacher(require_evidence)
    asked: list[Any] = []

    async def ask(messages: Any, *_: Any) -> tuple[ChatCompletion, Usage]:
        asked.append(messages)
        return completions[len(asked) - 1], Usage()

    teacher._ask = ask  # type: ignore[method-assign, assignment]
    (verdict,) = asyncio.run(teacher.label([RECORD]))
    assert (verdict.labels is None) == (verdict.reason is not None)
    assert is_encodable(json.dumps(asked, ensure_ascii=False)), "what was answered is sent with the second question"

    output = tmp_path / "labels.jsonl"
    for path in (output, Path(f"{output}.rejected.jsonl")):
        path.unlink(missing_ok=True)
    with LabelFiles(str(output), SCHEMAS) as files:
        files.add_verdict(RowKey("a.jsonl", 0), RECORD, verdict, teacher.provenance("Lamps"))
        totals = files.totals.to_dict()
    for path in (output, Path(f"{output}.rejected.jsonl")):
        for line in path.read_bytes().splitlines() if path.exists() else ():
            read = json.loads(line.decode("utf-8"), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
            assert is_encodable(json.dumps(read, ensure_ascii=False))
    with LabelFiles(str(output), SCHEMAS) as files:
        assert files.totals.to_dict() == totals
