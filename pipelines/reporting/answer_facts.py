"""Facts by attribute and by category, from the sums over a run's answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipelines.errors import UsageError
from pipelines.job.run import Run
from pipelines.quality.evaluation import Evaluation, evaluate_run
from pipelines.quality.gold import GoldProduct, read_gold
from pipelines.quality.scoring import Counts
from pipelines.reporting.cost_facts import Account
from pipelines.reporting.table_scan import CERTAIN, AnswerSum, AnswerSums, CategorySums
from pipelines.reporting.value_facts import AttributeFacts, CategoryFacts, ReportQuality, ReportVerdict

Labels = Mapping[tuple[str, str], Counts]
"""Gold counts of each (category, attribute)."""


def attribute_facts(
    answers: AnswerSums, labels: Labels, *, is_decided: bool
) -> tuple[tuple[AttributeFacts, ...], tuple[AttributeFacts, ...]]:
    """Return the facts over all categories, and in each category. Both are in order of descending answers."""
    names: defaultdict[str, AnswerSum] = defaultdict(AnswerSum)
    counts: defaultdict[str, Counts] = defaultdict(Counts)
    categories: defaultdict[str, int] = defaultdict(int)
    in_each = []
    for (category, attribute), each in answers.items():
        here = labels.get((category, attribute), Counts())
        in_each.append(_attribute(attribute, category, 1, each, here, is_decided))
        names[attribute] += each
        counts[attribute] += here
        categories[attribute] += 1
    over_all = [
        _attribute(name, None, categories[name], each, counts[name], is_decided) for name, each in names.items()
    ]
    return tuple(sorted(over_all, key=_rank)), tuple(sorted(in_each, key=_rank))


def _rank(each: AttributeFacts) -> tuple[int, str, str]:
    return -each.answers, each.attribute, each.category or ""


def _attribute(
    name: str, category: str | None, num_categories: int, each: AnswerSum, labels: Counts, is_decided: bool
) -> AttributeFacts:
    rates = labels.rates if labels.num_labels else None
    return AttributeFacts(
        attribute=name,
        category=category,
        num_categories=num_categories,
        **each.shown(is_decided=is_decided),
        certain=each.likely_right,
        num_labels=labels.num_labels,
        precision=rates.precision if rates and labels.nv + labels.vc + labels.vw else None,
        recall=rates.recall if rates and labels.vn + labels.vc + labels.vw else None,
        f1=rates.f1 if rates and labels.num_labels > labels.nn else None,
    )


def category_facts(
    sums: Mapping[str, CategorySums],
    answers: AnswerSums,
    account: Account | None,
    f1: Mapping[str, float],
    *,
    is_decided: bool,
) -> tuple[CategoryFacts, ...]:
    """Return the categories, most expensive first; those without seconds by their products."""
    total = sum(each.engine_seconds or 0.0 for each in sums.values())
    weights = sum(each.usd_weight or 0.0 for each in sums.values())
    useful = account.money.useful if account is not None and account.money is not None else None
    answered: defaultdict[str, AnswerSum] = defaultdict(AnswerSum)
    for (category, _), part in answers.items():
        answered[category] += part
    found = []
    for name, each in sums.items():
        share = each.engine_seconds / total if each.engine_seconds is not None and total else None
        usd = None
        if useful is not None and each.usd_weight is not None:
            # Nothing was paid where nothing weighs: a price of zero.
            usd = useful * each.usd_weight / weights if weights else 0.0
        counts = answered[name]
        found.append(
            CategoryFacts(
                category=name,
                products=each.products,
                decoded=each.products - each.carried,
                dead_letters=each.dead_letters,
                engine_seconds=each.engine_seconds,
                share=share,
                usd=usd,
                priced=each.priced,
                **counts.shown(is_decided=is_decided),
                # Without a value, none is doubtful; with values of which nothing is known, nobody can say.
                doubtful=counts.doubtful if counts.scored or not counts.values else None,
                ungrounded=counts.ungrounded if counts.sought or not counts.values else None,
                f1=f1.get(name),
            )
        )
    return tuple(sorted(found, key=lambda each: (-(each.engine_seconds or 0.0), -each.products, each.category)))


@dataclass(frozen=True, slots=True)
class GoldScores:
    """Scores of a run; empty without gold, or if nothing could be scored.

    Attributes:
        products: all labelled products.
        by_category: exact-match F1; `by_attribute`: label counts of each (category, attribute).
        notes: caveats about the scores.
    """

    quality: ReportQuality | None = None
    products: Sequence[GoldProduct] = ()
    by_category: Mapping[str, float] = field(default_factory=dict)
    by_attribute: Mapping[tuple[str, str], Counts] = field(default_factory=dict)
    notes: Sequence[str] = ()


def read_gold_scores(run: Run, gold: str) -> GoldScores:
    """Score the run against gold.

    Returns no scores, and a note, in two cases. An unfinished run may not have reached any labelled product yet.
    Dead-lettered rows without an id cannot be told apart.

    Raises `UsageError` if the gold file is not one, or does not belong to a finished run.
    """
    products = read_gold(gold, run.schemas)
    uri, is_finished, totals = run.folder.uri, run.is_finished, run.status.totals
    try:
        evaluation = evaluate_run(uri, gold)
    except UsageError as error:
        if totals.rows and not totals.products:
            return GoldScores(products=products, notes=["Not scored: all rows are dead-lettered."])
        if is_finished:
            raise
        return GoldScores(products=products, notes=[f"Not scored yet: {error}."])
    unfinished = [] if is_finished else [f"{uri} is not finished (it has no manifest.json yet)"]
    return GoldScores(
        quality=_quality(evaluation),
        products=products,
        by_category={score.category: score.rates.f1 for score in evaluation.exact.by_category},
        by_attribute={(score.category, score.attribute): score.counts for score in evaluation.exact.by_attribute},
        notes=[f"{note}." for note in evaluation.notes if note not in unfinished],
    )


def _quality(evaluation: Evaluation) -> ReportQuality:
    exact = evaluation.exact
    of_probability = evaluation.reliability_of_probability
    return ReportQuality(
        gold=evaluation.gold,
        num_products=evaluation.num_products,
        num_labels=exact.counts.num_labels,
        precision=exact.micro.precision,
        recall=exact.micro.recall,
        f1=exact.micro.f1,
        hallucination_rate=exact.hallucination_rate,
        reliability=evaluation.reliability or of_probability,
        reliability_of="probability" if evaluation.reliability is None else "confidence",
        ece_of_probability=of_probability.ece if of_probability is not None else None,
    )


def total_of(answers: AnswerSums) -> AnswerSum:
    """Sum the counts over all pairs."""
    total = AnswerSum()
    for each in answers.values():
        total += each
    return total


def verdict_of(answers: AnswerSum, products: int, precision: float | None) -> ReportVerdict:
    """Return the verdict on all answers of a run.

    Args:
        products: number of extracted products.
        precision: requested precision; None if none was requested.
    """
    is_decided = precision is not None or answers.decided > 0
    headline, advice = _decided(answers, precision) if is_decided else _undecided(answers, products)
    return ReportVerdict(
        headline=headline,
        advice=advice,
        **answers.shown(is_decided=is_decided),
        precision=precision,
        certain=answers.likely_right,
        certain_from=CERTAIN,
        expected_right=answers.expected_right if answers.calibrated else None,
        corrected=answers.corrected,
    )


def _decided(answers: AnswerSum, precision: float | None) -> tuple[str, str]:
    at = f" at {100 * precision:g}% precision" if precision is not None else ""
    headline = f"{answers.accepted:,} of {_values(answers.values)} can be taken{at}; {answers.review:,} to review."
    if not answers.accepted and answers.review:
        advice = (
            "Too few products are labelled to promise it, or too few of their values are right. `hpd review` labels "
            "more, and `hpd evaluate RUN --reviews` learns from them."
        )
    elif answers.review:
        advice = "`hpd review` shows those to review, the least certain first."
    else:
        advice = "Nothing is left to look at."
    if answers.undecided:
        return (
            headline,
            f"{_values(answers.undecided)} without a decision: `hpd evaluate RUN --calibrate` makes it. {advice}",
        )
    return headline, advice


def _undecided(answers: AnswerSum, products: int) -> tuple[str, str]:
    """Return headline and advice without a precision target: what was found, without an implied promise."""
    found = f"{_values(answers.values)} found in {products:,} product{'' if products == 1 else 's'}"
    if not answers.values:
        return f"{found}.", "The texts may state nothing of what the schemas ask for."
    if answers.calibrated and answers.calibrated + answers.said >= answers.values:
        # What a person said is right, and has no confidence.
        right = answers.expected_right + answers.values - answers.calibrated
        # The calibration may be the shipped adapter's, of other catalogs.
        headline = f"{found}; about {right:,.0f} of them are right, if these are products like the calibration's."
        return headline, (
            "`hpd evaluate RUN --gold GOLD --calibrate --out FILE` makes one of labels of your own. `hpd evaluate RUN "
            "--apply --precision 0.95` says which values can be taken, by this one or with `--calibration FILE`; "
            "`calibration` and `accept.precision` in the job say so of the next run."
        )
    if answers.scored:
        share = answers.certain / answers.values
        headline = f"{found}; the model itself gives {share:.0%} of them a probability of {CERTAIN} or more."
    else:
        headline = f"{found}."
    return headline, (
        "That is no promise: `hpd evaluate RUN --calibrate` learns from labelled products how often the model is "
        "right, and which values can be taken at a precision of your choice."
    )


def _values(count: int) -> str:
    return f"{count:,} value{'' if count == 1 else 's'}"
