"""A labelling job from its catalog to its manifest. The command line is `hpd label`."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

from rich.console import Console

from hpd_core import CategorySchema, Record
from pipelines.catalog.input_files import SourceFile, scan_sources
from pipelines.catalog.readers import read_piece
from pipelines.catalog.rows import RowRefusal, SourceRow, row_category, row_id
from pipelines.catalog.sharding import plan_shards
from pipelines.config.extraction import LATER_INPUT_KEYS
from pipelines.config.labelling import LabelConfig, OpenAITeacherConfig
from pipelines.config.operation import ShardConfig
from pipelines.config.schema_file import load_schemas, schemas_hash
from pipelines.console.progress import Watched, show_progress
from pipelines.console.terminal import print_beginning, print_notes
from pipelines.errors import RunError, UsageError
from pipelines.labelling.completions import BudgetReached
from pipelines.labelling.label_files import LabelFiles, LabelOutcome, LabelTotals
from pipelines.labelling.teachers import ENDING, UNANSWERED, USELESS, SelfTeacher, Teacher, TeacherVerdict
from pipelines.quality.run_answers import RowKey

# Refused questions before any answer that show the configuration to be wrong, not the products.
_MAX_REFUSED_AT_START = 3


def run_labelling(
    config: LabelConfig, console: Console, *, limit: int | None = None, retry_rejected: bool = False
) -> LabelOutcome:
    """Label the rows that have no labels yet. Raises `UsageError` or `RunError`; lines that were written stay."""
    if limit is not None and config.sample is not None:
        raise UsageError("--limit takes the first rows and 'sample' draws some: give one of the two")
    schemas = load_schemas(config.schemas)
    sources = scan_sources(config.input)
    files, left_out = sources.files, sources.left_out
    print_notes(console, [*sources.warnings(), *sources.sample_warnings()])
    rows = ChosenRows(files, config, limit)
    with LabelFiles(config.output, schemas) as output:
        manifest = _check_resume(config, files, schemas, output)
        job = _Job(config, schemas, output, rows, retry_rejected)
        first = next(job.todo, None)
        if first is None:
            return LabelOutcome(output.totals, rows.count, 0, 0.0, {}, was_finished=True, left_out=left_out)
        job.todo = itertools.chain([first], job.todo)
        print_beginning(console, _beginning(config))
        teacher = _teacher(config, schemas, output.totals)
        started = time.monotonic()
        stopped, status = None, "stopped"
        if not output.is_new:
            done = f"{len(output.totals.labelled):,} labelled, {len(output.totals.rejected):,} rejected"
            console.print(f"Continuing {config.output}: {done} so far.", highlight=False, soft_wrap=True)
        waiting = Watched("asking the teacher")
        with show_progress(console, output.totals, rows.count, config.log_seconds, lambda: waiting, "rejected"):
            try:
                stopped = asyncio.run(job.run(teacher, manifest))
                status = "stopped" if stopped else "finished"
            finally:
                seconds = time.monotonic() - started
                if job.has_started:
                    total = manifest.get("seconds", 0.0) + seconds
                    output.write_manifest(
                        {**manifest, "status": status, **output.totals.to_dict(), "seconds": round(total, 3)}
                    )
        outcome = LabelOutcome(
            output.totals, rows.count, job.num_asked, seconds, dict(teacher.faults), stopped=stopped, left_out=left_out
        )
        if stopped is None and job.num_accounted != rows.count:
            raise RunError(f"{rows.count} rows were chosen, but {job.num_accounted} are labelled or rejected")
        return outcome


class _Todo(NamedTuple):
    """A row without a final verdict, with its id and category if they can be read."""

    key: RowKey
    record: Record | RowRefusal
    product_id: str | None = None
    category: str | None = None


class _Job:
    """Work of one session."""

    def __init__(
        self,
        config: LabelConfig,
        schemas: Mapping[str, CategorySchema],
        output: LabelFiles,
        rows: ChosenRows,
        retry_rejected: bool,
    ) -> None:
        self.num_asked = self.num_accounted = 0
        self.has_started = False
        self.todo: Iterator[_Todo] = self._missing(
            rows, schemas, UNANSWERED | USELESS if retry_rejected else UNANSWERED
        )
        self._config, self._output, self._totals = config, output, output.totals
        self._failures_in_a_row = 0
        self._has_answered = False
        self._refused: list[tuple[RowKey, Record, TeacherVerdict]] = []
        self._all_refused: UsageError | None = None
        self._end: RunError | UsageError | BudgetReached | None = None

    async def run(self, teacher: Teacher, manifest: Mapping[str, Any]) -> str | None:
        """Ask about all rows. Returns why the budget stopped it early, or None."""
        async with teacher:
            self._output.write_manifest({**manifest, "status": "running"})
            self.has_started = True
            try:
                async with asyncio.TaskGroup() as workers:
                    for _ in range(teacher.num_workers):
                        workers.create_task(self._work(teacher))
            except BaseExceptionGroup as group:
                raise group.exceptions[0] from None
            finally:
                if not isinstance(self._end, UsageError):
                    # Refused before anything was answered, but not often enough to blame the configuration.
                    self._write_refused(teacher)
        if isinstance(self._end, RunError | UsageError):
            raise self._end
        return str(self._end) if self._end is not None else None

    async def _work(self, teacher: Teacher) -> None:
        while self._end is None and (batch := self._next_batch(teacher.batch_size)):
            try:
                verdicts = await teacher.label([record for _, record in batch])
            except (RunError, UsageError, BudgetReached) as error:
                # The others bring home what is under way: it is paid.
                self._stop(error)
                return
            for (key, record), verdict in zip(batch, verdicts, strict=True):
                self._take(key, record, verdict, teacher)

    def _next_batch(self, size: int) -> list[tuple[RowKey, Record]]:
        batch: list[tuple[RowKey, Record]] = []
        for todo in self.todo:
            if isinstance(todo.record, RowRefusal):
                self._output.add_refusal(todo.key, todo.record, todo.product_id, todo.category)
                self.num_accounted += 1
                continue
            batch.append((todo.key, todo.record))
            if len(batch) == size:
                break
        return batch

    def _take(self, key: RowKey, record: Record, verdict: TeacherVerdict, teacher: Teacher) -> None:
        self.num_asked += 1
        if verdict.reason == "refused" and not verdict.is_answered and not self._has_answered:
            self._refused.append((key, record, verdict))
            if len(self._refused) >= _MAX_REFUSED_AT_START and self._end is None:
                self._end = self._all_refused = UsageError(f"the teacher refuses every question: {verdict.message}")
            return
        if verdict.reason in ENDING:
            end = BudgetReached if verdict.reason == "no_budget" else RunError
            self._stop(end(verdict.message))
        if verdict.is_answered:
            if self._end is not None and self._end is self._all_refused:
                # An answer was under way: nothing is wrong with the configuration.
                self._stop(RunError(f"the teacher refused the first questions: {self._refused[-1][2].message}"))
            self._has_answered = True
            self._write_refused(teacher)
        self._write(key, record, verdict, teacher)
        if verdict.reason not in UNANSWERED:
            self._failures_in_a_row = 0
        elif verdict.reason not in ENDING:
            self._failures_in_a_row += 1
            if self._failures_in_a_row >= self._config.max_consecutive_failures:
                count = self._failures_in_a_row
                self._stop(RunError(f"{count} products in a row got no answer, the last one: {verdict.message}"))

    def _stop(self, end: RunError | UsageError | BudgetReached) -> None:
        """Stop asking. The first reason is reported, but `_all_refused` gives way to a more specific one."""
        if self._end is None or self._end is self._all_refused:
            self._end = end

    def _write_refused(self, teacher: Teacher) -> None:
        for key, record, verdict in self._refused:
            self._write(key, record, verdict, teacher)
        self._refused.clear()

    def _write(self, key: RowKey, record: Record, verdict: TeacherVerdict, teacher: Teacher) -> None:
        self._output.add_verdict(key, record, verdict, teacher.provenance(record.category))
        self.num_accounted += 1

    def _missing(
        self, rows: ChosenRows, schemas: Mapping[str, CategorySchema], again: frozenset[str]
    ) -> Iterator[_Todo]:
        columns = self._config.input
        for file, row in rows.read():
            key = RowKey(file.name, row.number)
            reason = self._totals.rejected.get(key)
            if key in self._totals.labelled or (reason is not None and reason not in again):
                self.num_accounted += 1
                continue
            record = row.record(file.name, columns, schemas)
            if row.values is None:
                yield _Todo(key, record)
                continue
            if isinstance(record, Record):
                holder = self._totals.holders.setdefault(record.id, key)
                if holder != key:
                    place = f"{holder.source_file}, row {holder.source_row}"
                    record = RowRefusal(
                        "doubled_id", f"the id {record.id!r} is that of {place}: a gold file has it once"
                    )
            yield _Todo(key, record, row_id(row.values, columns), row_category(row.values, columns))


def _check_resume(
    config: LabelConfig, files: Sequence[SourceFile], schemas: Mapping[str, CategorySchema], output: LabelFiles
) -> dict[str, Any]:
    """Return the manifest to continue. Raises `UsageError` if one file would mix labels of two kinds."""
    mapped = config.input.model_dump(mode="json")
    identity = {
        "teacher": config.teacher.result_config(),
        "input": {
            "files": {file.name: file.fingerprint for file in files},
            "id": mapped["id"],
            "category": mapped["category"],
            "fields": [list(field) for field in mapped["fields"].items()],
            **{key: mapped[key] for key in LATER_INPUT_KEYS if mapped[key] is not None},
            "list_separator": config.input.list_separator,
            # As it was before there was a choice.
            "html": None if config.input.html == "never" else config.input.html,
        },
        "schemas": schemas_hash(schemas),
        "require_evidence": config.require_evidence,
        "sample seed": config.seed if config.sample is not None else None,
    }
    stored = output.read_manifest()
    if stored is None and not output.is_new:
        raise UsageError(f"{output.path} is there, but not its manifest {output.manifest_path}; name another output")
    if stored is not None and not output.is_new:
        changed = [
            change for key in identity for change in _changes(key, stored.get("identity", {}).get(key), identity[key])
        ]
        if changed:
            raise UsageError(
                f"{config.output} was begun with another configuration: {'; '.join(changed)}. "
                "Take that back, or name another output"
            )
    return {
        "status": "new",
        "seconds": stored.get("seconds", 0.0) if stored is not None else 0.0,
        "config": config.model_dump(mode="json"),
        "identity": identity,
        "hpd_version": version("hyper-parallel-decoding"),
    }


def _changes(name: str, before: Any, now: Any) -> list[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        keys = dict.fromkeys([*before, *now])
        return [change for key in keys for change in _changes(f"{name}.{key}", before.get(key), now.get(key))]
    if before == now:
        return []
    shown = [text if len(text := repr(value)) <= 60 else text[:60] + "..." for value in (before, now)]
    return [f"{name} has changed"] if shown[0] == shown[1] else [f"{name} was {shown[0]}, is now {shown[1]}"]


def _beginning(config: LabelConfig) -> str:
    """Return the text on what happens before the first question."""
    teacher = config.teacher
    if isinstance(teacher, OpenAITeacherConfig):
        return f"asking {teacher.base_url} whether it is there"
    return f"loading the model {teacher.model}"


def _teacher(config: LabelConfig, schemas: Mapping[str, CategorySchema], totals: LabelTotals) -> Teacher:
    if not isinstance(config.teacher, OpenAITeacherConfig):
        return SelfTeacher(config.teacher, schemas, require_evidence=config.require_evidence)
    try:
        from pipelines.labelling.openai_teacher import OpenAITeacher
    except ImportError as error:
        raise UsageError(f'teacher.kind "openai" needs a package: pip install "openai>=3" ({error})') from error
    return OpenAITeacher(
        config.teacher, schemas, require_evidence=config.require_evidence, spent=totals.cost_usd or 0.0
    )


class ChosenRows:
    """The rows to label, in the catalog's order."""

    def __init__(self, files: Sequence[SourceFile], config: LabelConfig, limit: int | None) -> None:
        self._files, self._config, self._limit = files, config, limit
        total = sum(file.num_rows for file in files)
        self._drawn = None if config.sample is None else sorted(_draw(total, config.sample, config.seed))
        self.count = min(total, limit or total) if self._drawn is None else len(self._drawn)

    def read(self) -> Iterator[tuple[SourceFile, SourceRow]]:
        """Yield the chosen rows; reads only the pieces of files that hold one."""
        pieces = [
            piece for shard in plan_shards(self._files, ShardConfig(), 0, 1, self._limit) for piece in shard.pieces
        ]
        start = 0
        for piece in pieces:
            stop = start + piece.num_rows
            wanted = None
            if self._drawn is not None:
                wanted = set(self._drawn[bisect_left(self._drawn, start) : bisect_left(self._drawn, stop)])
            if wanted is None or wanted:
                file = self._files[piece.file]
                columns = self._config.input.columns
                rows = read_piece(*file.rows, piece, columns, anonymous=self._config.input.anonymous)
                yield from ((file, row) for number, row in enumerate(rows, start) if wanted is None or number in wanted)
            start = stop


def _draw(total: int, count: int, seed: int) -> list[int]:
    """Draw `count` of `total` numbers; a larger draw with the same seed begins with the same ones."""
    generator = random.Random(seed)
    moved: dict[int, int] = {}
    drawn = []
    for first in range(min(count, total)):
        place = generator.randrange(first, total)
        drawn.append(moved.get(place, place))
        moved[place] = moved.get(first, first)
    return drawn
