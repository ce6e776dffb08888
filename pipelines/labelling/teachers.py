"""Teachers: their interface, the verdict on a product, and the model as its own teacher."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Protocol, Self

from hpd_core import AutoregressiveBaseline, CategorySchema, EngineError, HPDError, Record, RecordResult
from pipelines.config.labelling import SelfTeacherConfig
from pipelines.errors import RunError, UsageError
from pipelines.labelling.teacher_answers import Labels, judge, split_lists
from pipelines.store.totals import sum_of_known

# The teacher could not be had: nothing is said about the product, a rerun asks again by itself.
UNANSWERED = frozenset({"timeout", "unreachable", "rate_limited", "server_error", "no_budget", "teacher_ended"})
# Of these, the ones that end the run: the second question about a product could not be asked any more.
ENDING = frozenset({"no_budget", "teacher_ended"})
# The teacher did answer, and the answer is of no use (`--retry-rejected` asks again).
USELESS = frozenset({"not_json", "cut_off", "several_answers", "no_labels", "no_completion", "declined", "refused"})


class UnansweredError(RunError):
    """Raised if one question has no answer (`reason`: one of UNANSWERED, "refused", "declined"); the next may have."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and dollars of a product, summed over its requests. None: the teacher does not report them."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(sum_of_known, zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class TeacherVerdict:
    """Verdict on one product: labels, or the reason why there are none with the teacher's text.

    Attributes:
        attempts: number of questions about it.
        is_answered: whether it was answered, even uselessly; a second question may have failed after that.
    """

    labels: Labels | None
    usage: Usage
    attempts: int = 1
    is_answered: bool = field(default=True, kw_only=True)
    reason: str | None = None
    message: str = ""
    raw: str = ""
    problems: Counter[str] = field(default_factory=Counter)


class Teacher(Protocol):
    """Interface of a teacher. One that takes single products may be called concurrently."""

    batch_size: int
    num_workers: int
    faults: Counter[str]

    async def __aenter__(self) -> Self:
        """Check that it can be asked. Raises `UsageError` if not."""
        ...

    async def __aexit__(self, *_: object) -> None: ...

    async def label(self, records: Sequence[Record]) -> list[TeacherVerdict]:
        """Return one verdict per record. Raises `UsageError` or `RunError` if asking on is pointless."""
        ...

    def provenance(self, category: str) -> dict[str, Any]:
        """Return the provenance of labels, for a line."""
        ...


class SelfTeacher:
    """The model's own answers by plain autoregressive decoding, for self-supervision."""

    num_workers = 1

    def __init__(
        self, config: SelfTeacherConfig, schemas: Mapping[str, CategorySchema], *, require_evidence: bool
    ) -> None:
        """Load the model. Raises `UsageError` if it cannot."""
        self.faults: Counter[str] = Counter()
        self._config, self._schemas, self._require_evidence = config, schemas, require_evidence
        try:
            self._model = AutoregressiveBaseline.from_pretrained(config.model, config.engine, config.adapter)
        except HPDError as error:
            raise UsageError(f"teacher.model: {error}") from error
        self.batch_size = self._model.limits.max_prompts_per_cohort

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._model.close()

    async def label(self, records: Sequence[Record]) -> list[TeacherVerdict]:
        """Label a batch; one call at a time. See `Teacher.label`."""
        try:
            results = await asyncio.to_thread(self._model.extract, records, self._schemas)
        except EngineError as error:
            raise RunError(f"the teacher's decoding failed: {error}") from error
        return [self._verdict(record, result) for record, result in zip(records, results, strict=True)]

    def provenance(self, category: str) -> dict[str, Any]:
        """Return the provenance of labels. See `Teacher.provenance`."""
        return {
            "teacher": self._config.model,
            "kind": self._config.kind,
            "prompt_hash": self._model.prompt_hash,
            "schema_hash": self._schemas[category].hash,
        }

    def _verdict(self, record: Record, result: RecordResult) -> TeacherVerdict:
        if result.error is not None:
            reason = result.error_code.value if result.error_code is not None else "engine"
            return TeacherVerdict(None, Usage(), reason=reason, message=result.error)
        schema = self._schemas[record.category]
        values, list_problems = split_lists(schema, result.values, record.fields)
        labels = judge(schema, values, record.fields, require_evidence=self._require_evidence)
        problems = list_problems + labels.problems
        usage = Usage(output_tokens=sum(value.num_tokens for value in result.values.values()))
        if labels.values:
            return TeacherVerdict(labels, usage, problems=problems)
        raw = "\n".join(f"{name}: {value.raw}" for name, value in result.values.items())
        return TeacherVerdict(None, usage, 1, "no_labels", "no attribute has a usable answer", raw, problems)
