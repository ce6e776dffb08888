"""What a run will cost, as plain data: made by `pipelines/plan.py`, read again by the report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError

from pipelines.errors import UsageError
from pipelines.store.folders import open_filesystem

FORECAST_NAME = "forecast.json"
_VERSION = 1

Basis = Literal["pilot", "earlier run"]
# What a stored forecast is checked by: a file that anyone may have written.
Amount = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the limits of its 95% interval."""

    estimate: Amount
    low: Amount
    high: Amount

    def scaled(self, factor: float, plus: float = 0.0) -> Interval:
        """Every limit times `factor` (not negative), plus a known amount."""
        return Interval(*(value * factor + plus for value in (self.estimate, self.low, self.high)))

    @property
    def limits(self) -> tuple[float, float, float]:
        """The estimate, and the limits."""
        return self.estimate, self.low, self.high

    def plus(self, other: Interval) -> Interval:
        """The sum. Of two that were measured on the same products, whose errors go together: limits are added, too."""
        return Interval(*(a + b for a, b in zip(self.limits, other.limits, strict=True)))

    def contains(self, value: float) -> bool:
        """Whether `value` lies between the limits."""
        return self.low <= value <= self.high

    @property
    def half_width_share(self) -> float:
        """How far the upper limit is above the estimate, as a share of it; 0 for an estimate of 0."""
        return (self.high - self.estimate) / self.estimate if self.estimate else 0.0


@dataclass(frozen=True, slots=True)
class Price:
    """What an engine's hour costs. `usd_per_hour` is None where it is not known: there are hours then, no dollars."""

    usd_per_hour: Amount | None
    source: str | None
    instance_type: str | None = None
    market: str | None = None
    engines_per_node: Positive = 1


@dataclass(frozen=True, slots=True)
class CategoryForecast:
    """One category's work.

    Attributes:
        rows: in the catalog.
        sampled: products of it that were measured.
        hours: engine hours of computing.
        is_pooled: too few were measured: the rate of all rare categories together was used, by text length.
    """

    category: str
    rows: Count
    sampled: Count
    hours: Interval
    is_pooled: bool = False


@dataclass(frozen=True, slots=True)
class ForecastAsked:
    """What a cascade's larger model is asked again.

    Attributes:
        below: the threshold.
        answers, products: shares, of all answers and of the products that any is asked of.
    """

    below: Annotated[float, Field(ge=0, le=1)]
    answers: Interval
    products: Amount


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run over the whole catalog will take.

    Attributes:
        basis, source: where the measurements are from, and the run's folder.
        rows: of the catalog; `dead_rows` of them have no schema and cost nothing.
        sampled: products that were measured, in `num_batches` batches.
        text_bytes: mean of a row's text in the catalog; `sampled_text_bytes` of the measured products, weighted as the
            estimate weights them: how far the sample's lengths are from the catalog's. None if not known.
        work_hours: engine hours of computing for products.
        prefix_hours: engine hours for the categories' prefixes, computed once by every engine.
        load_seconds: in which one engine loads.
        utilisation: share of an engine's time, after loading, in which it computes; `utilisation_source`: measured,
            set or assumed.
        engines: that the configuration asks for.
        tokens: forwarded for a product, by kind: document, key, value, scored.
        bytes_effect: by which share the work grows if every text becomes twice as long.
        assumed: what was not measured, in words; empty if everything was.
        model_size: as the measured engine says (`EngineDescription`); None if it does not.
        larger: with a cascade, the same of its larger model; all the others are of the first one alone, the properties
            of both.
        asked: what the larger model is asked.
        measured_on: the device of the measurements, if `device` was not measured.
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
    seed: int | None
    text_bytes: Amount
    sampled_text_bytes: Amount | None
    work_hours: Interval
    prefix_hours: Amount
    load_seconds: Amount
    utilisation: Annotated[float, Field(gt=0, le=1)]
    utilisation_source: str
    engines: Positive
    price: Price
    categories: Sequence[CategoryForecast]
    tokens: Mapping[str, Amount]
    bytes_effect: Amount
    assumed: Sequence[str] = field(default_factory=list)
    model_size: Mapping[str, Count] | None = None
    larger: Forecast | None = None
    asked: ForecastAsked | None = None
    measured_on: str | None = None

    @property
    def alone(self) -> Forecast:
        """Of the first model alone."""
        return replace(self, larger=None, asked=None)

    @property
    def models(self) -> list[Forecast]:
        """Of each model alone."""
        return [self.alone] if self.larger is None else [self.alone, self.larger]

    @property
    def computing_hours(self) -> Interval:
        """Engine hours of computing for products, of both models."""
        return self.work_hours if self.larger is None else self.work_hours.plus(self.larger.work_hours)

    @property
    def billed_hours(self) -> Interval:
        """Engine hours that are paid: computing, waiting and loading."""
        own = self.work_hours.scaled(1 / self.utilisation, self._fixed_hours)
        return own if self.larger is None else own.plus(self.larger.billed_hours)

    @property
    def _fixed_hours(self) -> float:
        return self.engines * (self.load_seconds / 3600 + self.prefix_hours / self.utilisation)

    @property
    def fixed_hours(self) -> float:
        """Of `billed_hours`, those that do not grow with the catalog: loading, and prefixes, on every engine."""
        return self._fixed_hours + (self.larger.fixed_hours if self.larger is not None else 0.0)

    @property
    def wall_hours(self) -> Interval:
        """From the first engine's start to the last one's end, with all engines at work: two models' at once."""
        if self.larger is None:
            return self.billed_hours.scaled(1 / self.engines)
        own, other = self.alone.wall_hours, self.larger.wall_hours
        return Interval(*(max(pair) for pair in zip(own.limits, other.limits, strict=True)))

    @property
    def usd(self) -> Interval | None:
        """What the engines cost; None without a price."""
        if self.larger is not None:
            own, other = self.alone.usd, self.larger.usd
            return None if own is None or other is None else own.plus(other)
        return None if self.price.usd_per_hour is None else self.billed_hours.scaled(self.price.usd_per_hour)

    @property
    def usd_of_nodes(self) -> Interval | None:
        """What the engines' nodes cost as a whole, where engines do not fill them; None where they do, or without a
        price."""
        price, engines = self.price, sum(each.engines for each in self.models)
        sizes = {each.price.engines_per_node for each in self.models}
        if price.usd_per_hour is None or len(sizes) > 1 or engines % price.engines_per_node == 0:
            return None
        return self.wall_hours.scaled(
            -(-engines // price.engines_per_node) * price.engines_per_node * price.usd_per_hour
        )

    @property
    def categories_of_all(self) -> list[CategoryForecast]:
        """The categories with both models' hours."""
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
        """As it is stored; with the derived numbers, for those who read it without this code."""
        derived = {
            name: None if (interval := getattr(self, name)) is None else asdict(interval)
            for name in ("billed_hours", "wall_hours", "usd", "usd_per_1k")
        }
        data = {"version": _VERSION, **asdict(self), "derived": derived | {"fixed_hours": self.fixed_hours}}
        return json.dumps(data, ensure_ascii=False, indent=2).encode()

    @classmethod
    def from_json(cls, data: Mapping[str, Any], place: str) -> Self:
        """Raises `UsageError` if it is no forecast of this version."""
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
        """The forecast in a file. Raises `UsageError` if there is none."""
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
    """The file of a forecast for a machine that was not measured."""
    return f"forecast.{instance_type}.json"
