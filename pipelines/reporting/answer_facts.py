"""Facts by attribute and by category, from the sums over a run's answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from pipelines.quality.scoring import Counts
from pipelines.reporting.answer_sums import AnswerSum, AnswerSums
from pipelines.reporting.facts.cost import Account
from pipelines.reporting.facts.values import AttributeFacts, CategoryFacts
from pipelines.reporting.table_scan import CategorySums

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
    for (category, attribute), each in answers.by_pair.items():
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
        values=each.values,
        absent=each.absent,
        failed=each.failed,
        accepted=each.accepted if is_decided else None,
        review=each.review if is_decided else None,
        certain=each.certain if each.scored else None,
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
    for (category, _), part in answers.by_pair.items():
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
                values=counts.values,
                absent=counts.absent,
                failed=counts.failed,
                # Without a value, none is doubtful; with values of which nothing is known, nobody can say.
                doubtful=each.doubtful if each.scored or not counts.values else None,
                ungrounded=each.ungrounded if each.sought or not counts.values else None,
                accepted=counts.accepted if is_decided else None,
                review=counts.review if is_decided else None,
                f1=f1.get(name),
            )
        )
    return tuple(sorted(found, key=lambda each: (-(each.engine_seconds or 0.0), -each.products, each.category)))
