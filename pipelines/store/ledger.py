"""Ledger of committed and tried shards, kept in the output folder: a run can always be resumed from it alone.

_plan.json                                 the plan, before any work
_engine.json                               identity of the first engine: the others must match it
_attempts/<shard>/<attempt>.json           a decode was begun; its name holds the session and the records
_attempts/<shard>/<attempt>.error.json     ... and failed with this message
_attempts/<shard>/<attempt>.done.json      ... and finished, with others of the shard still to do
_parts/<table>/<shard>-<attempt>-<token>.parquet   rows of one attempt; garbage unless a manifest names them
_shards/<shard>.json                       the shard is committed: the first to write it wins
<table>/part-<shard>.parquet               published: committed rows, under a permanent name
manifest.json                              the run is finished

Replacement of a part that a finished run has published.

    1  the shard's manifest announces the new part:  {..., "sha256": old, "coming": {"sha256": new, ...}}
    2  the published file is replaced atomically
    3  the manifest describes the new part:          {..., "sha256": new}

A kill in between leaves a manifest that names both: the file is one of the two. The next pass tells which.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from pipelines.errors import RunError, UsageError
from pipelines.store.folders import Folder, iter_requests
from pipelines.store.isolation import Span, Try
from pipelines.store.tables import TABLES, EncodedTable, part_name
from pipelines.store.totals import Totals

PLAN_NAME = "_plan.json"
MANIFEST_NAME = "manifest.json"
INPUT_FOLDER = "_input"
_ENGINE_NAME = "_engine.json"
# Two engines whose descriptions agree here give the same answers.
ENGINE_IDENTITY = (
    "model_id",
    "model_revision",
    "adapter_revision",
    "decoding",
    "layout",
    "dtype",
    "quantization",
    "prompt_hash",
)

_TRY_NAME = re.compile(
    r"(?P<attempt>\d+-(?P<session>[^-]+)-(?P<start>\d+)-(?P<stop>\d+)-\w+)(?:\.(?P<ending>\w+))?\.json"
)

_SHARD_NAME = re.compile(r"(\d+)\.json")


def pilot_folder(output: str) -> str:
    """Return the folder of the pilot of the run in `output`, and of its forecast."""
    return Folder(output).uri + ".pilot"


@dataclass(frozen=True, slots=True)
class History:
    """Tries of a shard.

    Attributes:
        num_tries: number of tries over all sessions.
        tries: tries of this session, oldest first. Earlier ones ended with the job itself, whatever the reason.
    """

    num_tries: int
    tries: list[Try]


class Ledger:
    """Ledger of a run. `session` names one start of the job. Only its tries count as failures of the shard: earlier
    ones ended with the job itself."""

    def __init__(self, folder: Folder, session: str) -> None:
        self.folder = folder
        self.session = session

    def is_committed(self, shard: int) -> bool:
        """Return whether some attempt at the shard has been committed."""
        return self.folder.exists(_manifest_name(shard))

    def committed(self) -> set[int]:
        """Return every committed shard."""
        matches = map(_SHARD_NAME.fullmatch, self.folder.list("_shards"))
        return {int(match[1]) for match in matches if match}

    def manifest(self, shard: int) -> dict[str, Any]:
        """Return a committed shard's manifest. Raise `UsageError` if it is damaged, `RunError` if it is missing."""
        with named_damage(self.folder, _manifest_name(shard)):
            manifest: dict[str, Any] | None = self.folder.read_json(_manifest_name(shard))
            if manifest is not None:
                _check_manifest(manifest, shard)
        if manifest is None:
            raise RunError(f"{self.folder.describe(_manifest_name(shard))} is missing")
        return manifest

    def manifests(self, shards: Collection[int]) -> Iterator[dict[str, Any]]:
        """Yield the manifests of committed shards, in their order. Raise `UsageError` if one is damaged.

        A large run has gigabytes of them, so they are never held all at once.
        """
        return iter_requests(self.manifest, sorted(shards))

    def count(self, manifest: Mapping[str, Any], totals: Totals) -> None:
        """Add a committed shard to the totals. Raise `UsageError` if its manifest is damaged."""
        with named_damage(self.folder, _manifest_name(manifest["shard"])):
            totals.add(manifest)

    def totals(self, manifests: Iterable[Mapping[str, Any]]) -> Totals:
        """Return the totals of these shards. Raise as `count`."""
        totals = Totals()
        for manifest in manifests:
            self.count(manifest, totals)
        return totals

    def num_tries(self) -> dict[int, int]:
        """Return the number of tries by shard, over all sessions."""
        return dict(Counter(shard for shard, match in self._records() if match["ending"] is None))

    def num_tries_without_end(self) -> dict[int, int]:
        """Return, by shard, the number of tries without a recorded end: their process died, or is active."""
        tries: Counter[int] = Counter()
        for shard, match in self._records():
            tries[shard] += 1 if match["ending"] is None else -1
        return dict(tries)

    def history(self, shard: int) -> History:
        """Return the tries of the shard so far."""
        folder = _tries_folder(shard)
        names = self.folder.list(folder)
        matches = [match for name in names if (match := _TRY_NAME.fullmatch(name)) and match["ending"] is None]
        tries = []
        for match in matches:
            if match["session"] != self.session:
                continue
            attempt, error = match["attempt"], None
            if f"{attempt}.error.json" in names:
                error = self.folder.read_json(f"{folder}/{attempt}.error.json")["error"]
            span = Span(int(match["start"]), int(match["stop"]))
            tries.append(Try(span, f"{attempt}.done.json" in names, error))
        return History(len(matches), tries)

    def num_parts_done(self) -> int:
        """Return the number of finished parts over all shards: the progress of the searches for bad records."""
        done = ((shard, match) for shard, match in self._records() if match["ending"] == "done")
        # A part that is done again, in another process, is no progress.
        return len({(shard, match["session"], match["start"], match["stop"]) for shard, match in done})

    def _records(self) -> Iterator[tuple[int, re.Match[str]]]:
        """Yield the records of tries of all shards: the shard, and the match of the record's name."""
        for name in self.folder.find("_attempts"):
            shard, _, leaf = name.partition("/")
            if match := _TRY_NAME.fullmatch(leaf):
                yield int(shard), match

    def begin_try(self, shard: int, number: int, span: Span) -> str:
        """Record a try before it starts, so that one that kills its process counts as well. Return its id."""
        attempt = f"{number:04d}-{self.session}-{span.start}-{span.stop}-{uuid.uuid4().hex[:8]}"
        self.folder.write(f"{_tries_folder(shard)}/{attempt}.json", b"{}")
        return attempt

    def end_try(self, shard: int, attempt: str, error: str | None = None) -> None:
        """Record how a try ended. A whole shard that is decoded needs no end: the commit that follows is one."""
        ending = "done" if error is None else "error"
        content = json.dumps({} if error is None else {"error": error}, ensure_ascii=False)
        self.folder.write(f"{_tries_folder(shard)}/{attempt}.{ending}.json", content.encode())

    def commit(
        self, shard: int, attempt_id: str, tables: Mapping[str, EncodedTable], facts: Mapping[str, Any]
    ) -> tuple[dict[str, Any], bool]:
        """Write the parts, then the manifest unless another attempt was first; then publish the winner's parts.

        Return the winner's manifest, and whether it is this one's.
        """
        token = f"{shard:06d}-{attempt_id}-{uuid.uuid4().hex[:8]}"
        parts = {name: self._write_part(name, shard, token, table) for name, table in tables.items()}
        manifest = {"shard": shard, "attempt_id": attempt_id, "token": token, "tables": parts, **facts}
        self.folder.create(_manifest_name(shard), json.dumps(manifest, ensure_ascii=False).encode())
        # Read back: a repeated request can say that the object was there already, although it is ours.
        winner = self.manifest(shard)
        self.publish(winner)
        return winner, winner["token"] == token

    def rewrite(self, shard: int, manifest: Mapping[str, Any]) -> None:
        """Replace the manifest of a committed shard of a finished run (store/ledger.py)."""
        self.folder.write(_manifest_name(shard), json.dumps(manifest, ensure_ascii=False).encode())

    def publish(self, manifest: Mapping[str, Any]) -> None:
        """Copy a committed shard's parts into the public folders. May be repeated, by anyone, at any time."""
        for part in manifest["tables"].values():
            try:
                self.folder.copy(part["part"], part["public"])
            except FileNotFoundError:
                # Cleaned up by a run that had finished: then it has published the same part.
                if not self.folder.exists(part["public"]):
                    raise

    def publish_missing(self, manifests: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Publish the committed shards that lack a part in its public folder. Yield all manifests."""
        there = self._published()
        for manifest in manifests:
            if any(part["public"] not in there for part in manifest["tables"].values()):
                self.publish(manifest)
            yield manifest

    def check_engine(self, description: Mapping[str, Any]) -> None:
        """Refuse an engine that would answer differently from the run's first one.

        Raise `UsageError` naming the difference.
        """
        mine = {key: description.get(key) for key in ENGINE_IDENTITY}
        if self.folder.create(_ENGINE_NAME, json.dumps(dict(description), ensure_ascii=False).encode()):
            return
        theirs = self.engine()
        for key, value in mine.items():
            if theirs.get(key) != value:
                raise UsageError(
                    f"{self.folder.uri} was begun with {key} {theirs.get(key)!r}, this engine has {value!r}: "
                    "their answers would differ; set it in the configuration or use another output folder"
                )

    def engine(self) -> dict[str, Any]:
        """Return the description of the run's engine; empty before the first one has started."""
        return self._mapping(_ENGINE_NAME) or {}

    def finish(self, manifest: Mapping[str, Any]) -> None:
        """Mark the run as finished and remove what was only needed to get there."""
        self.folder.write(MANIFEST_NAME, json.dumps(manifest, indent=2, ensure_ascii=False).encode())
        self.clean_up()

    def clean_up(self) -> None:
        """Remove what the finished run no longer needs. Every later start repeats it: a driver may have been killed
        before,
        or a process believed dead may have written more."""
        # Another driver may be doing the same, or a process be writing there: the next clean-up takes the rest.
        for folder in ("_parts", INPUT_FOLDER):
            with suppress(OSError):
                self.folder.remove(folder)
        for table in TABLES:
            with suppress(OSError):
                self.folder.remove_half_written(table)

    def finished(self) -> dict[str, Any] | None:
        """Return the manifest of a finished run, else None."""
        return self._mapping(MANIFEST_NAME)

    def missing(self, num_shards: int) -> list[str]:
        """Return the public files of a finished run of `num_shards` shards that no longer exist."""
        there = self._published()
        names = (_public_name(table, shard) for table in TABLES for shard in range(num_shards))
        return [name for name in names if name not in there]

    def _published(self) -> set[str]:
        return {f"{table}/{name}" for table in TABLES for name in self.folder.list(table)}

    def _mapping(self, name: str) -> dict[str, Any] | None:
        """Return a JSON object; None if there is no such file. Raise `UsageError` if it is damaged."""
        with named_damage(self.folder, name):
            found: dict[str, Any] | None = self.folder.read_json(name)
            if found is not None and not isinstance(found, dict):
                raise TypeError("no JSON object")
        return found

    def _write_part(self, name: str, shard: int, token: str, table: EncodedTable) -> dict[str, Any]:
        part = f"_parts/{name}/{token}.parquet"
        self.folder.write(part, table.data)
        return {"part": part, "public": _public_name(name, shard), **_described(table)}


def _check_manifest(manifest: Mapping[str, Any], shard: int) -> None:
    """Raise an error that `named_damage` reports unless the manifest is the shard's and locates every table's part."""
    if manifest["shard"] != shard:
        raise ValueError(f"it is that of shard {manifest['shard']!r}")
    for entry in manifest["tables"].values():
        if not (isinstance(entry["public"], str) and isinstance(entry["num_rows"], int)):
            raise TypeError("a part without a name or a number of rows")


def _described(part: EncodedTable) -> dict[str, Any]:
    digest = hashlib.sha256(part.data).hexdigest()
    return {"num_rows": part.num_rows, "num_bytes": len(part.data), "sha256": digest}


def _tries_folder(shard: int) -> str:
    return f"_attempts/{shard:06d}"


def _public_name(table: str, shard: int) -> str:
    return f"{table}/{part_name(shard)}"


def _manifest_name(shard: int) -> str:
    return f"_shards/{shard:06d}.json"


_MAX_REASON = 200  # characters
_WAY_OUT = "Restore the file from a copy of the run, or extract anew into another output folder"


@contextmanager
def named_damage(folder: Folder, name: str, way_out: str = _WAY_OUT) -> Iterator[None]:
    """Raise `UsageError` if reading the object in the block fails because it is damaged or has another format."""
    try:
        yield
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:_MAX_REASON]
        raise UsageError(
            f"cannot read {folder.describe(name)}: it is damaged, or of another version of this project ({reason}). "
            f"{way_out}"
        ) from error


def replace_part(ledger: Ledger, shard: int, table: str, part: EncodedTable) -> None:
    """Replace the shard's published part of a table."""
    manifest = ledger.manifest(shard)
    entry = manifest["tables"][table]
    entry["coming"] = coming = _described(part)
    ledger.rewrite(shard, manifest)
    ledger.folder.write(entry["public"], part.data)
    del entry["coming"]
    entry.update(coming)
    ledger.rewrite(shard, manifest)


def settle_replacement(ledger: Ledger, shard: int, table: str) -> None:
    """Make the manifest say which of two parts is there, if a pass was killed while it replaced one."""
    manifest = ledger.manifest(shard)
    entry = manifest["tables"][table]
    coming = entry.pop("coming", None)
    if coming is None:
        return
    data = ledger.folder.read(entry["public"])
    if hashlib.sha256(data).hexdigest() == coming["sha256"]:
        entry.update(coming)
    ledger.rewrite(shard, manifest)
