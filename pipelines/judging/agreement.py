"""How far two judgements of the same answers agree."""

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
    """Answers that the judge judged one way and the other one another way, or alike."""

    judge: str
    other: str
    number: int


@dataclass(frozen=True, slots=True)
class JudgeAgreement:
    """Of two judgements, the judge's first.

    Attributes:
        share: of answers that both judge alike, with its 95% interval (Wilson's; answers of one product taken as
            independent); None without answers.
        kappa: Cohen's: 1 all alike, 0 as often as by chance; None where chance alone would agree always.
        pairs: answers by both judgements, the most frequent first.
    """

    num_answers: int
    share: Estimate | None
    kappa: float | None
    pairs: Sequence[Pair]

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> JudgeAgreement:
        """Of answers judged twice."""
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
    """Right or wrong, by the judge and by exact match, on the answers that gold labels and the judge decides."""
    return JudgeAgreement.of(
        (_word(found in RIGHT), _word(exact[key, name]))
        for key, answers in classes.items()
        for name, found in answers.items()
        if found is not None and (key, name) in exact
    )


def of_judges(first: Answers, second: Answers, *, right_or_wrong: bool) -> JudgeAgreement:
    """Of two judges, on the answers that both decide: the same class, or right or wrong alike."""
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
