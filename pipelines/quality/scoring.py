"""Scores of answers against gold values: pure functions, exactly as ExtractGPT counts.

Every labelled attribute of every product is one of five outcomes (first letter: gold, second: prediction):

    NN  none, none        NV  none, a value
    VN  a value, none     VC  a value, the correct one     VW  a value, a wrong one

    P = VC / (NV + VC + VW)     R = VC / (VN + VC + VW)     F1 = 2 P R / (P + R)     each 0 where undefined

*Micro* sums the outcomes over all labelled attributes, then takes P, R and F1. *Macro* takes P, R and F1 for
every pair of category and attribute, then the plain mean over the pairs. A pair that has nothing but NN is
left out, as ExtractGPT does. Macro F1 is therefore the mean of F1s.

Attributes without a label are not counted at all: a value for them is neither right nor wrong.
"""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from hpd_core import Attribute
from hpd_core.text.numbers import open_readings
from hpd_core.text.values import parse_value
from pipelines.normalising.stated_numbers import label_numbers
from pipelines.quality.gold import GoldValue
from pipelines.store.verdicts import plain_number

AnswerStatus = Literal["value", "absent", "truncated", "invalid", "error", "not_asked"]

NUM_RESAMPLES = 1000
SEED = 0
_FEW_PRODUCTS = 20
_DECIMAL = re.compile(r"-?\d+(?:\.\d+)?")
_MAX_CHUNK_ELEMENTS = 4_000_000  # bounds the memory of a bootstrap, not its result

_Floats = npt.NDArray[np.float64]
_Integers = npt.NDArray[np.int64]


class Comparison(StrEnum):
    """Equality of a prediction and an accepted form: "exact" is ExtractGPT's rule, "folded" our addition."""

    EXACT = "exact"
    FOLDED = "folded"


class AnswerOutcome(IntEnum):
    """Outcome of one labelled attribute; the number is its column in count arrays."""

    NN = 0
    NV = 1
    VN = 2
    VC = 3
    VW = 4

    @property
    def is_right(self) -> bool:
        """Whether the answer is what the label says: the correct value, or none where there is none."""
        return self in (AnswerOutcome.NN, AnswerOutcome.VC)


@dataclass(frozen=True, slots=True)
class Answer:
    """A run's answer for one attribute of one product.

    `status` is the run's, or "not_asked" if the run's schema lacks the attribute. `items` is empty unless it is
    "value". `probability` is the model's own, for the whole answer; `confidence` is the calibrated one. `is_reviewed`:
    a person gave the answer. `norms`: the items in the attribute's own form, where the run has read them. Equality
    ignores these four.
    """

    status: AnswerStatus
    items: tuple[str, ...] = ()
    probability: float | None = field(default=None, compare=False)
    confidence: float | None = field(default=None, compare=False)
    is_reviewed: bool = field(default=False, compare=False)
    norms: tuple[str | None, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return "; ".join(self.items) if self.items else f"({self.status.replace('_', ' ')})"


@dataclass(frozen=True, slots=True)
class AnswerJudgement:
    """One labelled attribute, judged. `product` is the product's index among the evaluated ones."""

    product: int
    category: str
    attribute: str
    gold: GoldValue
    answer: Answer
    outcome: AnswerOutcome


@dataclass(frozen=True, slots=True)
class Rates:
    """Precision, recall and F1, each in [0, 1]."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95% interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True, slots=True)
class RateEstimates:
    """Precision, recall and F1, each with its interval."""

    precision: Estimate
    recall: Estimate
    f1: Estimate


@dataclass(frozen=True, slots=True)
class Counts:
    """Number of occurrences of each outcome."""

    nn: int = 0
    nv: int = 0
    vn: int = 0
    vc: int = 0
    vw: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(self.as_tuple(), other.as_tuple(), strict=True)))

    def as_tuple(self) -> tuple[int, int, int, int, int]:
        """Return the counts in the order of `AnswerOutcome`."""
        return self.nn, self.nv, self.vn, self.vc, self.vw

    @property
    def num_labels(self) -> int:
        """Number of labelled attributes."""
        return sum(self.as_tuple())

    @property
    def rates(self) -> Rates:
        """Precision, recall and F1 of these counts."""
        return Rates(*(float(rate) for rate in _rates(np.array(self.as_tuple()))))

    @property
    def hallucination_rate(self) -> float | None:
        """Share of the attributes labelled absent that got a value; None if none is labelled absent."""
        absent = self.nn + self.nv
        return self.nv / absent if absent else None


def fold(text: str) -> str:
    """Return `text` in Unicode NFKC, case-folded, with runs of white space as one space and none at the ends."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split())


def words_pattern(texts: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that finds any of `texts` as whole words; without texts, one that finds nothing."""
    words = "|".join(re.escape(text) for text in sorted(texts)) or "(?!)"
    return re.compile(rf"(?<!\w)(?:{words})(?!\w)")


def judge(
    gold: GoldValue,
    answer: Answer,
    comparison: Comparison = Comparison.EXACT,
    attribute: Attribute | None = None,
    fields: Mapping[str, str] | None = None,
) -> AnswerOutcome:
    """Judge one labelled attribute.

    A prediction is correct if it equals any accepted form of the gold value, character for character (folded
    comparison: after `fold`). With several gold values the predicted items must match them one to one. A truncated,
    invalid, failed or never-asked answer has no value. Words for nothing ("n/a", "None") were read as absent before
    (hpd_core/text/absence.py), except members of an enum.

    Args:
        attribute: attribute that the run asked for. Unless it is a string, accepted forms are parsed like answers:
            spellings of one number, the case of an enum's member, and "yes" for true are equal. A number in another
            unit is right as it is written, and converted: the label's as well as the answer's, rounded as the label is.
        fields: the product's texts, which decide the value of "1,500"; without them either reading counts.
    """
    items = predicted_items(answer, comparison, attribute)
    if gold.is_absent:
        return AnswerOutcome.NV if items else AnswerOutcome.NN
    if not items:
        return AnswerOutcome.VN
    accepted = [
        frozenset(
            _normalise(reading, comparison) for form in forms for reading in _readings(form, attribute, fields or {})
        )
        for forms in gold.items
    ]
    if attribute is not None and attribute.values:
        # Two synonyms of one member are one value, as in an answer.
        accepted = list(dict.fromkeys(accepted))
    if attribute is not None and attribute.type == "number" and len(answer.norms) == len(items):
        items = tuple(_rounded_to_label(item, norm, accepted) for item, norm in zip(items, answer.norms, strict=True))
    return AnswerOutcome.VC if _match_one_to_one(items, accepted) else AnswerOutcome.VW


def count(outcomes: Iterable[AnswerOutcome]) -> Counts:
    """Count the outcomes."""
    tally = Counter(outcomes)
    return Counts(*(tally[outcome] for outcome in AnswerOutcome))


def count_by_pair(judgements: Iterable[AnswerJudgement]) -> dict[tuple[str, str], Counts]:
    """Count the outcomes of every (category, attribute) pair, in order of first occurrence."""
    outcomes: dict[tuple[str, str], list[AnswerOutcome]] = {}
    for judgement in judgements:
        outcomes.setdefault((judgement.category, judgement.attribute), []).append(judgement.outcome)
    return {pair: count(pair_outcomes) for pair, pair_outcomes in outcomes.items()}


def macro_rates(counts: Iterable[Counts]) -> Rates:
    """Return mean precision, recall and F1 over the pairs that have more than NN; zeros if there is no such pair."""
    cells = np.array([pair.as_tuple() for pair in counts], dtype=np.int64).reshape(1, -1, len(AnswerOutcome))
    return Rates(*(float(rate) for rate in _macro_rates(cells)[0]))


class Resamples(NamedTuple):
    """P, R and F1 of every bootstrap resample: arrays of shape (resamples, 3)."""

    micro: _Floats
    macro: _Floats


def bootstrap(
    judgements: Sequence[AnswerJudgement],
    num_products: int,
    *,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = SEED,
) -> Resamples:
    """Resample products (not labels, because those of one product are not independent) with replacement.

    Equal `num_products` and `seed` draw the same products, so the difference of two results over the same products is a
    paired bootstrap.
    """
    if not judgements:
        return Resamples(np.zeros((num_resamples, 3)), np.zeros((num_resamples, 3)))
    pairs = {pair: index for index, pair in enumerate(count_by_pair(judgements))}
    cells = [
        pairs[judgement.category, judgement.attribute] * len(AnswerOutcome) + judgement.outcome
        for judgement in judgements
    ]
    by_product = coo_array(
        (np.ones(len(cells), dtype=np.int64), ([judgement.product for judgement in judgements], cells)),
        shape=(num_products, len(pairs) * len(AnswerOutcome)),
    )
    counts = resampled(by_product.tocsr(), num_resamples, seed).reshape(-1, len(pairs), len(AnswerOutcome))
    return Resamples(_rates(counts.sum(axis=1)), _macro_rates(counts))


def resampled(counts: Any, num_resamples: int = NUM_RESAMPLES, seed: int = SEED) -> _Integers:
    """Sum counts of products, an array of shape (products, cells), over each resample of the products: (resamples,
    cells).

    A resample of n products is a multinomial vector of weights.
    """
    generator, number = np.random.default_rng(seed), counts.shape[0]
    step = max(1, _MAX_CHUNK_ELEMENTS // number)
    sizes = (min(step, num_resamples - start) for start in range(0, num_resamples, step))
    share = np.full(number, 1 / number)
    return np.concatenate([generator.multinomial(number, share, size=size) @ counts for size in sizes])


def estimate(value: float, samples: _Floats) -> Estimate:
    """Return `value` with the 2.5th to 97.5th percentile of its resamples (of a rate, or of a difference of two)."""
    low, high = np.percentile(samples, [2.5, 97.5])
    return Estimate(value, float(low), float(high))


def estimate_rates(rates: Rates, samples: _Floats) -> RateEstimates:
    """Return `rates` with the intervals of their resamples, an array of shape (resamples, 3)."""
    values = (rates.precision, rates.recall, rates.f1)
    return RateEstimates(*(estimate(value, samples[:, column]) for column, value in enumerate(values)))


def few_products(num_products: int) -> str:
    """Return a suffix for "95% interval" if the products are too few for the bootstrap, else an empty text."""
    if num_products >= _FEW_PRODUCTS:
        return ""
    return f", too narrow: of {num_products} {'product' if num_products == 1 else 'products'} alone"


def _normalise(text: str, comparison: Comparison) -> str:
    return fold(text) if comparison is Comparison.FOLDED else text


def predicted_items(answer: Answer, comparison: Comparison, attribute: Attribute | None) -> tuple[str, ...]:
    """Return the predicted items as compared with gold; empty if the run gives no value."""
    if answer.status != "value":
        return ()
    is_number = attribute is not None and attribute.type == "number"
    return tuple(_normalise(_plain(item) if is_number else item, comparison) for item in answer.items)


def _readings(form: str, attribute: Attribute | None, fields: Mapping[str, str]) -> tuple[str, ...]:
    """Return the forms that an accepted form may take as an answer's item; unchanged if it cannot be parsed."""
    if attribute is None or attribute.is_text:
        return (form,)
    items = parse_value(attribute, json.dumps(form), closed=True, fields=fields).items or label_numbers(attribute, form)
    if not items:
        return (form,)
    if attribute.type != "number":
        return items
    # What the texts leave open stands in an answer as it is written, or as one of what it may be.
    return tuple(_plain(reading) for item in items for reading in (item, *(open_readings(item) or ())))


def _rounded_to_label(item: str, norm: str | None, accepted: Sequence[frozenset[str]]) -> str:
    """Return the accepted number that a converted number rounds to, at most 1% away; else `item`."""
    known = frozenset[str]().union(*accepted)
    if item in known or norm is None or not _DECIMAL.fullmatch(norm) or _plain(norm) == item:
        return item
    worth = Decimal(norm)
    for number in filter(_DECIMAL.fullmatch, sorted(known)):
        label = Decimal(number)
        if abs(worth - label) <= min(abs(label) / 100, Decimal(1).scaleb(int(label.as_tuple().exponent)) / 2):
            return number
    return item


def _plain(number: str) -> str:
    """Remove insignificant zeros from a plain decimal: "1.50" to "1.5", "-0" to "0".

    Drops the unit of a person's number.
    """
    number = plain_number(number)
    if not _DECIMAL.fullmatch(number):
        return number
    text = number.rstrip("0").rstrip(".") if "." in number else number
    return "0" if text == "-0" else text


def _match_one_to_one(items: Sequence[str], accepted: Sequence[frozenset[str]]) -> bool:
    """Return whether items and gold values can be matched one to one, with every item accepted by its gold value."""
    if len(items) != len(accepted):
        return False
    if len(items) <= 1:  # as most are
        return all(item in forms for item, forms in zip(items, accepted, strict=True))
    fitting = csr_array([[item in forms for forms in accepted] for item in items])
    return bool((maximum_bipartite_matching(fitting, perm_type="column") >= 0).all())


def _rates(counts: npt.NDArray[Any]) -> _Floats:
    """Compute precision, recall and F1: (..., 5) counts -> (..., 3) rates."""
    nv, vn, vc, vw = (
        counts[..., outcome] for outcome in (AnswerOutcome.NV, AnswerOutcome.VN, AnswerOutcome.VC, AnswerOutcome.VW)
    )
    return rates_of(vc, nv + vc + vw, vn + vc + vw)


def rates_of(right: npt.NDArray[Any], given: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> _Floats:
    """Compute precision, recall and F1 of (...) counts: (..., 3), 0 where nothing is given or wanted."""
    # 2 R / (G + W) is 2 P R / (P + R) in a form that needs no case for P + R = 0.
    return np.stack(
        [right / np.maximum(given, 1), right / np.maximum(wanted, 1), 2 * right / np.maximum(given + wanted, 1)],
        axis=-1,
    )


def _macro_rates(counts: npt.NDArray[Any]) -> _Floats:
    """Average over the pairs that have more than NN: (resamples, pairs, 5) counts -> (resamples, 3) means."""
    counted = counts[..., AnswerOutcome.NV :].sum(axis=-1) > 0  # (resamples, pairs)
    num_counted = np.maximum(counted.sum(axis=1), 1)  # (resamples,)
    means: _Floats = (_rates(counts) * counted[..., None]).sum(axis=1) / num_counted[:, None]
    return means


_NUM_BINS = 10


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Values with a probability in [low, high), or [low, 1]."""

    low: float
    high: float
    count: int
    mean_confidence: float
    share_right: float


@dataclass(frozen=True, slots=True)
class Reliability:
    """A reliability curve.

    Attributes:
        ece: expected calibration error: mean distance between share of right values and mean probability, over the
            values.
        bins: ten of equal width; those without values are left out.
    """

    ece: float
    bins: tuple[ReliabilityBin, ...]


def reliability(pairs: Iterable[tuple[float, bool]]) -> Reliability | None:
    """Compute the curve from (probability, is right) pairs; None without pairs."""
    known = list(pairs)
    if not known:
        return None
    bins = []
    edges = [number / _NUM_BINS for number in range(_NUM_BINS + 1)]
    for low, high in itertools.pairwise(edges):
        inside = [pair for pair in known if low <= pair[0] and (pair[0] < high or high == 1)]
        if inside:
            mean = sum(probability for probability, _ in inside) / len(inside)
            right = sum(is_right for _, is_right in inside) / len(inside)
            bins.append(ReliabilityBin(low, high, len(inside), mean, right))
    ece = sum(each.count * abs(each.mean_confidence - each.share_right) for each in bins) / len(known)
    return Reliability(ece, tuple(bins))
