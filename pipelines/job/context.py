"""Context of a run, shipped once to every process, and messages that travel from stage to stage."""

from __future__ import annotations

import functools
import hashlib
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hpd_core import CategorySchema, Record, RecordResult
from pipelines.catalog.sharding import Shard
from pipelines.config.extraction import JobConfig
from pipelines.config.operation import ActorConfig
from pipelines.errors import UsageError
from pipelines.job.carryover import CarryOver
from pipelines.quality.both_answers import larger_model
from pipelines.store.folders import Folder
from pipelines.store.ledger import Ledger

MAX_TASK_RETRIES = 3
"""Times that the work of a dead worker is repeated."""
CASCADE_FOLDER = "_cascade"
"""Folder of the ledger of a cascade's larger model: descriptions of its engines, and their tries."""


@dataclass(frozen=True, slots=True)
class SourceRef:
    """Input file.

    Attributes:
        name: name as the user wrote it.
        uri: place of its rows, for a process in another working directory.
        size, fingerprint: of the file when the run was planned; 0 and None if its rows are read from the run's own
            copy.
    """

    name: str
    uri: str
    format: str
    size: int = 0
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class CarryOverRef:
    """Reference to a `CarryOver`, for every process of the run.

    Attributes:
        run_id: id of the earlier run.
        get: function that returns the object. On Ray it lies in the object store, once a node.
    """

    run_id: str
    get: Callable[[], CarryOver]


@dataclass(frozen=True)
class JobContext:
    """Job, the same in every process.

    Attributes:
        code: digest of the driver's code (job/context.py).
        files: files of the catalog.
        others: actors of the cascade's other model; None without a cascade.
        is_larger: whether `config` is that of the cascade's larger model.
    """

    config: JobConfig
    schemas: Mapping[str, CategorySchema]
    schema_hash: str
    run_id: str
    session: str
    code: str
    output: Folder
    files: Sequence[SourceRef]
    carry_over: CarryOverRef | None = None
    others: ActorConfig | None = None
    is_larger: bool = False

    @property
    def ledger(self) -> Ledger:
        """Ledger of the run, as seen from this session; the larger model has its own."""
        folder = Folder(f"{self.output.absolute_uri}/{CASCADE_FOLDER}") if self.is_larger else self.output
        return Ledger(folder, self.session)

    @property
    def larger(self) -> JobContext:
        """Job of the cascade's larger model, with its settings and a ledger of its own."""
        return replace(self, config=larger_model(self.config), others=self.config.actors, is_larger=True)


@dataclass(frozen=True, slots=True)
class EnginePlace:
    """Place of an engine.

    Attributes:
        node_share: its share of the machine, for the price; 1 is a whole machine.
        num_threads: number of torch's CPU threads.
        ids: ids of the node and the actor on Ray; empty elsewhere.
    """

    node_share: float
    num_threads: int
    ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PreparedRecord:
    """Record to extract, and its place in the catalog.

    Attributes:
        carried: attribute -> its rows in an earlier run, for answers carried over; the other attributes are decoded.
        over: attribute -> rows with people's answers, which replace decoded ones if all must be decoded together.
        copied: attribute -> its items, as a column of the catalog has them; they are not decoded.
    """

    file: int
    row: int
    record: Record
    input_hash: str
    carried: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    over: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    copied: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        known = (self.carried, dict(self.over), self.copied)
        return PreparedRecord, (self.file, self.row, self.record, self.input_hash, *known)

    def wanted(self, schema: CategorySchema) -> list[str]:
        """Return the names of the attributes that the engine has to answer."""
        known = self.carried.keys() | self.copied.keys()
        return [attribute.name for attribute in schema.attributes if attribute.name not in known]


@dataclass(frozen=True, slots=True)
class DeadRow:
    """Row that will not be extracted, and the reason."""

    file: int
    row: int
    product_id: str | None
    category: str | None
    stage: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class PreparedShard:
    """Shard that was read, checked, grouped by category and tokenized.

    Attributes:
        records: records for the engine; `document_ids` are theirs, and are dropped after it.
        answered: records that need no engine, because all of their answers are carried over.
        bytes_read: bytes read from the files, as stored.
    """

    shard: Shard
    records: Sequence[PreparedRecord]
    document_ids: Sequence[Sequence[int]]
    answered: Sequence[PreparedRecord]
    dead: Sequence[DeadRow]
    seconds: float
    bytes_read: int = 0


@dataclass(frozen=True, slots=True)
class SecondLook:
    """Questions to the larger model of a cascade about a shard, and its answers.

    Attributes:
        asked: for each record, attributes to ask again, with the confidence of the present answer (None: not known).
            Empty if nothing is asked.
        document_ids: for each record, ids by that model's tokenizer; None if nothing is asked, or it cannot be
            tokenized.
        seconds: time to select the questions.
        answers: answers of the larger model; None before it has decoded the shard.
    """

    asked: Sequence[Mapping[str, float | None]]
    document_ids: Sequence[Sequence[int] | None]
    seconds: float
    answers: DecodedShard | None = None


@dataclass(slots=True)
class DecodedShard:
    """Shard with its answers, in the order of `prepared.records`.

    Attributes:
        results: result by record; None for one that was given up (see `failures`), or of which nothing was asked.
        failures: reasons, by index in `prepared.records`.
        attempt_id: id of the last try; empty if there was nothing to decode.
        num_attempts: number of tries in all sessions.
        engine: description of the engine that decoded it, and its place.
        metrics: sums over the tries that ended in the last process.
        second: questions to a larger model and its answers; None without a cascade, and before they are selected.
    """

    prepared: PreparedShard
    engine: Mapping[str, Any]
    results: list[RecordResult | None] = field(init=False)
    failures: Mapping[int, str] = field(default_factory=dict)
    attempt_id: str = ""
    num_attempts: int = 0
    metrics: dict[str, Any] = field(default_factory=dict)
    second: SecondLook | None = None

    def __post_init__(self) -> None:
        self.results = [None] * len(self.prepared.records)


def pack(message: object) -> bytes:
    """Return a message as one cell of a dataset row. It never leaves the run's own processes."""
    return pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)


def unpack(data: bytes) -> Any:
    """Return the message in a cell written by `pack`."""
    return pickle.loads(data)


_ROOT = Path(__file__).resolve().parents[2]
_ENDINGS = frozenset({".py", ".cpp", ".h", ".csv", ".toml", ".txt", ".yaml"})  # words, units, native code decide, too


@functools.cache
def code_digest() -> str:
    """Return the digest of this process's HPD, as on the disk at the first call; a driver calls it as it starts."""
    digest = hashlib.sha256()
    for path in sorted(path for package in ("hpd_core", "pipelines") for path in (_ROOT / package).rglob("*")):
        name = path.relative_to(_ROOT)
        # Editors and packers leave hidden files, and links that lead nowhere.
        if path.suffix not in _ENDINGS or any(part.startswith(".") for part in name.parts) or not path.is_file():
            continue
        content = path.read_bytes()
        digest.update(f"{name.as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def check_code(wanted: str) -> None:
    """Raise `UsageError` unless this process's digest is `wanted`: results of different code must not be mixed."""
    if code_digest() != wanted:
        raise UsageError(
            f"HPD in {_ROOT} is not what the job was started with: another version, or a file was edited since. All "
            "nodes need the same image, or start the job by `ray job submit --working-dir .`; then it is continued"
        )
