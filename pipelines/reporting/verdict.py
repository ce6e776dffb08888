"""The verdict in one sentence: how much of the run can be accepted, and what to do about the rest."""

from __future__ import annotations

from pipelines.reporting.answer_sums import CERTAIN, AnswerSum
from pipelines.reporting.facts.values import ReportVerdict


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
        values=answers.values,
        absent=answers.absent,
        failed=answers.failed,
        accepted=answers.accepted if is_decided else None,
        review=answers.review if is_decided else None,
        precision=precision,
        certain=answers.certain if answers.scored else None,
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
            "more, and `hpd calibrate --reviews` learns from them."
        )
    elif answers.review:
        advice = "`hpd review` shows those to review, the least certain first."
    else:
        advice = "Nothing is left to look at."
    if answers.undecided:
        return headline, f"{_values(answers.undecided)} without a decision: `hpd calibrate` makes it. {advice}"
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
            "`hpd calibrate RUN --gold GOLD --out FILE` makes one of labels of your own. `hpd calibrate RUN --apply "
            "--precision 0.95` says which values can be taken, by this one or with `--calibration FILE`; `calibration` "
            "and `accept.precision` in the job say so of the next run."
        )
    if answers.scored:
        share = answers.certain / answers.values
        headline = f"{found}; the model itself gives {share:.0%} of them a probability of {CERTAIN} or more."
    else:
        headline = f"{found}."
    return headline, (
        "That is no promise: `hpd calibrate` learns from labelled products how often the model is right, and which "
        "values can be taken at a precision of your choice."
    )


def _values(count: int) -> str:
    return f"{count:,} value{'' if count == 1 else 's'}"
