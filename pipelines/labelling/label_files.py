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

from hpd_core import CategorySchema, Record
from pipelines.catalog.rows import RowRefusal
from pipelines.errors import UsageError
from pipelines.labelling.completions import well_formed
from pipelines.labelling.teachers import TeacherVerdict
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
