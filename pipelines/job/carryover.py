"""Answers carried over from an earlier run, so that a nightly job pays only for what has changed.

A record with unchanged text, category and schema keeps its answer. Records are matched by content, never by time or
place, so that moved, renamed and renumbered rows are found again. If only a category's schema has changed, its
unchanged attributes keep their answers and the others are decoded. People's verdicts (`hpd review`) are kept whatever
model decodes now.

    index     driver    input hash -> the shard of the earlier run that holds the answer, for the whole catalog
    find      tasks     reads those shards' attribute rows, and compares hashes in full
"""

from __future__ import annotations

import fnmatch
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.compute as pc

from hpd_core import CategorySchema
from pipelines.config.extraction import JobConfig, result_config, with_later_keys
from pipelines.errors import RunError, UsageError
from pipelines.job.reviewed_answers import ReviewedAnswers
from pipelines.job.run_plan import Plan, differences, find_finished
from pipelines.store.folders import Folder, map_requests
from pipelines.store.layer import Layer
from pipelines.store.ledger import ENGINE_IDENTITY, MANIFEST_NAME, PLAN_NAME, Ledger, named_damage
from pipelines.store.no_run import SCHEMAS_NAME, read_asked_schemas, read_schemas
from pipelines.store.tables import part_name, part_number, read_part

Row = Mapping[str, Any]
AttributeRows = dict[str, list[Row]]

_KEY = ("source_file", "source_row")
# Settings that cannot change an answer, or are compared by the engine's description, where 'auto' is resolved.
_FREE_ENGINE_KEYS = ("device", "attention", "dtype")


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """Finished run from which answers may be carried over.

    Attributes:
        schemas: schemas that the run asked for.
        normalised: schemas by which its values are normalised.
        engine: description of the engine that decoded it.
        larger_engine: description of the engine that answered doubtful attributes again; None without a cascade.
    """

    folder: Folder
    plan: Plan
    schemas: Mapping[str, CategorySchema]
    normalised: Mapping[str, CategorySchema]
    engine: Mapping[str, Any]
    larger_engine: Mapping[str, Any] | None = None

    @classmethod
    def open(cls, uri: str, output: Folder) -> EarlierRun:
        """Open the run at `uri`. Raises `UsageError` if it is not a finished run, or is the run's own `output`."""
        if Folder(uri).absolute_uri == output.absolute_uri:
            raise UsageError(f"base: {uri} is this run's own output folder; name an earlier run's")
        folder, plan, manifest = find_finished(uri, "base")
        try:
            schemas, normalised = read_asked_schemas(folder), read_schemas(folder)
        except OSError as error:
            raise UsageError(f"base: cannot read {uri}: {error}") from error
        if schemas is None:
            raise UsageError(f"base: {uri} does not say what it asked for ({SCHEMAS_NAME} is missing)")
        with named_damage(folder, MANIFEST_NAME):
            engine, larger = manifest["engine"], (manifest.get("cascade") or {}).get("engine")
        return cls(folder, plan, schemas, normalised or schemas, engine, larger)

    def obstacles(self, config: JobConfig, *engines: Mapping[str, Any]) -> list[str]:
        """Return reasons why no answers may be carried over: differences other than in texts and schemas.

        Args:
            engines: descriptions of the engines that decode now, the larger one's last; without them, only the
                configuration is compared.
        """
        before, now = map(with_later_keys, (self.plan.result_config, result_config(config)))
        found = differences(_engine_settings(before), _engine_settings(now))
        if not found:
            # With both models' settings alike, there are as many here as there.
            for described, engine in zip((self.engine, self.larger_engine or {}), engines, strict=False):
                # A model that has moved is the same, if its revision says so.
                keys = [key for key in ENGINE_IDENTITY if key != "model_id" or engine["model_revision"] is None]
                found += differences({key: described.get(key) for key in keys}, {key: engine.get(key) for key in keys})
        return found

    def carriable(self, config: JobConfig, schemas: Mapping[str, CategorySchema]) -> dict[str, frozenset[str]]:
        """Return the attributes whose answers may be carried over, by category; only categories that have some."""
        independent = is_independent(config)
        found = {}
        for category, schema in schemas.items():
            before = self.schemas.get(category)
            if before is None:
                continue
            # Values that were normalised by another schema since are not those of this one.
            known = {attribute.name: attribute for attribute in before.attributes}
            edited = {attribute.name: attribute for attribute in self.normalised.get(category, before).attributes}
            same = frozenset(
                each.name for each in schema.attributes if known.get(each.name) == edited.get(each.name) == each
            )
            if before.rivals != schema.rivals or not schema.rivals.keys() <= same:
                # An answer of one of them may take a place from the others.
                same -= before.rivals.keys() | schema.rivals.keys()
            # Where values see each other, an answer belongs to the schema as a whole.
            if same and (independent or before.hash == schema.hash):
                found[category] = same
        return found


def is_independent(config: JobConfig) -> bool:
    """Return whether no answer depends on which other attributes are asked for."""
    return config.decoding == "hpd" and config.engine.layout == "tree"


def finished_runs(pattern: str, output: Folder) -> list[str]:
    """Find the folders of whole runs (no `--limit`, no retry of failed rows), the last to finish first.

    `output` is none of them.

    Args:
        pattern: a folder whose last name holds `*`, `?` or `[`: `s3://bucket/enriched/*`.

    Raises `UsageError` if it cannot be looked for.
    """
    parent, _, leaf = pattern.rstrip("/").rpartition("/")
    if has_wildcard(parent):
        raise UsageError(f"base: only the last name of a folder may hold a wildcard, not {pattern!r}")
    try:
        around = Folder(parent or ".")
        names = [name for name in around.list("") if fnmatch.fnmatchcase(name, leaf)]
        runs = [Folder(f"{parent}/{name}" if parent else name) for name in names]
        others = [run for run in runs if run.absolute_uri != output.absolute_uri]
        manifests = map_requests(_manifest, others)
    except OSError as error:
        raise UsageError(f"base: cannot look for {pattern}: {error}") from error
    ends = {run.uri: manifest["finished_at"] for run, manifest in zip(others, manifests, strict=True) if manifest}
    return sorted(ends, key=lambda uri: ends[uri], reverse=True)


def _manifest(folder: Folder) -> dict[str, Any] | None:
    """Return the manifest of a whole run; None for everything else that may lie beside runs."""
    try:
        manifest = Ledger(folder, "").finished()
    except NotADirectoryError:
        return None
    except UsageError as error:
        if not folder.exists(PLAN_NAME):
            return None
        # It is a run, and going without it may cost decoding a whole catalog.
        raise UsageError(f"base: {error}, or move this run to where no pattern finds it") from error
    if manifest is None or not {"finished_at", "config", "limit"} <= manifest.keys():
        return None
    is_whole = manifest["limit"] is None and not manifest["config"].get("retry_failed")
    return manifest if is_whole else None


def has_wildcard(path: str) -> bool:
    """Return whether `path` is a pattern for several paths."""
    return any(sign in path for sign in "*?[")


@dataclass(frozen=True, slots=True)
class CarryIndex:
    """Index of an earlier run's answers: 12 bytes a product, so that a node can hold it once for a whole catalog.

    Attributes:
        hashes: uint64 [n], distinct input hashes (of 64 bits), sorted.
        shards: int32 [n], the shard whose tables hold the answer.
    """

    hashes: npt.NDArray[np.uint64]
    shards: npt.NDArray[np.int32]

    @classmethod
    def empty(cls) -> CarryIndex:
        """Return the index of a run without answers that may be carried over."""
        return cls(np.zeros(0, np.uint64), np.zeros(0, np.int32))

    @classmethod
    def build(cls, folder: Folder) -> CarryIndex:
        """Build the index from one column of every product of the run. Raises `RunError` if it cannot be read."""

        def read(shard: int) -> npt.NDArray[np.uint64]:
            part = _read_part(folder, f"products/{part_name(shard)}", ["input_hash"])
            return _as_numbers(part.column("input_hash").to_pylist())

        parts = [shard for name in folder.list("products") if (shard := part_number(name)) is not None]
        hashes = map_requests(read, parts)
        shards = [np.full(len(part), shard, np.int32) for part, shard in zip(hashes, parts, strict=True)]
        found, places = np.unique(np.concatenate([np.zeros(0, np.uint64), *hashes]), return_index=True)
        return cls(found, np.concatenate([np.zeros(0, np.int32), *shards])[places])

    def find(self, hashes: Sequence[str]) -> dict[int, list[str]]:
        """Return those of `hashes` that are in the index, by shard."""
        wanted = _as_numbers(hashes)
        places = np.searchsorted(self.hashes, wanted)
        found: dict[int, list[str]] = defaultdict(list)
        for text, number, place in zip(hashes, wanted, places, strict=True):
            if place < len(self.hashes) and self.hashes[place] == number:
                found[int(self.shards[place])].append(text)
        return found


class Carried(NamedTuple):
    """Rows of a record from an earlier run, by attribute: `answers` need not be decoded, `over` replaces decoded
    answers."""

    answers: AttributeRows
    over: Mapping[str, list[Row]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class CarryOver:
    """Data that tasks need to carry answers over.

    Attributes:
        folder: folder of the earlier run.
        carriable: result of `EarlierRun.carriable`.
        reviewed: people's answers, which are carried over wherever the text is the same.
        schemas: schemas asked for now.
        independent: result of `is_independent`.
    """

    folder: Folder
    carriable: Mapping[str, frozenset[str]]
    index: CarryIndex
    reviewed: ReviewedAnswers
    schemas: Mapping[str, CategorySchema]
    independent: bool

    def find(self, hashes: Sequence[str], categories: Sequence[str]) -> dict[str, Carried]:
        """Return the rows to carry over, by input hash; records without any are left out.

        Args:
            hashes, categories: input hash and category of each record.

        Raises `RunError` if the earlier run cannot be read.
        """
        of_models, of_people = self._of_models(hashes, categories), self.reviewed.find(hashes, self.schemas)
        found = {}
        for text, category in zip(hashes, categories, strict=True):
            answers = {**of_models.get(text, {}), **of_people.get(text, {})}
            if not answers:
                continue
            if self.independent or len(answers) == len(self.schemas[category].attributes):
                found[text] = Carried(answers)
            elif text in of_people:
                # If answers depend on each other, all are decoded, and people's answers replace some.
                found[text] = Carried({}, of_people[text])
        return found

    def _of_models(self, hashes: Iterable[str], categories: Iterable[str]) -> dict[str, AttributeRows]:
        category_of = {text: name for text, name in zip(hashes, categories, strict=True) if name in self.carriable}
        found: dict[str, AttributeRows] = {}
        for shard, wanted in self.index.find(list(category_of)).items():
            for text, rows in self._read_shard(shard, wanted).items():
                names = self.carriable[category_of[text]]
                if kept := {name: rows[name] for name in rows if name in names}:
                    found[text] = kept
        return found

    def _read_shard(self, shard: int, hashes: Sequence[str]) -> dict[str, AttributeRows]:
        table = _read_part(self.folder, f"attributes/{part_name(shard)}")
        rows = table.filter(pc.is_in(table.column("input_hash"), pa.array(hashes, pa.string()))).to_pylist()
        # People's answers are in `reviewed`, or were taken back; a column is read again.
        rows = [row for row in rows if row.get("source") in ("model", None)]
        found: dict[str, AttributeRows] = {}
        owners: dict[str, tuple[Any, ...]] = {}
        for row in rows:
            text, place = row["input_hash"], tuple(row[name] for name in _KEY)
            # Two products of one text have the same answers; one of them is enough.
            if owners.setdefault(text, place) == place:
                found.setdefault(text, {}).setdefault(row["attribute"], []).append(row)
        return found


def _read_part(folder: Folder, name: str, columns: list[str] | None = None) -> pa.Table:
    """Call `read_part`, adding a way out to its `RunError`: an unreadable part would stop the same command for ever."""
    try:
        return read_part(folder, name, columns)
    except RunError as error:
        raise RunError(f"base: {error}. If it stays so, use another output folder, and another base or none") from error


def _as_numbers(hashes: Sequence[str]) -> npt.NDArray[np.uint64]:
    return np.array([int(text, 16) for text in hashes], dtype=np.uint64)


def _engine_settings(data: Mapping[str, Any]) -> dict[str, Any]:
    found = {"decoding": data["decoding"], "engine": _compared(data["engine"])}
    if (cascade := data.get("cascade")) is not None:
        # An answer depends on both models and the threshold between them. The engines' descriptions name the models.
        settings = {key: value for key, value in cascade.items() if key not in ("model", "adapter", "engine")}
        found["cascade"] = settings | {"engine": _compared(cascade["engine"])}
    return found


def _compared(engine: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in engine.items() if key not in _FREE_ENGINE_KEYS}
    kept["prompt"] = {key: value for key, value in engine["prompt"].items() if key != "keys"}  # it is in prompt_hash
    return kept


@dataclass(frozen=True, slots=True)
class Changes:
    """Counts of products by their change since the earlier run, matched by id.

    Attributes:
        base, base_run_id: the earlier run's folder and name.
        obstacles: reasons why nothing could be carried over: settings or an engine that differ.
        carried: products with all answers carried over.
        completed: products with some answers carried over, because their category's schema has changed.
        decoded_again: other products of the earlier run that were decoded, because their text, category or settings
            have changed or they had failed.
        new: products whose id the earlier run did not have, whether carried over (from another id with the same text)
            or not.
        dropped: ids of the earlier run's products that the catalog no longer has.
        reviewed: people's answers kept from the earlier run.
        reviews_left_out: verdicts there on other texts or answers than that run has, or on rows that it lacks.
    """

    base: str
    base_run_id: str
    obstacles: Sequence[str] = field(default_factory=list)
    carried: int = 0
    completed: int = 0
    decoded_again: int = 0
    new: int = 0
    dropped: int = 0
    reviewed: int = 0
    reviews_left_out: int = 0


def find_changes(earlier: EarlierRun, output: Folder, obstacles: Sequence[str], carried: Mapping[str, int]) -> Changes:
    """Compare the product ids of two runs, by 64-bit hashes (8 bytes a product).

    Args:
        obstacles: from `EarlierRun.obstacles`.
        carried: counts of products, as in a shard's manifest.
    """
    answered_before, _ = _ids(earlier.folder, "products")
    known = np.concatenate([answered_before, _ids(earlier.folder, "dead_letter")[0]])
    answered, is_decoded = _ids(output, "products")
    is_known = np.isin(answered, known)
    # A row that could not be extracted this time is not gone from the catalog.
    there = np.concatenate([answered, _ids(output, "dead_letter")[0]])
    completed = carried.get("products_in_part", 0)
    return Changes(
        base=earlier.folder.uri,
        base_run_id=earlier.plan.run_id,
        obstacles=list(obstacles),
        carried=carried.get("products", 0),
        completed=completed,
        # A product whose text moved to a new id may be completed, too.
        decoded_again=max(0, int((is_decoded & is_known).sum()) - completed),
        new=int((~is_known).sum()),
        dropped=len(np.setdiff1d(answered_before, there)),
        reviewed=carried.get("reviewed", 0),
        reviews_left_out=len(Layer.open(earlier.folder, earlier.normalised).left_out),
    )


def has_any_product(earlier: EarlierRun, ids: Collection[str]) -> bool:
    """Return whether the earlier run had one of these product ids."""
    known = np.concatenate([_ids(earlier.folder, table)[0] for table in ("products", "dead_letter")])
    wanted = pd.util.hash_array(np.array([*ids], dtype=object), categorize=False)
    return bool(np.isin(wanted, known).any())


def _ids(folder: Folder, table: str) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """Return hashes of a table's product ids, and whether the run decoded them itself; skip rows without an id."""

    def read(name: str) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
        part = read_part(folder, f"{table}/{name}", ["product_id", *(["carried_from"] if table == "products" else [])])
        part = part.filter(pc.is_valid(part.column("product_id")))
        ids = part.column("product_id").to_numpy().astype(object)
        is_decoded = pc.is_null(part.column(part.num_columns - 1)).to_numpy()
        return np.asarray(pd.util.hash_array(ids, categorize=False), dtype=np.uint64), is_decoded

    parts = map_requests(read, folder.list(table))
    hashes, decoded = zip(*parts, strict=True) if parts else ((), ())
    return np.concatenate([np.zeros(0, np.uint64), *hashes]), np.concatenate([np.zeros(0, bool), *decoded])
