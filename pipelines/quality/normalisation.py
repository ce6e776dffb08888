"""Scores of how well a run's values were normalised, apart from how well they were extracted.

A gold file may give, beside the accepted forms, a value in the schema's own terms:

    {"product_id": "p1", ..., "values": {"Weight": ["1.5"], "Roast": ["dark"]},
     "norm": {"Weight": {"num": 1.5, "unit": "kg", "printed": ["3.3"]}, "Roast": {"id": "roast-4"}}}

`printed` lists the numbers that the product's text has in other units. A raw value is right if it is an accepted form
or a printed number: "3.3" of "3.3 lb". A normalised number is right if it equals gold's within one percent (texts
round), with gold's unit. A normalised id is right if it is gold's.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hpd_core import CategorySchema
from hpd_core.text.near_names import NearNames, quoted
from pipelines.errors import UsageError
from pipelines.normalising.measured_text import NORM_STATUSES
from pipelines.normalising.units import is_known, wanted_unit
from pipelines.quality.gold import GoldProduct, read_lines
from pipelines.quality.run_answers import RowKey, RunProduct
from pipelines.store.no_run import read_schemas
from pipelines.store.run_tables import Parts, published_tables

_COLUMNS = ("source_file", "source_row", "attribute", "value_index", "status", "value_raw")
_NORMALISED = ("norm_status", "value_norm", "value_num", "unit", "value_id")
_TOLERANCE = 0.01
_MAX_NAMES = 5  # attributes named in notes


class NormGold(NamedTuple):
    """One value in the schema's terms: a number and its unit, or a member's id."""

    num: float | None
    unit: str | None
    id: str | None
    printed: tuple[str, ...]


class NormValue(NamedTuple):
    """A run's raw and normalised form of one value."""

    raw: str
    status: str | None
    norm: str | None
    num: float | None
    unit: str | None
    id: str | None


@dataclass(frozen=True, slots=True)
class Share:
    """Share of right values: `num_right` out of `num`."""

    num: int
    num_right: int

    @property
    def value(self) -> float | None:
        """Share in [0, 1]; None if `num` is 0."""
        return self.num_right / self.num if self.num else None


@dataclass(frozen=True, slots=True)
class NormalisationScore:
    """Scores of how well values were normalised.

    Attributes:
        statuses: number of values of gold products by `norm_status`; empty for a run without it.
        right_raw: values with normalised gold and a right raw value, and those of them that were normalised correctly.
        wrong: number of them that were normalised to something else; the others were left open.
        units: the same for numbers with a unit: both unit and number must be gold's.
        numbers, ids: as `right_raw`, for numbers and for members with ids.
    """

    statuses: Mapping[str, int]
    right_raw: Share
    wrong: int
    numbers: Share
    units: Share
    converted: Share
    ids: Share

    @property
    def normalised(self) -> Share:
        """All values, and those that have a normalised form."""
        return Share(sum(self.statuses.values()), self.statuses.get("ok", 0))


def score_normalisation(
    run: str, gold_path: str, gold: Sequence[GoldProduct], products: Mapping[int, RunProduct]
) -> tuple[NormalisationScore | None, list[str]]:
    """Score the normalised columns of a run. Returns the score and notes on the gold.

    The score is None for a run without these columns, as of older versions.

    Args:
        products: the run's products, by index in `gold`.
    """
    tables = published_tables(run)
    golds = _read_norms(gold_path, gold, _units_of_schemas(read_schemas(tables.folder)))
    notes = list(_unlabelled_notes(gold, golds))
    indexes = {product.key: index for index, product in products.items()}
    statuses: Counter[str] = Counter()
    judged: list[tuple[NormGold, NormValue, bool]] = []
    for index, attribute, value in _values(tables, indexes):
        if value.status is not None:
            statuses[value.status] += 1
        forms = gold[index].values.get(attribute)
        expected = golds.get((index, attribute), ())
        if forms is None or not expected or value.status is None:
            continue
        for item, norm in zip(forms.items, expected, strict=False):
            if _is_right_raw(value.raw, item, norm):
                judged.append((norm, value, _is_right(norm, value, item)))
                break
    return (_summed(statuses, judged) if statuses else None), notes


def _units_of_schemas(schemas: Mapping[str, CategorySchema] | None) -> set[str]:
    """Return the names of the units in the schemas. A schema's own word ("rings") counts as a unit."""
    attributes = [each for schema in (schemas or {}).values() for each in schema.attributes]
    return {name for each in attributes if each.unit is not None for name in each.unit.names}


def _unlabelled_notes(gold: Sequence[GoldProduct], norms: Iterable[tuple[int, str]]) -> Iterator[str]:
    """Yield notes on attributes under 'norm' that the same line does not label, so that they are not scored."""
    found = Counter((gold[index].category, name) for index, name in norms if name not in gold[index].values)
    labels: defaultdict[str, set[str]] = defaultdict(set)
    for product in gold:
        labels[product.category].update(product.values)
    for (category, name), count in found.most_common(_MAX_NAMES):
        hint = NearNames(labels[category] - {name}).hint(name)
        where = f"{category}: 'norm' of {quoted(name)} ({count:,} times)"
        said = f"{where} where the line does not label it, so it is not scored"
        yield f"{said}; {hint}" if hint else said
    if len(found) > _MAX_NAMES:
        yield f"and {len(found) - _MAX_NAMES:,} more such attributes under 'norm'"


def _summed(statuses: Mapping[str, int], judged: Sequence[tuple[NormGold, NormValue, bool]]) -> NormalisationScore:
    def share(chosen: Sequence[bool]) -> Share:
        return Share(len(chosen), sum(chosen))

    numbers = [(norm, value, is_right) for norm, value, is_right in judged if norm.num is not None]
    return NormalisationScore(
        statuses={name: statuses[name] for name in NORM_STATUSES if statuses.get(name)},
        right_raw=share([is_right for *_, is_right in judged]),
        wrong=sum(value.status == "ok" and not is_right for _, value, is_right in judged),
        numbers=share([is_right for *_, is_right in numbers]),
        units=share([is_right for norm, _, is_right in numbers if norm.unit is not None]),
        converted=share([is_right for norm, value, is_right in numbers if value.raw in norm.printed]),
        ids=share([is_right for norm, _, is_right in judged if norm.id is not None]),
    )


def _is_right_raw(raw: str, forms: Sequence[str], norm: NormGold) -> bool:
    if norm.num is None:
        return raw in forms
    number = _number(raw)
    return number is not None and any(number == _number(form) for form in (*forms, *norm.printed))


def _is_right(norm: NormGold, value: NormValue, forms: Sequence[str]) -> bool:
    if value.status != "ok":
        return False
    if norm.id is not None:
        return value.id == norm.id
    rights = [norm.num, *(_number(form) for form in forms)]
    return (norm.unit is None or value.unit == norm.unit) and any(
        right is not None and value.num is not None and math.isclose(value.num, right, rel_tol=_TOLERANCE)
        for right in rights
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _values(tables: Parts, indexes: Mapping[RowKey, int]) -> Iterator[tuple[int, str, NormValue]]:
    """Yield the values of gold products, with product index and attribute."""
    for file, row, attribute, _, status, raw, *normalised in tables.rows("attributes", (*_COLUMNS, *_NORMALISED)):
        index = indexes.get(RowKey(file, row))
        if index is not None and status == "value" and raw is not None:
            yield index, attribute, NormValue(raw, *normalised)


def _read_norms(
    path: str, gold: Sequence[GoldProduct], own_units: Collection[str]
) -> dict[tuple[int, str], tuple[NormGold, ...]]:
    """Parse the normalised gold of each value, by product index and attribute; empty if the file has none."""
    lines = read_lines(path)
    found: dict[tuple[int, str], tuple[NormGold, ...]] = {}
    for index, product in enumerate(gold):
        if b'"norm"' not in lines[product.row]:
            continue
        norms = json.loads(lines[product.row]).get("norm")
        place = product.place_in(path)
        if not isinstance(norms, dict):
            raise UsageError(
                f'{place}: \'norm\' must be an object: attribute -> {{"num": ..., "unit": ...}} or {{"id": ...}}'
            )
        for attribute, entry in norms.items():
            entries = entry if isinstance(entry, list) else [entry]
            norm = tuple(_norm_gold(each, f"{place}: 'norm' > {attribute!r}", own_units) for each in entries)
            found[index, product.renamed.get(attribute, attribute)] = norm
    return found


def _norm_gold(entry: Any, place: str, own_units: Collection[str]) -> NormGold:
    known = {"num", "unit", "id", "printed"}
    if not isinstance(entry, dict) or not entry.keys() <= known or not entry.keys() & {"num", "id"}:
        raise UsageError(f"{place}: an object with 'num' (and 'unit', 'printed') or with 'id' is needed")
    num, printed = entry.get("num"), entry.get("printed", [])
    is_number = num is None or (isinstance(num, int | float) and not isinstance(num, bool))
    texts = [entry.get("unit"), entry.get("id"), *(printed if isinstance(printed, list) else [0])]
    if not is_number or not all(text is None or isinstance(text, str) for text in texts):
        raise UsageError(f"{place}: 'num' must be a number, 'unit' and 'id' texts, 'printed' a list of texts")
    if num is not None and not math.isfinite(num):
        raise UsageError(f"{place} > 'num': {num} is no number of a value; write one, or leave it out")
    unit = entry.get("unit")
    if unit is not None and unit not in own_units and not is_known(wanted_unit(unit)):
        raise UsageError(f"{place} > 'unit': {unit!r} is no unit, and none of the run's schemas; write it as they do")
    return NormGold(num, unit, entry.get("id"), tuple(printed))
