"""Confidences of answers before they are rows of a table: by them a larger model is asked again (`cascade`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpd_core import Record, RecordResult
from pipelines.confidence.calibration_file import CalibratedModel
from pipelines.confidence.run_confidence import run_confidence
from pipelines.job.answer_rows import answer_rows, find_places
from pipelines.job.context import JobContext
from pipelines.normalising.normalise import normalisers


def confidences(
    record: Record, result: RecordResult, engine: Mapping[str, Any], job: JobContext
) -> dict[str, float | None]:
    """By attribute, how probably the answer is right, None where it is no value; empty without a calibration.

    Args:
        engine: the description of the one that answered.
    """
    model, known = CalibratedModel.of(engine), run_confidence(job.output)
    if not known.knows(model):
        return {}
    schema = job.schemas[record.category]
    evidence, normalising = find_places(record, schema, result, job.config.input.html), normalisers(schema)
    found = {}
    for attribute in schema.attributes:
        if (value := result.values.get(attribute.name)) is not None:
            places = evidence.get(attribute.name, ())
            rows = list(answer_rows(attribute.name, value, places, normalising[attribute.name]))
            found[attribute.name], _ = known.judge(rows, record.category, attribute, model)
    return found
