"""What every stage of a run knows, shipped once to every process; and what travels from stage to stage."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hpd_core import CategorySchema, Record, RecordResult
from pipelines.cascading.larger_model import larger_model
from pipelines.catalog.sharding import RowRange, Shard
from pipelines.config.extraction import JobConfig
from pipelines.config.operation import ActorConfig
from pipelines.job.carryover import CarryOver
from pipelines.store.field_orders import FieldOrders
from pipelines.store.folders import Folder
from pipelines.store.ledger import Ledger

CASCADE_FOLDER = "_cascade"
"""Of a run with a larger model (`cascade`): the books of that model's engines, what they are and what they tried."""


@dataclass(frozen=True, slots=True)
class SourceRef:
    """An input file.

    Attributes:
        name: as the user wrote it.
        uri: of its rows, for a process in another working directory.
        size, fingerprint: as it was when the run was planned; None where its rows are read from the run's own copy.
    """

    name: str
    uri: str
    format: str
    size: int = 0
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class CarryOverRef:
    """A `CarryOver` for every process of the run.

    Attributes:
        run_id: the earlier run's.
        get: return it. On Ray it lies in the object store, once a node.
    """

    run_id: str
    get: Callable[[], CarryOver]


@dataclass(frozen=True)
class JobContext:
    """The job, the same in every process.

    Attributes:
        code: what the driver's code is (job/same_code.py).
        files: the catalog's.
        clustered_files: to which the shards' pieces point, instead of the catalog's; None without clustering.
        others: the actors beside those of `config`: of the cascade's other model.
        is_larger: `config` is the cascade's larger model.
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
    clustered_files: Sequence[str] | None = None
    others: ActorConfig | None = None
    is_larger: bool = False

    @property
    def ledger(self) -> Ledger:
        """The run's books, as seen from this session; the larger model has its own."""
        folder = Folder(f"{self.output.absolute_uri}/{CASCADE_FOLDER}") if self.is_larger else self.output
        return Ledger(folder, self.session)

    @property
    def larger(self) -> JobContext:
        """The job as the engines of the cascade's larger model see it: with its settings, and books of its own."""
        return replace(self, config=larger_model(self.config), others=self.config.actors, is_larger=True)


@dataclass(frozen=True, slots=True)
class EnginePlace:
    """Where an engine runs.

    Attributes:
        node_share: its part of the machine, for the price: 1 is a whole one.
        num_threads: torch's, on the CPU.
        ids: of the node and of the actor on Ray; empty elsewhere.
    """

    node_share: float
    num_threads: int
    ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PreparedRecord:
    """A record to extract, and where it came from.

    Attributes:
        carried: attribute -> its rows in an earlier run, for those whose answer is taken over; the others are decoded.
        over: attribute -> what people said of it, in place of what is decoded where all has to be decoded together.
    """

    file: int
    row: int
    record: Record
    input_hash: str
    carried: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    over: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        return PreparedRecord, (self.file, self.row, self.record, self.input_hash, self.carried, dict(self.over))

    def wanted(self, schema: CategorySchema) -> list[str]:
        """The attributes that the engine has to answer."""
        return [attribute.name for attribute in schema.attributes if attribute.name not in self.carried]


@dataclass(frozen=True, slots=True)
class DeadRow:
    """A row that will not be extracted, and why.

    Attributes:
        row_json: the whole row, where it is at hand.
    """

    file: int
    row: int
    product_id: str | None
    category: str | None
    stage: str
    code: str
    message: str
    row_json: str | None = None


@dataclass(frozen=True, slots=True)
class PreparedShard:
    """A shard that was read, checked, grouped by category and tokenized.

    Attributes:
        records: those that go to the engine; `document_ids` are theirs, up to there.
        answered: those that need none: all of their answers are taken over.
        sources: where its rows stand in the catalog's files.
        bytes_read: of the files, as stored.
        field_orders: how much of their text the records share, in this order of the fields and in others.
    """

    shard: Shard
    records: Sequence[PreparedRecord]
    document_ids: Sequence[Sequence[int]]
    answered: Sequence[PreparedRecord]
    dead: Sequence[DeadRow]
    sources: Sequence[RowRange]
    seconds: float
    bytes_read: int = 0
    field_orders: FieldOrders = field(default_factory=FieldOrders)


@dataclass(frozen=True, slots=True)
class SecondLook:
    """What the larger model of a cascade is asked of a shard, and what it says.

    Attributes:
        asked: of each record: the attributes, with the confidence of the answer that each has (None: not known). Empty:
            nothing is asked of it.
        document_ids: of each record, by that model's tokenizer; None where nothing is asked, or that does not take it.
        seconds: it took to find that out.
        answers: the larger model's; None before it has come to the shard.
    """

    asked: Sequence[Mapping[str, float | None]]
    document_ids: Sequence[Sequence[int] | None]
    seconds: float
    answers: DecodedShard | None = None


@dataclass(slots=True)
class DecodedShard:
    """A shard with its answers, in the order of `prepared.records`.

    Attributes:
        results: None for a record that was given up, `failures` says why; or of which nothing was asked.
        failures: reasons, by place in `prepared.records`.
        attempt_id: the last try; empty if there was nothing to decode.
        num_attempts: tries in all sessions.
        engine: what decoded it, and where.
        metrics: sums over the tries that came to their end in the last process.
        second: what a larger model is asked again; None without a cascade, and before it is known.
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
    """A message as one cell of a dataset row. It never leaves the run's own processes."""
    return pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)


def unpack(data: bytes) -> Any:
    """The message in a cell written by `pack`."""
    return pickle.loads(data)
