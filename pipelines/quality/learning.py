"""Learning of a calibration from labelled answers.

    score    ridge-regularised logistic regression on the features of an answer. An attribute, and an attribute of a
             category, have weights of their own, which the penalty holds near 0 if labels are few
    curve    isotonic or Platt, on scores of answers that the score was not fitted on: whichever has the lower
             log loss on folds that neither was fitted on
    counts   by confidences of answers that neither score nor curve was fitted on

Products are assigned to folds by a hash of their names, so that the order of labels does not change the calibration.
If the labels are of several catalogs, and what is learned is for others, a catalog is in one fold as a whole.
"""

from __future__ import annotations

import datetime
import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, hstack
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from pipelines.errors import UsageError
from pipelines.quality.answer_features import KINDS, NUMBERS, LabelledAnswer, Score
from pipelines.quality.calibration_file import (
    THRESHOLDS,
    CalibratedModel,
    Calibration,
    Curve,
    Isotonic,
    LabelledAttribute,
    Platt,
    Taken,
)
from pipelines.quality.scoring import Reliability, reliability

NUM_FOLDS = 5
MIN_VALUES = 30
MIN_PRODUCTS = 10
MIN_RIGHT = 5

_PENALTY = 3.0  # on half a squared weight, against log losses summed; numbers are of unit variance
_MAX_ITERATIONS = 500

_Floats = npt.NDArray[np.float64]
Answers = Sequence[LabelledAnswer]


def learn(
    answers: Answers, model: CalibratedModel, about: Mapping[str, Any] | None = None, *, now: str | None = None
) -> Calibration:
    """Learn the calibration of `answers`.

    Args:
        about: notes to store beside the numbers of labels and folds, such as where the labels are from.
        now: the time to store; by default the clock's.

    Raises `UsageError` for too few labels.
    """
    answers = one_of_each(answers)
    _check(answers)
    with threadpool_limits(1):  # small sums: several threads take longer
        score, curve = _fit(answers)
        crossed = cross_fitted(answers, lambda known, held: _confidences(_fit(known), held))
    notes = {
        "created_at": now or datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "labels": _describe_labels(answers),
        "folds": NUM_FOLDS,
        **_describe_fit(answers, crossed, curve),
        **(about or {}),
    }
    counts = _count(answers, crossed)
    return Calibration(model=model, score=score, curve=curve, about=notes, **counts)


def one_of_each(answers: Answers) -> Answers:
    """Keep one label for each product and attribute, because repeated labels add nothing.

    If they disagree, the answer counts as wrong. Sorted, because sums of floats depend on their order.
    """
    found: dict[tuple[str, tuple[str, str]], LabelledAnswer] = {}
    for each in sorted(answers, key=lambda each: (each.product, each.pair, each.is_right, each.answer.text or "")):
        found.setdefault((each.product, each.pair), each)
    return list(found.values())


def _check(answers: Answers) -> None:
    catalogs = {each.catalog for each in answers if each.catalog is not None}
    if 0 < len(catalogs) < NUM_FOLDS:
        raise UsageError(f"labels of {len(catalogs)} catalogs: it takes {NUM_FOLDS} to learn what holds in others")
    right, products = sum(each.is_right for each in answers), len({each.product for each in answers})
    if len(answers) < MIN_VALUES or products < MIN_PRODUCTS or right < MIN_RIGHT:
        raise UsageError(
            f"{len(answers)} labelled values of {products} products, {right} of them right: too few to learn from. It "
            f"takes {MIN_VALUES} of {MIN_PRODUCTS} products, {MIN_RIGHT} of them right; some hundreds of an attribute "
            "for a promise. Label more products (hpd label, hpd review)"
        )


def deal(answers: Answers, salt: str = "") -> npt.NDArray[np.int64]:
    """Return the fold of each answer. Folds have equally many products, or catalogs."""
    wholes = [each.catalog or each.product for each in answers]
    shuffled = sorted(set(wholes), key=lambda name: hashlib.sha256(f"{salt}:{name}".encode()).digest())
    folds = {whole: place % NUM_FOLDS for place, whole in enumerate(shuffled)}
    return np.array([folds[whole] for whole in wholes])


def cross_fitted(answers: Answers, apply: Callable[[Answers, Answers], list[float]], salt: str = "") -> list[float]:
    """Return for every answer the result of `apply(other folds, its fold)`."""
    folds = deal(answers, salt)
    found = [math.nan] * len(answers)
    for fold in range(NUM_FOLDS):
        held = [place for place, own in enumerate(folds) if own == fold]
        known = [each for each, own in zip(answers, folds, strict=True) if own != fold]
        for place, value in zip(held, apply(known, [answers[place] for place in held]), strict=True):
            found[place] = value
    return found


def _confidences(fitted: tuple[Score, Curve], answers: Answers) -> list[float]:
    score, curve = fitted
    return [curve.of(score.of(each.answer)) for each in answers]


def _fit(answers: Answers) -> tuple[Score, Curve]:
    # Dealt otherwise than by who asks for confidences of a whole fold: its products are not among these.
    scores = np.array(cross_fitted(answers, _scores, "scores"))
    return fit_score(answers), _better_curve(answers, scores)


def _scores(known: Answers, held: Answers) -> list[float]:
    score = fit_score(known)
    return [score.of(each.answer) for each in held]


def _better_curve(answers: Answers, scores: _Floats) -> Curve:
    labels = np.array([each.is_right for each in answers], dtype=np.float64)
    losses = _curve_losses(answers, scores, labels)
    return _CURVES[min(losses, key=lambda kind: losses[kind])](scores, labels)


def _curve_losses(answers: Answers, scores: _Floats, labels: _Floats) -> dict[str, float]:
    """Return the log loss of each kind of curve on folds that it was not fitted on."""
    folds = deal(answers, "curve")
    losses = {}
    for kind, fit in _CURVES.items():
        found = np.zeros(len(answers))
        for fold in range(NUM_FOLDS):
            curve = fit(scores[folds != fold], labels[folds != fold])
            found[folds == fold] = [curve.of(score) for score in scores[folds == fold]]
        losses[kind] = log_loss(found, labels)
    return losses


def log_loss(probabilities: Sequence[float] | _Floats, labels: Sequence[bool] | _Floats) -> float:
    """Compute the mean negative log likelihood, in nats."""
    sure = np.clip(np.asarray(probabilities, dtype=np.float64), 1e-6, 1 - 1e-6)
    is_right = np.asarray(labels, dtype=np.float64)
    return float(-np.mean(is_right * np.log(sure) + (1 - is_right) * np.log1p(-sure)))


def fit_score(answers: Answers) -> Score:
    """Fit the score that best separates right and wrong `answers`, with small weights."""
    labels = np.array([each.is_right for each in answers])
    if labels.all() or not labels.any():
        # A fold of a small set; nothing tells apart what is all alike.
        return Score(
            intercept=0.0, numbers=dict.fromkeys(NUMBERS, 0.0), kinds={name: {} for name in KINDS}, attributes={}
        )
    numbers = np.array([each.answer.numbers for each in answers])
    mean, size = numbers.mean(axis=0), numbers.std(axis=0)
    size[size < 1e-9] = np.inf  # what is the same everywhere says nothing
    columns: dict[tuple[str, ...], int] = {}
    places = [[columns.setdefault(key, len(columns)) for key in _kind_keys(each)] for each in answers]
    ends = np.arange(len(answers) + 1) * len(places[0])
    kinds = csr_array((np.ones(ends[-1]), np.ravel(places), ends), shape=(len(answers), len(columns)))
    fitted = LogisticRegression(C=1 / _PENALTY, max_iter=_MAX_ITERATIONS).fit(
        hstack([csr_array((numbers - mean) / size), kinds], format="csr"), labels
    )
    weights = fitted.coef_[0]
    of_numbers = weights[: len(NUMBERS)] / size
    of_kinds = {key: float(weights[len(NUMBERS) + place]) for key, place in columns.items()}
    return Score(
        intercept=float(fitted.intercept_[0] - of_numbers @ mean),
        numbers=dict(zip(NUMBERS, map(float, of_numbers), strict=True)),
        kinds={name: {key[1]: of_kinds[key] for key in sorted(of_kinds) if key[0] == name} for name in KINDS},
        attributes=_by_category({key[1:]: of_kinds[key] for key in sorted(of_kinds) if len(key) == 3}),
    )


def _kind_keys(each: LabelledAnswer) -> list[tuple[str, ...]]:
    of_pair = [("pair", *each.pair)] if each.catalog is None else []
    return [*zip(KINDS, each.answer.kinds, strict=True), *of_pair]


def _by_category(entries: Mapping[tuple[str, ...], Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for (category, attribute), entry in entries.items():
        found[category][attribute] = entry
    return dict(found)


def fit_platt(scores: _Floats, labels: _Floats) -> Platt:
    """Fit a logistic curve with Platt's targets, which keep it away from 0 and 1; constant if it would fall."""
    num_right, num = float(labels.sum()), len(labels)
    high, low = (num_right + 1) / (num_right + 2), 1 / (num - num_right + 2)
    targets = np.where(labels > 0.5, high, low)
    # A target between 0 and 1 is both answers, weighted.
    both = np.concatenate([scores, scores])[:, None]
    is_right = np.repeat([1, 0], num)
    fitted = LogisticRegression(C=1e6, max_iter=_MAX_ITERATIONS).fit(
        both, is_right, sample_weight=np.concatenate([targets, 1 - targets])
    )
    slope = float(fitted.coef_[0][0])
    if slope <= 0:
        share = float(targets.mean())
        return Platt(slope=0.0, intercept=math.log(share / (1 - share)))
    return Platt(slope=slope, intercept=float(fitted.intercept_[0]))


def fit_isotonic(scores: _Floats, labels: _Floats) -> Isotonic:
    """Fit a rising curve, kept away from 0 and 1 by as much as one more label of the other kind would."""
    edge = 1 / (len(labels) + 2)
    fitted = IsotonicRegression(y_min=edge, y_max=1 - edge).fit(scores, labels)
    return Isotonic(scores=fitted.X_thresholds_.tolist(), probabilities=fitted.y_thresholds_.tolist())


_CURVES: Mapping[str, Callable[[_Floats, _Floats], Curve]] = {"platt": fit_platt, "isotonic": fit_isotonic}


def _count(answers: Answers, confidences: Sequence[float]) -> dict[str, Any]:
    """Count by attribute, or by catalog, the values at or above each threshold, and the right ones of them."""
    found: dict[Any, list[tuple[float, bool]]] = defaultdict(list)
    definitions = {each.pair: each.definition for each in answers}
    for each, confidence in zip(answers, confidences, strict=True):
        found[each.catalog or each.pair].append((confidence, each.is_right))
    steps = {key: _steps(found[key]) for key in sorted(found)}
    if answers[0].catalog is not None:
        return {"attributes": {}, "catalogs": steps}
    labelled = {pair: LabelledAttribute(definition=definitions[pair], taken=taken) for pair, taken in steps.items()}
    return {"attributes": _by_category(labelled)}


def _steps(known: Sequence[tuple[float, bool]]) -> tuple[Taken, ...]:
    taken = [[is_right for confidence, is_right in known if confidence >= low] for low in THRESHOLDS]
    return tuple(Taken(len(each), sum(each)) for each in taken)


def _describe_labels(answers: Answers) -> dict[str, int]:
    return {
        "products": len({each.product for each in answers}),
        "values": len(answers),
        "right": sum(each.is_right for each in answers),
        "attributes": len({each.pair for each in answers}),
    }


def _describe_fit(answers: Answers, crossed: Sequence[float], curve: Curve) -> dict[str, Any]:
    labels = [each.is_right for each in answers]
    before = [each.answer.probability or 0.0 for each in answers]
    folds, after = deal(answers), curve_of(crossed, labels)
    return {
        "curve": curve.kind,
        "log_loss": {
            "before": log_loss(before, labels),
            "after": log_loss(crossed, labels),
            "by_fold": [
                log_loss(np.array(crossed)[folds == fold], np.array(labels)[folds == fold]) for fold in range(NUM_FOLDS)
            ],
        },
        "ece": {"before": curve_of(before, labels).ece, "after": after.ece},
        "reliability": [asdict(each) for each in after.bins],
    }


def curve_of(probabilities: Sequence[float], labels: Sequence[bool]) -> Reliability:
    """Return the reliability curve of some answers, at least one."""
    found = reliability(zip(probabilities, labels, strict=True))
    assert found is not None
    return found
