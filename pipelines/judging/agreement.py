"""Agreement of two judgements of the same answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipelines.comparing.answer_changes import wilson
from pipelines.judging.classes import RIGHT, Class
from pipelines.quality.run_answers import RowKey
from pipelines.quality.scoring import Estimate

Answers = Mapping[RowKey, Mapping[str, Class | None]]


@dataclass(frozen=True, slots=True)
class Pair:
    """Number of answers with this class by the judge and that one by the other."""

    judge: str
    other: str
    number: int


@dataclass(frozen=True, slots=True)
class JudgeAgreement:
    """Agreement of two judgements, the judge's first.

    Attributes:
        share: share of equally judged answers, with its 95% interval (Wilson's, as if answers of one product were
            independent). None without answers.
        kappa: Cohen's kappa: 1 full agreement, 0 chance agreement; None if chance alone would always agree.
        pairs: answers by both judgements, most frequent first.
    """

    num_answers: int
    share: Estimate | None
    kappa: float | None
    pairs: Sequence[Pair]

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> JudgeAgreement:
        """Compute the agreement on answers judged twice."""
        counts = Counter(pairs)
        number = counts.total()
        if not number:
            return cls(0, None, None, ())
        alike = sum(count for (first, second), count in counts.items() if first == second) / number
        firsts, seconds = Counter[str](), Counter[str]()
        for (first, second), count in counts.items():
            firsts[first] += count
            seconds[second] += count
        chance = sum(firsts[each] * seconds[each] for each in firsts) / number**2
        kappa = (alike - chance) / (1 - chance) if chance < 1 else None
        return cls(number, wilson(alike, number), kappa, [Pair(*pair, count) for pair, count in counts.most_common()])


def with_exact_match(classes: Answers, exact: Mapping[tuple[RowKey, str], bool]) -> JudgeAgreement:
    """Compare the judge with exact match, right or wrong, on the answers that gold labels and the judge decides."""
    return JudgeAgreement.of(
        (_word(found in RIGHT), _word(exact[key, name]))
        for key, answers in classes.items()
        for name, found in answers.items()
        if found is not None and (key, name) in exact
    )


def of_judges(first: Answers, second: Answers, *, right_or_wrong: bool) -> JudgeAgreement:
    """Compare two judges on the answers that both decide: the same class, or right or wrong alike."""
    pairs = (
        (found, other)
        for key, answers in first.items()
        for name, found in answers.items()
        if found is not None and (other := second.get(key, {}).get(name)) is not None
    )
    if right_or_wrong:
        return JudgeAgreement.of((_word(found in RIGHT), _word(other in RIGHT)) for found, other in pairs)
    return JudgeAgreement.of(pairs)


def _word(is_right: bool) -> str:
    return "right" if is_right else "wrong"
