"""Forecast of a run's cost as plain data: written by `hpd plan`, read by the report.

Deadlines are arithmetic on a forecast, without new measurements. Assumptions are stated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError

from pipelines.errors import UsageError
from pipelines.store.folders import open_filesystem

FORECAST_NAME = "forecast.json"
TOKEN_KINDS = ("document", "key", "value", "scored")
"""Kinds of forwarded tokens that belong to single products."""
_VERSION = 1

Basis = Literal["pilot", "earlier run"]
# What a stored forecast is checked by: a file that anyone may have written.
Amount = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True)
class Interval:
    """Estimate with the limits of its 95% interval."""

    estimate: Amount
    low: Amount
    high: Amount

    def scaled(self, factor: float, plus: float = 0.0) -> Interval:
        """Multiply estimate and limits by `factor` (not negative), and add a known amount."""
        return Interval(*(value * factor + plus for value in (self.estimate, self.low, self.high)))

    @property
    def limits(self) -> tuple[float, float, float]:
        """Estimate, lower and upper limit."""
        return self.estimate, self.low, self.high

    def plus(self, other: Interval) -> Interval:
        """Add two intervals measured on the same products. Their errors are correlated, so limits are added, too."""
        return Interval(*(a + b for a, b in zip(self.limits, other.limits, strict=True)))

    def contains(self, value: float) -> bool:
        """Return whether `value` lies between the limits."""
        return self.low <= value <= self.high

    @property
    def half_width_share(self) -> float:
        """Distance of the upper limit from the estimate, as a share of the estimate; 0 for an estimate of 0."""
        return (self.high - self.estimate) / self.estimate if self.estimate else 0.0


@dataclass(frozen=True, slots=True)
class Price:
    """Price of an engine's hour. `usd_per_hour` is None if unknown: the forecast then has hours, but no dollars."""

    usd_per_hour: Amount | None
    source: str | None
    instance_type: str | None = None
    market: str | None = None
    engines_per_node: Positive = 1


@dataclass(frozen=True, slots=True)
class CategoryForecast:
    """Forecast of one category's work.

    Attributes:
        rows: rows in the catalog.
        sampled: measured products.
        hours: engine hours of computing.
        is_pooled: whether too few were measured, so that the rate of all rare categories together was used.
    """

    category: str
    rows: Count
    sampled: Count
    hours: Interval
    is_pooled: bool = False


@dataclass(frozen=True, slots=True)
class ForecastAsked:
    """Shares of the catalog that a cascade's larger model is asked again.

    Attributes:
        below: threshold of certainty.
        answers: share of all answers.
        products: share of the products with at least one such answer.
    """

    below: Annotated[float, Field(ge=0, le=1)]
    answers: Interval
    products: Amount


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecast of a run over the whole catalog.

    Attributes:
        basis, source: origin of the measurements, and the run's folder.
        rows: rows of the catalog; `dead_rows` of them cannot be extracted and cost nothing.
        sampled: measured products, in `num_batches` batches.
        work_hours: engine hours of computing for products.
        prefix_hours: engine hours for the categories' prefixes, computed once by every engine.
        load_seconds: seconds in which one engine loads.
        utilisation: share of an engine's time, after loading, in which it computes; `utilisation_source`: measured,
            set or assumed.
        engines: number of engines in the configuration.
        tokens: tokens forwarded for a product, by kind: document, key, value, scored.
        assumed: sentences on what was not measured; empty if everything was.
        model_size: size from the measured engine's `EngineDescription`; None if it has none.
        larger: forecast of a cascade's larger model. All other attributes are of the first model alone, while the
            properties cover both.
        asked: shares that the larger model is asked.
        measured_on: device of the measurements, if `device` was not measured.
    """

    basis: Basis
    source: str
    created_at: str
    model: str
    device: str
    rows: Count
    dead_rows: Count
    sampled: Count
    num_batches: Count
    work_hours: Interval
    prefix_hours: Amount
    load_seconds: Amount
    utilisation: Annotated[float, Field(gt=0, le=1)]
    utilisation_source: str
    engines: Positive
    price: Price
    categories: Sequence[CategoryForecast]
    tokens: Mapping[str, Amount]
    assumed: Sequence[str] = field(default_factory=list)
    model_size: Mapping[str, Count] | None = None
    larger: Forecast | None = None
    asked: ForecastAsked | None = None
    measured_on: str | None = None

    @property
    def alone(self) -> Forecast:
        """Forecast of the first model alone."""
        return replace(self, larger=None, asked=None)

    @property
    def models(self) -> list[Forecast]:
        """Forecasts of each model alone."""
        return [self.alone] if self.larger is None else [self.alone, self.larger]

    @property
    def computing_hours(self) -> Interval:
        """Engine hours of computing for products, for both models."""
        return self.work_hours if self.larger is None else self.work_hours.plus(self.larger.work_hours)

    @property
    def billed_hours(self) -> Interval:
        """Engine hours that are billed: computing, waiting and loading."""
        own = self.work_hours.scaled(1 / self.utilisation, self._fixed_hours)
        return own if self.larger is None else own.plus(self.larger.billed_hours)

    @property
    def _fixed_hours(self) -> float:
        return self.engines * (self.load_seconds / 3600 + self.prefix_hours / self.utilisation)

    @property
    def fixed_hours(self) -> float:
        """Part of `billed_hours` that does not grow with the catalog: loading, and prefixes, on every engine."""
        return self._fixed_hours + (self.larger.fixed_hours if self.larger is not None else 0.0)

    @property
    def wall_hours(self) -> Interval:
        """Hours from the first engine's start to the last one's end; all engines of both models run in parallel."""
        if self.larger is None:
            return self.billed_hours.scaled(1 / self.engines)
        own, other = self.alone.wall_hours, self.larger.wall_hours
        return Interval(*(max(pair) for pair in zip(own.limits, other.limits, strict=True)))

    @property
    def usd(self) -> Interval | None:
        """Cost of the engines in dollars; None without a price."""
        if self.larger is not None:
            own, other = self.alone.usd, self.larger.usd
            return None if own is None or other is None else own.plus(other)
        return None if self.price.usd_per_hour is None else self.billed_hours.scaled(self.price.usd_per_hour)

    @property
    def usd_of_nodes(self) -> Interval | None:
        """Cost of the whole nodes in dollars, if the engines do not fill them.

        None if they do, without a price, or if the models' nodes hold different numbers of engines.
        """
        price, engines = self.price, sum(each.engines for each in self.models)
        sizes = {each.price.engines_per_node for each in self.models}
        if price.usd_per_hour is None or len(sizes) > 1 or engines % price.engines_per_node == 0:
            return None
        return self.wall_hours.scaled(
            -(-engines // price.engines_per_node) * price.engines_per_node * price.usd_per_hour
        )

    @property
    def categories_of_all(self) -> list[CategoryForecast]:
        """Categories with the hours of both models."""
        more = {} if self.larger is None else {each.category: each.hours for each in self.larger.categories}
        return [
            replace(each, hours=each.hours.plus(more[each.category])) if each.category in more else each
            for each in self.categories
        ]

    @property
    def usd_per_1k(self) -> Interval | None:
        """Dollars for a thousand rows that can be extracted; None without a price."""
        return None if self.usd is None else self.usd.scaled(1000 / (self.rows - self.dead_rows))

    def to_json(self) -> bytes:
        """Encode it as stored, with the derived numbers for readers without this code."""
        derived = {
            name: None if (interval := getattr(self, name)) is None else asdict(interval)
            for name in ("billed_hours", "wall_hours", "usd", "usd_per_1k")
        }
        data = {"version": _VERSION, **asdict(self), "derived": derived | {"fixed_hours": self.fixed_hours}}
        return json.dumps(data, ensure_ascii=False, indent=2).encode()

    @classmethod
    def from_json(cls, data: Mapping[str, Any], place: str) -> Self:
        """Parse stored data. Raises `UsageError` if it is not a forecast of this version."""
        try:
            if data["version"] != _VERSION:
                raise UsageError(f"{place} was written by another version of this project; make it again")
            forecast = TypeAdapter(cls).validate_python(dict(data))
        except KeyError as error:
            raise UsageError(f"{place} is no forecast: it has no version") from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise UsageError(f"{place} is no forecast: {where}: {first['msg']}") from error
        intervals = (forecast.work_hours, *(category.hours for category in forecast.categories))
        if not all(interval.contains(interval.estimate) for interval in intervals):
            raise UsageError(f"{place} is no forecast: an estimate lies outside its interval")
        if forecast.dead_rows >= forecast.rows:
            raise UsageError(f"{place} is no forecast: none of its {forecast.rows} rows can be extracted")
        return forecast

    @classmethod
    def read(cls, uri: str) -> Self:
        """Read the forecast in a file. Raises `UsageError` if there is none."""
        filesystem, path = open_filesystem(uri)
        try:
            data = json.loads(filesystem.cat_file(path))
        except FileNotFoundError as error:
            raise UsageError(f"there is no forecast in {uri}") from error
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read {uri}: {error}") from error
        if not isinstance(data, dict):
            raise UsageError(f"{uri} is no forecast")
        return cls.from_json(data, uri)


def forecast_name(instance_type: str) -> str:
    """Return the file name of a forecast for a machine that was not measured."""
    return f"forecast.{instance_type}.json"


DEADLINES = (1.0, 2.0, 4.0, 8.0, 24.0)
"""Deadlines of the table, in hours."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """Engines and nodes needed to meet a deadline.

    Attributes:
        hours: deadline in hours from the first engine's start.
        engines: engines needed at the estimate; None if no number of engines is enough.
        engines_safe: engines needed at the upper limit of the work's interval.
        nodes: nodes that hold `engines`.
        usd: cost of these whole nodes for as long as the engines run; None without a price.
    """

    hours: float
    engines: int | None
    engines_safe: int | None
    nodes: int | None
    usd: Interval | None


def deadlines(forecast: Forecast, hours: Sequence[float] = DEADLINES) -> list[Deadline]:
    """Compute the engines and nodes that each deadline needs, with work spread evenly over the engines.

    For a cascade, call it with each of `Forecast.models`, since each model must meet the deadline.
    """
    return [_deadline(forecast, each) for each in hours]


def _deadline(forecast: Forecast, hours: float) -> Deadline:
    # Every engine loads, and computes every prefix, on its own: only the rest of its time is for products.
    fixed = forecast.load_seconds / 3600 + forecast.prefix_hours / forecast.utilisation
    left = hours - fixed

    def engines(work_hours: float) -> int | None:
        return None if left <= 0 else max(1, math.ceil(work_hours / forecast.utilisation / left - 1e-9))

    needed = engines(forecast.work_hours.estimate)
    if needed is None:
        return Deadline(hours, None, None, None, None)
    per_node, price = forecast.price.engines_per_node, forecast.price.usd_per_hour
    nodes = math.ceil(needed / per_node)
    wall = replace(forecast, engines=needed).wall_hours
    usd = None if price is None else wall.scaled(nodes * per_node * price)
    return Deadline(hours, needed, engines(forecast.work_hours.high), nodes, usd)
