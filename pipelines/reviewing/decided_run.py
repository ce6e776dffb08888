"""Pass over a finished run that recomputes confidence and decision by another calibration, without a model.

Parts are replaced one by one (store/ledger.py). Only the two columns change, and an unchanged part is not
written. If a pass is killed at any moment, repeating it gives the same result.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from rich.console import Console

from hpd_core import Attribute, CategorySchema
from pipelines.errors import UsageError
from pipelines.job.run_plan import find_finished
from pipelines.quality.calibration_file import CalibratedModel, DecodedBy
from pipelines.quality.run_confidence import CONFIDENCE_NAME, RunConfidence
from pipelines.store.layer import renew_kept
from pipelines.store.lease import RunLease
from pipelines.store.ledger import MANIFEST_NAME, Ledger, named_damage, replace_part, settle_replacement
from pipelines.store.no_run import SCHEMAS_NAME, read_asked_schemas
from pipelines.store.tables import ATTRIBUTES, completed, encode_table, read_part
from pipelines.store.totals import Totals

_KEY = ("source_file", "source_row", "attribute")
_READ = (
    *_KEY,
    *("category", "value_raw", "norm_status", "status", "evidence", "num_tokens", "logprob_mean", "logprob_min"),
    *("choice", "probability", "margin", "source", "confidence", "decision"),
    *("model_id", "model_revision", "adapter_revision", "prompt_hash"),
)
_WRITTEN = ("confidence", "decision")
_LEASE_SECONDS = 60.0

Key = tuple[Any, ...]
Row = dict[str, Any]
Asked = Mapping[tuple[str, str], Attribute]


@dataclass(slots=True)
class DecidedRun:
    """Counts of a pass over a run. Answers are the models', even if people's have replaced them.

    Attributes:
        num_values: number of answers with a value.
        num_confident: number of answers with a confidence now.
        num_changed: number of answers whose confidence or decision has changed.
        decisions: number of answers by decision.
        num_parts, num_rewritten: number of parts of the attribute table, and of those that are rewritten.
    """

    num_values: int = 0
    num_confident: int = 0
    num_changed: int = 0
    decisions: Counter[str] = field(default_factory=Counter)
    num_parts: int = 0
    num_rewritten: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "values": self.num_values,
            "with_confidence": self.num_confident,
            "changed": self.num_changed,
            "decisions": dict(self.decisions),
            "parts": self.num_parts,
            "parts_rewritten": self.num_rewritten,
        }


def decide_run(uri: str, confidence: RunConfidence, console: Console, *, is_trial: bool = False) -> DecidedRun:
    """Fill `confidence` and `decision` of the finished run at `uri`, and store in it the calibration used.

    Args:
        is_trial: whether to count only, without writing.

    Raises `UsageError` if there is no finished run, `RunError` or `OSError` if a retry may continue it.
    """
    folder, _, manifest = find_finished(uri)
    schemas = read_asked_schemas(folder)
    if schemas is None:
        raise UsageError(f"{folder.describe(SCHEMAS_NAME)} is missing: {uri} does not say what it asked for")
    asked = _by_name(schemas)
    engines = DecodedBy([CalibratedModel.of(each) for each in _engines(manifest)])
    ledger, found = Ledger(folder, ""), DecidedRun()
    if is_trial:
        for shard in sorted(ledger.committed()):
            _decide_shard(ledger, shard, confidence, engines, asked, found, is_trial=True)
        return found
    with RunLease(folder, _LEASE_SECONDS).hold(console) as lease:
        folder.write(CONFIDENCE_NAME, confidence.to_json())
        for shard in sorted(ledger.committed()):
            lease.check()
            settle_replacement(ledger, shard, "attributes")
            before = found.decisions.copy()
            _decide_shard(ledger, shard, confidence, engines, asked, found, is_trial=False)
            _count(ledger, shard, found.decisions - before)
        with named_damage(folder, MANIFEST_NAME):
            totals = Totals.from_dict(manifest["totals"])
        totals.decisions = found.decisions
        notes = _other_notes(manifest, confidence)
        changed = {**manifest, **confidence.describe(), "totals": totals.to_dict(), "notes": notes}
        if manifest.get("cascade") is not None:
            changed["asked_by_calibration"] = asked_by_calibration(manifest)
        if changed != manifest:
            ledger.finish(changed)
    return found


def asked_by_calibration(manifest: Mapping[str, Any]) -> str | None:
    """Return the hash of the calibration by which a cascade selected what to ask its larger model, whatever the run was
    decided by since; None if the first model's own probabilities selected it."""
    if "asked_by_calibration" in manifest:
        found: str | None = manifest["asked_by_calibration"]
        return found
    calibration = manifest.get("calibration")
    return calibration["hash"] if calibration is not None else None


def _decide_shard(
    ledger: Ledger,
    shard: int,
    confidence: RunConfidence,
    engines: DecodedBy,
    asked: Asked,
    found: DecidedRun,
    *,
    is_trial: bool,
) -> None:
    """Decide a shard's answers. Model answers that people's have replaced are decided, too, and count in their place:
    they may be restored."""
    stored = _stored(ledger, shard)
    kept: set[Key] = set()
    texts = dict(zip(_keys(stored), stored["input_hash"].to_pylist(), strict=True))

    def decide_kept(part: pa.Table) -> pa.Table | None:
        of = dict(zip(_keys(part), part["input_hash"].to_pylist(), strict=True))
        # An answer to another text than the run has now will not be restored.
        kept.update(key for key, text in of.items() if texts.get(key) == text)
        changed = _decide_part(part, confidence, engines, asked, found, of.keys() - kept)
        return None if is_trial else changed

    renew_kept(ledger.folder, shard, decide_kept)
    table = _decide_part(stored, confidence, engines, asked, found, kept)
    found.num_parts += 1
    found.num_rewritten += table is not None
    if table is not None and not is_trial:
        replace_part(ledger, shard, "attributes", encode_table(table))


def _keys(table: pa.Table) -> list[Key]:
    return list(zip(*(table[name].to_pylist() for name in _KEY), strict=True))


def _by_name(schemas: Mapping[str, CategorySchema]) -> Asked:
    return {(name, each.name): each for name, schema in schemas.items() for each in schema.attributes}


def _count(ledger: Ledger, shard: int, decisions: Mapping[str, int]) -> None:
    manifest = ledger.manifest(shard)
    if manifest["counts"].get("decisions", {}) != decisions:
        manifest["counts"]["decisions"] = dict(decisions)
        ledger.rewrite(shard, manifest)


def _other_notes(manifest: Mapping[str, Any], confidence: RunConfidence) -> list[str]:
    """Return the engines' notes, and those about the run's present confidences, without duplicates."""
    found: list[str] = []
    for engine in _engines(manifest):
        found += [*engine.get("notes", []), *confidence.notes(CalibratedModel.of(engine))]
    return list(dict.fromkeys(found))


def _engines(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the descriptions of the engines; the larger model's last."""
    larger = (manifest.get("cascade") or {}).get("engine")
    return [manifest["engine"], *([] if larger is None else [larger])]


def _stored(ledger: Ledger, shard: int) -> pa.Table:
    return completed("attributes", read_part(ledger.folder, ledger.manifest(shard)["tables"]["attributes"]["public"]))


def _decide_part(
    table: pa.Table,
    confidence: RunConfidence,
    engines: DecodedBy,
    asked: Asked,
    found: DecidedRun,
    uncounted: Collection[Key],
) -> pa.Table | None:
    """Return rows of attributes with the two columns; None if they are unchanged. Counts in `found`, except the keys in
    `uncounted`."""
    rows: list[Row] = table.select(_READ).to_pylist()
    before = [tuple(row[name] for name in _WRITTEN) for row in rows]
    # An answer's items stand together.
    for key, items in itertools.groupby(rows, key=lambda row: tuple(row[name] for name in _KEY)):
        answer = list(items)
        was = answer[0]["confidence"], answer[0]["decision"]
        attribute = asked.get((answer[0]["category"], answer[0]["attribute"]))
        if attribute is not None:
            confidence.fill(answer, answer[0]["category"], attribute, engines.of(answer[0]))
        first = answer[0]
        if key in uncounted:
            continue
        found.num_values += first["status"] == "value"
        found.num_confident += first["confidence"] is not None
        found.num_changed += was != (first["confidence"], first["decision"])
        if first["decision"] is not None:
            found.decisions[first["decision"]] += 1
    if before == [tuple(row[name] for name in _WRITTEN) for row in rows]:
        return None
    for name in _WRITTEN:
        place = ATTRIBUTES.get_field_index(name)
        table = table.set_column(
            place, ATTRIBUTES.field(name), pa.array([row[name] for row in rows]).cast(ATTRIBUTES.field(name).type)
        )
    return table
