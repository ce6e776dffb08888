"""All that a report says, as data: computed once, shown three times (page, JSON, Markdown).

Seconds are the engines', US dollars are of `billed` seconds unless a name says otherwise. None: not known, or not asked
for; it is never a zero in disguise.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.job.run_status import State
from pipelines.quality.scoring import Estimate
from pipelines.store.totals import loading_note


@dataclass(frozen=True, slots=True)
class Identity:
    """Which run this is, and what decoded it.

    Attributes:
        layout: `tree`, `stacked`, or `ar` for plain autoregressive decoding.
        engine: as the run's first engine described itself.
        devices, instances: shards by the machine they were decoded on.
    """

    uri: str
    run_id: str
    state: State
    created_at: str
    config_hash: str
    schema_hash: str
    limit: int | None
    base_run_id: str | None
    layout: str
    engine: Mapping[str, Any]
    devices: Mapping[str, int]
    instances: Mapping[str, int]
    inputs: tuple[InputFile, ...]


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file of the catalog, as the plan has it. `size` in bytes."""

    name: str
    size: int
    num_rows: int


@dataclass(frozen=True, slots=True)
class Totals:
    """What became of the rows of the committed shards.

    Attributes:
        dead_letters: rows that were given up; `refused`: of them, those that no engine saw (no schema, no text).
        carried: products taken over from an earlier run.
    """

    planned_rows: int
    planned_shards: int
    shards: int
    rows: int
    products: int
    dead_letters: int
    refused: int
    carried: int
    statuses: Mapping[str, int]

    @property
    def extractable(self) -> int:
        """Rows that an engine could take."""
        return self.rows - self.refused

    @property
    def decoded(self) -> int:
        """Products with an answer of this run's own."""
        return self.products - self.carried


@dataclass(frozen=True, slots=True)
class EngineTime:
    """Where the engines' seconds went: billed = load + busy + retry + rest.

    Attributes:
        busy: computing what was committed.
        prefix: of `busy`, the categories' prefixes; None for a run that did not count them.
        retry: in tries that failed; None for a run that did not count them.
        rest: waiting for a shard, starting up, and what was lost when an engine died. (The table's `idle_seconds` is
            a part of it: engines without any shard between two.)
    """

    billed: float
    load: float
    busy: float
    prefix: float | None
    retry: float | None
    rest: float

    @property
    def overhead(self) -> float:
        """All that is not work."""
        return self.billed - self.busy

    @property
    def loading_note(self) -> str:
        """Why a product of a larger run may cost less; empty where loading is a small part."""
        return loading_note(self.load, self.billed)


@dataclass(frozen=True, slots=True)
class Money:
    """Dollars of the shards that have a price: billed = useful + load + retry + rest, each shard at its own price.

    Attributes:
        useful: for computing; `load`, `retry`, `rest` as in `EngineTime`.
        priced_afterwards: the price is the reader's (`--usd-per-hour`), not the run's.
        usd_per_hour: of an engine; the mean over billed hours where engines had different prices.
        sources: where the prices are from.
        shards, decoded: that have a price.
    """

    billed: float
    useful: float
    load: float
    retry: float | None
    rest: float
    usd_per_hour: float | None
    priced_afterwards: bool
    sources: tuple[str, ...]
    shards: int
    decoded: int

    @property
    def overhead(self) -> float:
        """Paid for loading, waiting and failed tries."""
        return self.billed - self.useful

    @property
    def per_1k(self) -> float | None:
        """For a thousand decoded products."""
        return self.billed / self.decoded * 1000 if self.decoded else None


@dataclass(frozen=True, slots=True)
class Account:
    """What the shards' metrics add up to.

    Attributes:
        shards, rows: that have metrics; `missing`: committed shards that have none.
        wall_seconds: with at least one engine alive or one shard under way; pauses between sessions are left out.
        engines: how many there were, one after the other or at once.
        engines_per_node: that fit on one machine; None if no engine said which part of its machine it had.
        tokens: by kind.
        retries: tries of shards beyond the first.
        bytes_read, bytes_written: as stored; None for a run that did not count them.
        progress: (seconds since the first start, products so far), at most some hundred points.
    """

    shards: int
    missing: int
    rows: int
    time: EngineTime
    money: Money | None
    wall_seconds: float
    started_at: datetime.datetime
    ended_at: datetime.datetime
    engines: int
    engines_per_node: int | None
    decoded: int
    tokens: Mapping[str, int]
    num_steps: int
    retries: int
    bytes_read: int | None
    bytes_written: int | None
    progress: tuple[tuple[float, int], ...]

    @property
    def products_per_second(self) -> float | None:
        """Decoded products by wall seconds; None if shards are missing, whose time is in the wall of the others."""
        return self.decoded / self.wall_seconds if self.wall_seconds > 0 and not self.missing else None

    @property
    def products_per_engine_second(self) -> float | None:
        """Decoded products by billed seconds of an engine."""
        return self.decoded / self.time.billed if self.time.billed > 0 else None

    @property
    def mean_engines(self) -> float | None:
        """How many engines lived at a time, on average; None if shards are missing."""
        return self.time.billed / self.wall_seconds if self.wall_seconds > 0 and not self.missing else None


@dataclass(frozen=True, slots=True)
class CategoryFacts:
    """One category. `engine_seconds` is None if the run did not count them by product.

    Attributes:
        share: of all products' engine seconds.
        usd: its part of what was paid for computing (loading, waiting and failed tries are apart), each shard at its
            own price; None if none of its products is in a shard with a price.
        priced: products decoded in shards with a price.
        values: answers with a value, be it one or several; `doubtful` and `ungrounded` are some of them.
        doubtful: those that the model gave a probability below one half; None if it gave none to any.
        ungrounded: those of which an item stands nowhere in the text (truth values are conclusions); None if no value
            was looked for.
        f1: against gold, exact.
    """

    category: str
    products: int
    decoded: int
    dead_letters: int
    engine_seconds: float | None
    share: float | None
    usd: float | None
    priced: int
    values: int
    absent: int
    failed: int
    doubtful: int | None
    ungrounded: int | None
    f1: float | None = None

    @property
    def usd_per_1k(self) -> float | None:
        """For computing a thousand of its decoded products."""
        return self.usd / self.priced * 1000 if self.usd is not None and self.priced else None

    @property
    def seconds_per_1k(self) -> float | None:
        """Engine seconds for a thousand of its products."""
        seconds = self.engine_seconds
        return seconds / self.decoded * 1000 if seconds is not None and self.decoded else None


@dataclass(frozen=True, slots=True)
class DeadExample:
    """A dead-lettered row, cut to a readable length."""

    place: str
    product_id: str | None
    category: str | None
    message: str
    row: str | None


@dataclass(frozen=True, slots=True)
class DeadReason:
    """Dead letters of one error code.

    Attributes:
        messages: those that several rows have, or that name a category, with the number of rows; the most frequent.
    """

    code: str
    stage: str
    count: int
    share: float
    messages: tuple[tuple[str, int], ...]
    examples: tuple[DeadExample, ...]


@dataclass(frozen=True, slots=True)
class Band:
    """Values for labelled attributes by the model's probability of the whole answer, in [low, high)."""

    low: float
    high: float
    num_values: int
    num_right: int


@dataclass(frozen=True, slots=True)
class Quality:
    """Against gold, exact match."""

    gold: str
    num_products: int
    num_labels: int
    precision: Estimate
    recall: Estimate
    f1: Estimate
    hallucination_rate: float | None
    bands: tuple[Band, ...]


@dataclass(frozen=True, slots=True)
class Expectation:
    """A forecast number with its 95% interval, and what came true.

    Attributes:
        unit: usd or hours.
        is_inside: whether the interval holds what came true; None where that is not known, or is of other rows,
            another machine or only some of the shards.
    """

    what: str
    unit: str
    estimate: float
    low: float
    high: float
    actual: float | None
    is_inside: bool | None


@dataclass(frozen=True, slots=True)
class ForecastFacts:
    """What was expected.

    Attributes:
        is_comparable: the run has finished the very rows that the forecast is of, on the machine that it is for, took
            nothing over, and has the metrics (and prices, if any) of all shards.
    """

    place: str
    basis: str
    source: str
    created_at: str
    model: str
    device: str
    rows: int
    sampled: int
    num_batches: int
    seed: int | None
    is_comparable: bool
    lines: tuple[Expectation, ...]
    categories: tuple[Expectation, ...]
    assumed: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeadlineFacts:
    """What it takes to be done in so many hours; None where no number of engines is enough."""

    hours: float
    engines: int | None
    nodes: int | None
    usd: float | None


@dataclass(frozen=True, slots=True)
class SensitivityFacts:
    """What the run would take if one thing were otherwise. `ratio`: how much more, as a share."""

    what: str
    change: str
    hours: float
    usd: float | None
    ratio: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """Other circumstances, by what the run measured, for all its planned rows. `hours` of engines."""

    rows: int
    hours: float
    usd: float | None
    engines_per_node: int
    deadlines: tuple[DeadlineFacts, ...]
    sensitivity: tuple[SensitivityFacts, ...]


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run beside others. `is_this`: the report's own. `num_scored`: gold products that it has."""

    uri: str
    run_id: str
    state: State
    is_this: bool
    model: str
    adapter: str | None
    layout: str
    products: int
    dead_letters: int
    num_scored: int | None
    f1: Estimate | None
    usd_per_1k: float | None
    seconds_per_1k: float | None
    products_per_second: float | None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands: code points [start, end) of the field."""

    field: str
    start: int
    end: int
    match: str


@dataclass(frozen=True, slots=True)
class SampledValue:
    """An answer for one attribute, one item of it where there are several.

    Attributes:
        text: the value; what the model wrote where it is none; None where the answer is "not stated".
        probability: the model's own, of the whole answer.
        places: None where there is nothing to look for (no value, or a truth value, which is a conclusion).
        gold: the right answer, None without a label; `is_right` likewise.
    """

    attribute: str
    text: str | None
    status: str
    probability: float | None
    places: tuple[Place, ...] | None
    gold: str | None = None
    is_right: bool | None = None

    @property
    def is_ungrounded(self) -> bool:
        """A value that stands nowhere in the text."""
        return self.places == ()


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a field's text, and which of the product's values (by index) stand there, strictest match first.

    `omitted` counts characters that are left out here instead of shown.
    """

    text: str
    values: tuple[int, ...] = ()
    match: str | None = None
    omitted: int = 0


@dataclass(frozen=True, slots=True)
class FieldText:
    """A field of a product as the model read it, cut into segments."""

    name: str
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class SampledProduct:
    """A product to look at.

    Attributes:
        why: what it was drawn for: least certain, ungrounded, failed, random.
        lowest: the lowest probability among its values; None if none has any.
        values: those the model is least sure of first; what is not stated comes last.
        fields: None if its text could not be read back.
    """

    source_file: str
    source_row: int
    product_id: str
    category: str
    why: str
    lowest: float | None
    values: tuple[SampledValue, ...]
    fields: tuple[FieldText, ...] | None

    @property
    def num_ungrounded(self) -> int:
        """Answers of which an item stands nowhere in the text."""
        return len({value.attribute for value in self.values if value.is_ungrounded})

    @property
    def num_wrong(self) -> int:
        """Answers that gold calls wrong."""
        return len({value.attribute for value in self.values if value.is_right is False})

    @property
    def num_failed(self) -> int:
        """Answers that are neither a value nor "not stated"."""
        return sum(value.status not in ("value", "absent") for value in self.values)


@dataclass(frozen=True, slots=True)
class Sample:
    """Products to look at, and how they were drawn."""

    seed: int
    size: int
    products: tuple[SampledProduct, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """The whole report.

    Attributes:
        forecast_place: where the forecast is, or would be.
        notes: what a reader must know before trusting the numbers.
    """

    identity: Identity
    totals: Totals
    account: Account | None
    forecast: ForecastFacts | None
    forecast_place: str
    outlook: Outlook | None
    categories: tuple[CategoryFacts, ...]
    quality: Quality | None
    compared: tuple[ComparedRun, ...]
    dead_letters: tuple[DeadReason, ...]
    sample: Sample
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, with the derived numbers that the page shows."""
        data: dict[str, Any] = _plain(self)
        return data


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        derived = [name for name, member in vars(type(value)).items() if isinstance(member, property)]
        return {name: _plain(getattr(value, name)) for name in (*names, *derived)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        # JSON has no such numbers.
        return None
    if isinstance(value, datetime.datetime):
        return value.isoformat(timespec="seconds")
    return value
