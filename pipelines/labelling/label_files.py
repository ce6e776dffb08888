"""Files of a labelling job: labels, rejections and the manifest, and their state for a rerun.

Labels and rejections are logs with one line per verdict, flushed one by one, so that paid verdicts are kept. If a
product has several lines, labels win over rejections and a later rejection over an earlier one. All totals come from
the lines, so they are right after any kill.
"""

from __future__ import annotations

import datetime
import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from rich.console import Console

from hpd_core import CategorySchema, Record
from pipelines.catalog.listing import LeftOutFiles
from pipelines.catalog.rows import RowRefusal
from pipelines.config.labelling import LabelConfig
from pipelines.console.exit_codes import EXIT_BUDGET, EXIT_CLEAN, EXIT_INCOMPLETE
from pipelines.console.progress import describe_counts, format_seconds
from pipelines.errors import UsageError
from pipelines.labelling.completions import well_formed
from pipelines.labelling.teachers import ENDING, TeacherVerdict
from pipelines.quality.run_answers import RowKey
from pipelines.store.folders import Folder
from pipelines.store.isolation import open_log, whole_lines

_MAX_RAW = 20_000  # characters of a useless answer that are kept


@dataclass(slots=True)
class LabelTotals:
    """Totals over the lines of both files."""

    labelled: set[RowKey] = field(default_factory=set)
    rejected: dict[RowKey, str] = field(default_factory=dict)
    holders: dict[str, RowKey] = field(default_factory=dict)
    values: int = 0
    absent: int = 0
    unlabelled: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None

    @property
    def products(self) -> int:
        """Number of labelled products."""
        return len(self.labelled)

    @property
    def dead_letters(self) -> int:
        """Number of rejected products."""
        return len(self.rejected)

    @property
    def rows(self) -> int:
        """Number of products that are done."""
        return self.products + self.dead_letters

    def add(self, line: Mapping[str, Any], schemas: Mapping[str, CategorySchema]) -> None:
        """Count one line, just written or read back. Raises `KeyError` or `TypeError` if it is not one of ours."""
        origin = line["provenance"]
        key = RowKey(origin["source_file"], origin["source_row"])
        self.problems.update(origin.get("problems", {}))
        self.input_tokens += origin.get("input_tokens") or 0
        self.output_tokens += origin.get("output_tokens") or 0
        if origin.get("cost_usd") is not None:
            self.cost_usd = (self.cost_usd or 0.0) + origin["cost_usd"]
        if "input" in line:  # only what was a product holds its id: a row that could not be read does not
            self.holders.setdefault(line["product_id"], key)
        if "values" not in line:
            if key not in self.labelled:
                self.rejected[key] = line["reason"]
            return
        self.labelled.add(key)
        self.rejected.pop(key, None)
        num_absent = sum(forms is None for forms in line["values"].values())
        self.absent += num_absent
        self.values += len(line["values"]) - num_absent
        self.unlabelled += len(schemas[line["category"]].attributes) - len(line["values"])

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for the manifest and `--json`."""
        return {
            "labelled": len(self.labelled),
            "rejected": len(self.rejected),
            "rejected_by_reason": dict(Counter(self.rejected.values()).most_common()),
            "values": {"value": self.values, "absent": self.absent, "unlabelled": self.unlabelled},
            "problems": dict(self.problems.most_common()),
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost_usd": None if self.cost_usd is None else round(self.cost_usd, 6),
        }


class LabelFiles:
    """Files of one process at a time. Reads existing lines, repairs what a kill tore, appends."""

    REJECTED_SUFFIX = ".rejected.jsonl"
    MANIFEST_SUFFIX = ".json"

    def __init__(self, output: str, schemas: Mapping[str, CategorySchema]) -> None:
        """Open the files. Raises `UsageError` if they cannot be used, or another process uses them."""
        self.path = Path(output)
        self.rejected_path = Path(output + self.REJECTED_SUFFIX)
        self.manifest_path = Path(output + self.MANIFEST_SUFFIX)
        self.totals = LabelTotals()
        self._schemas = schemas
        self._folder = Folder(str(self.path.parent))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._labels = open_log(self.path)
        except OSError as error:
            raise UsageError(f"cannot write {output}: {error.strerror}") from error
        try:
            self._rejections = open_log(self.rejected_path)
            for file in (self._rejections, self._labels):
                self._load(file)
        except BaseException:
            self._labels.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file, path in ((self._rejections, self.rejected_path), (self._labels, self.path)):
            file.flush()
            os.fsync(file.fileno())
            # An empty file says nothing; the labels' own stays once there is a manifest.
            if not file.tell() and (path == self.rejected_path or not self.manifest_path.exists()):
                path.unlink()
            file.close()

    @property
    def is_new(self) -> bool:
        """Whether there are no lines yet."""
        return not (self.totals.labelled or self.totals.rejected)

    def read_manifest(self) -> dict[str, Any] | None:
        """Return the manifest of earlier sessions, or None. Raises `UsageError` if it is damaged."""
        try:
            manifest = self._folder.read_json(self.manifest_path.name)
        except ValueError as error:
            raise UsageError(f"{self.manifest_path} is damaged: {error}") from error
        return manifest if isinstance(manifest, dict) else None

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Replace the manifest atomically."""
        data = json.dumps(manifest, ensure_ascii=False, indent=2) + "\n"
        self._folder.write(self.manifest_path.name, data.encode())

    def add_verdict(self, key: RowKey, record: Record, verdict: TeacherVerdict, provenance: Mapping[str, Any]) -> None:
        """Write the verdict on a product."""
        line: dict[str, Any] = {"product_id": record.id, "category": record.category}
        if verdict.labels is not None:
            line["values"] = verdict.labels.values
        else:
            line |= {"reason": verdict.reason, "message": verdict.message, "raw": verdict.raw[:_MAX_RAW]}
        line["input"] = dict(record.fields)
        line["provenance"] = {
            **provenance,
            "labelled_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "attempts": verdict.attempts,
            "input_tokens": verdict.usage.input_tokens,
            "output_tokens": verdict.usage.output_tokens,
            "cost_usd": verdict.usage.cost_usd,
            "problems": dict(verdict.problems),
            "not_in_text": list(verdict.labels.not_in_text) if verdict.labels is not None else [],
            **_source(key),
        }
        self._append(self._labels if verdict.labels is not None else self._rejections, line)

    def add_refusal(self, key: RowKey, refusal: RowRefusal, product_id: str | None, category: str | None) -> None:
        """Write that a row is not a product to ask about."""
        line = {"product_id": product_id, "category": category, "reason": refusal.code, "message": refusal.message}
        self._append(self._rejections, {**line, "provenance": _source(key)})

    def _append(self, file: Any, line: Mapping[str, Any]) -> None:
        file.write(well_formed(json.dumps(line, ensure_ascii=False)).encode() + b"\n")
        file.flush()
        self.totals.add(line, self._schemas)

    def _load(self, file: Any) -> None:
        for number, line in enumerate(whole_lines(file), start=1):
            try:
                self.totals.add(json.loads(line), self._schemas)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise UsageError(
                    f"{file.name}, line {number}: not written by this command, or with other schemas; "
                    "name another output, or remove that line to have its product asked again"
                ) from error


def _source(key: RowKey) -> dict[str, Any]:
    return key._asdict()


@dataclass(frozen=True, slots=True)
class LabelOutcome:
    """Outcome of a session.

    Attributes:
        chosen: number of rows that this session was to label.
        asked: number of products that the teacher was asked about in this session.
        was_finished: whether nothing was left to do.
        stopped: reason why the budget stopped it; None if it reached the end.
        faults: number of the endpoint's error answers, resolved or not, by HTTP status.
        left_out: files in the input folders that are not read.
    """

    totals: LabelTotals
    chosen: int
    asked: int
    seconds: float
    faults: Mapping[str, int]
    was_finished: bool = False
    stopped: str | None = None
    left_out: LeftOutFiles = field(default_factory=LeftOutFiles)

    @property
    def products(self) -> int:
        """Number of rows chosen for labelling, now or by an earlier session that chose more."""
        return max(self.chosen, len(self.totals.labelled) + len(self.totals.rejected))

    @property
    def open_products(self) -> int:
        """Number of them that are neither labelled nor rejected yet, or lack their second question."""
        unasked = sum(reason in ENDING for reason in self.totals.rejected.values())
        return self.products - len(self.totals.labelled) - len(self.totals.rejected) + unasked


def exit_code(outcome: LabelOutcome) -> int:
    """Return 0, 3 if products have no labels, or 4 if the budget stopped the run."""
    if outcome.stopped is not None:
        return EXIT_BUDGET
    return EXIT_INCOMPLETE if outcome.totals.rejected else EXIT_CLEAN


def print_outcome(console: Console, config: LabelConfig, outcome: LabelOutcome) -> None:
    """Print what happened, and where the labels are."""
    totals = outcome.totals

    def say(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True, markup=False)

    if outcome.was_finished:
        say(f"{config.output} is finished already; nothing was done.")
    speed = ""
    if outcome.asked:
        pace = outcome.asked / outcome.seconds
        speed = f"; {outcome.asked:,} asked in {format_seconds(outcome.seconds)} ({pace:,.2f} products/s)"
    say(f"{len(totals.labelled):,} labelled and {len(totals.rejected):,} rejected of {outcome.products:,}{speed}")
    data = totals.to_dict()
    count = totals.values + totals.absent + totals.unlabelled
    share = f" ({totals.values / count:.0%} value, {totals.absent / count:.0%} absent)" if count else ""
    say(f"  attributes  {describe_counts(data['values'])}{share}")
    say(f"  problems    {describe_counts(data['problems'])}")
    say(f"  rejected    {describe_counts(data['rejected_by_reason'])}")
    if outcome.faults:
        say(f"  faults      {describe_counts({f'HTTP {code}': count for code, count in outcome.faults.items()})}")
    if config.teacher.kind == "openai":
        say(f"  tokens      {totals.input_tokens:,} in, {totals.output_tokens:,} out")
        say(f"  cost        {format_cost(totals.cost_usd)}")
    if outcome.left_out.files:
        say(f"  left out    {outcome.left_out}")
    say(f"  labels      {config.output}")
    if totals.rejected:
        say(f"  rejections  {config.output}{LabelFiles.REJECTED_SUFFIX}")
    if outcome.stopped is not None:
        say(
            f"Stopped at teacher.max_cost_usd: {outcome.stopped}. {outcome.open_products:,} products are left: "
            "raise it and run the same command again to go on."
        )


def outcome_json(config: LabelConfig, outcome: LabelOutcome) -> dict[str, Any]:
    """Return the totals for machines."""
    return {
        "output": config.output,
        "exit_code": exit_code(outcome),
        "was_finished": outcome.was_finished,
        "stopped": outcome.stopped,
        "products": outcome.products,
        "asked": outcome.asked,
        "open": outcome.open_products,
        "seconds": round(outcome.seconds, 3),
        "faults": dict(outcome.faults),
        "left_out": outcome.left_out.to_dict(),
        **outcome.totals.to_dict(),
    }


def format_cost(dollars: float | None) -> str:
    """Format dollars: 0.0123 -> "$0.0123", 12.3 -> "$12.30"."""
    if dollars is None:
        return "unknown (no prices in the configuration)"
    return f"${dollars:,.2f}" if dollars >= 1 else f"${dollars:.4f}"
