"""Answers that differ, with their places in the text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from hpd_core import Evidence
from pipelines.errors import UsageError
from pipelines.evaluating.joined_runs import AnswerPlace, Sampled
from pipelines.job.run import Run
from pipelines.job.source_texts import Key, SourceText, Wanted, cut, marks_of, read_texts
from pipelines.quality import scoring
from pipelines.quality.answer_features import answer_probability
from pipelines.quality.evaluation import judge_products
from pipelines.quality.gold import read_gold
from pipelines.quality.run_answers import RowKey, read_run
from pipelines.quality.scoring import AnswerJudgement, Comparison, RateEstimates
from pipelines.reporting.sample_facts import FieldText
from pipelines.reporting.table_scan import Pairs
from pipelines.store.run_tables import Place
from pipelines.store.tables import stored_evidence

Right = Literal["a", "b", "both", "neither"]

_COLUMNS = (
    *("source_file", "source_row", "category", "attribute", "value_index", "value_raw", "status"),
    *("evidence", "num_tokens", "logprob_mean", "carried_from", "input_hash"),
    *("probability", "confidence", "decision", "source"),
)


@dataclass(frozen=True, slots=True)
class ShownItem:
    """A value, or the model's invalid output; None if it wrote nothing.

    Attributes:
        evidence: places of the value; empty: nowhere in the text; None: nothing to look for (no value, or a truth
            value, which is a conclusion).
    """

    text: str | None
    evidence: Sequence[Evidence] | None

    @property
    def is_ungrounded(self) -> bool:
        """Whether it is a value that stands nowhere in the text."""
        return self.evidence is not None and not self.evidence


@dataclass(frozen=True, slots=True)
class Answered:
    """A run's full answer.

    Attributes:
        probability: the model's own, of the whole answer; None if the run lacks it.
        confidence, decision: as in the tables; None if the run has none.
        is_reviewed: whether a person gave it.
        carried_from: the earlier run that decoded it, if this one did not.
    """

    status: str
    items: Sequence[ShownItem]
    probability: float | None
    confidence: float | None
    decision: str | None
    is_reviewed: bool
    carried_from: str | None


@dataclass(frozen=True, slots=True)
class ChangeExample:
    """An attribute that the two runs answer differently.

    Attributes:
        is_text_changed: whether the runs read different texts.
        fields: the text that A read; a segment's `values` hold 0 for A's value and 1 for B's. None if the catalog is
            gone or was changed.
        fields_b: fields of a changed text that B read differently; None if they cannot be read.
        gold, right: None without a label.
    """

    product_id: str
    category: str
    attribute: str
    a: Answered
    b: Answered
    is_text_changed: bool = False
    fields: Sequence[FieldText] | None = None
    fields_b: Sequence[FieldText] | None = None
    gold: str | None = None
    right: Right | None = None


def read_examples(a: Run, b: Run, sampled: Sequence[Sampled]) -> list[ChangeExample]:
    """Read the sampled answers in full, in the same order. Raises `UsageError` if their parts cannot be read."""
    answers_a, texts_a, hashes_a = _read(a, {each.a: each.category for each in sampled})
    answers_b, texts_b, hashes_b = _read(b, {each.b: each.category for each in sampled})
    examples = []
    for each in sampled:
        answers = (
            _answered(answers_a[each.a.key][each.attribute], a.booleans),
            _answered(answers_b[each.b.key][each.attribute], b.booleans),
        )
        example = ChangeExample(each.product_id, each.category, each.attribute, *answers)
        before, after = texts_a.get(each.a.key), texts_b.get(each.b.key)
        if hashes_a[each.a.key] == hashes_b[each.b.key]:
            text = after if before is None else before  # from either catalog, as the text is the same
            examples.append(replace(example, fields=None if text is None else _highlighted(text, answers)))
        else:
            examples.append(_of_changed_text(example, before, after))
    return examples


def _of_changed_text(
    example: ChangeExample, before: Mapping[str, SourceText] | None, after: Mapping[str, SourceText] | None
) -> ChangeExample:
    """Return the example with both texts, if they can be read; B's without the fields that equal A's."""
    fields = None if before is None else _highlighted(before, (example.a, None))
    if after is not None:
        known = before or {}
        other = {name: text for name, text in after.items() if name not in known or known[name].text != text.text}
        return replace(example, is_text_changed=True, fields=fields, fields_b=_highlighted(other, (None, example.b)))
    return replace(example, is_text_changed=True, fields=fields)


def _highlighted(fields: Mapping[str, SourceText], answers: Sequence[Answered | None]) -> list[FieldText]:
    """Return the text with the places of A's and B's values; an answer is None if its run read another text."""
    places = [[place for item in each.items for place in item.evidence or ()] if each else [] for each in answers]
    marks = marks_of(fields, places)
    return [FieldText(name, cut(field.text, marks[name])) for name, field in fields.items()]


def _read(
    side: Run, wanted: Mapping[AnswerPlace, str]
) -> tuple[dict[Place, dict[str, list[dict[str, Any]]]], dict[Key, dict[str, SourceText]], dict[Place, str]]:
    """Read the answers of some rows with their categories, their texts as far as the catalog has them, and the texts'
    hashes."""
    answers = side.reviewed.answers_of(_COLUMNS, {each.key for each in wanted}, {each.shard for each in wanted})
    hashes = {key: next(iter(found.values()))[0]["input_hash"] for key, found in answers.items()}
    rows = [Wanted(*each.key, category, hashes[each.key]) for each, category in wanted.items()]
    return answers, read_texts(side.plan, side.input_settings, rows)[0], hashes


def _answered(rows: list[dict[str, Any]], booleans: Pairs) -> Answered:
    first = rows[0]
    is_boolean = (first["category"], first["attribute"]) in booleans
    return Answered(
        first["status"],
        [
            ShownItem(
                row["value_raw"],
                None if row["evidence"] is None or is_boolean else [stored_evidence(each) for each in row["evidence"]],
            )
            for row in rows
        ],
        answer_probability(first),
        first["confidence"],
        first["decision"],
        first["source"] == "review",
        first["carried_from"],
    )


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Labelled answers in which the runs differ, by which is right (exactly)."""

    category: str
    attribute: str
    a: int
    b: int
    both: int
    neither: int


@dataclass(frozen=True, slots=True)
class GoldQuality:
    """Both runs against a gold file.

    Attributes:
        num_products: number of gold products that both have; only they are scored.
        num_labels: number of their labelled attributes.
        rates: exact, then folded.
        verdicts: attributes with differing answers, most differences first.
        made_up_a, made_up_b: shares of the absent ones that got a value.
    """

    gold: str
    num_gold_products: int
    num_products: int
    num_labels: int
    rates: Sequence[PairedRates]
    verdicts: Sequence[Verdicts]
    made_up_a: float | None
    made_up_b: float | None


@dataclass(frozen=True, slots=True)
class Label:
    """Gold value of an answer, as text, and which run is right."""

    gold: str
    right: Right


def compare_quality(a: Run, b: Run, gold_path: str) -> tuple[GoldQuality, dict[tuple[RowKey, str], Label]]:
    """Return the scores of both, and the labels by A's row and attribute.

    Raises `UsageError` if the gold file cannot be read or does not belong to the runs.
    """
    gold = read_gold(gold_path, a.schemas, b.schemas)
    (products_a, _), (products_b, _) = (read_run(side.uri, gold, gold_path, side.reviews) for side in (a, b))
    common = sorted(products_a.keys() & products_b.keys())
    if not common:
        raise UsageError(f"no product of {gold_path} is in both runs")
    judged = {
        comparison: (
            judge_products(common, gold, products_a, comparison),
            judge_products(common, gold, products_b, comparison),
        )
        for comparison in Comparison
    }
    exact_a, exact_b = judged[Comparison.EXACT]
    labels = {
        (products_a[common[first.product]].key, first.attribute): Label(str(first.gold), _right(first, second))
        for first, second in zip(exact_a, exact_b, strict=True)
    }
    made_up = [scoring.count(each.outcome for each in side).hallucination_rate for side in (exact_a, exact_b)]
    quality = GoldQuality(
        gold=gold_path,
        num_gold_products=len(gold),
        num_products=len(common),
        num_labels=len(exact_a),
        rates=[paired_rates(each, first, second, len(common)) for each, (first, second) in judged.items()],
        verdicts=_verdicts(exact_a, exact_b),
        made_up_a=made_up[0],
        made_up_b=made_up[1],
    )
    return quality, labels


def _verdicts(first: Sequence[AnswerJudgement], second: Sequence[AnswerJudgement]) -> list[Verdicts]:
    counts: dict[tuple[str, str], Counter[Right]] = {}
    for a, b in zip(first, second, strict=True):
        if (a.answer.status, set(a.answer.items)) != (b.answer.status, set(b.answer.items)):
            counts.setdefault((a.category, a.attribute), Counter())[_right(a, b)] += 1
    return [
        Verdicts(*pair, count["a"], count["b"], count["both"], count["neither"])
        for pair, count in sorted(counts.items(), key=lambda item: (-item[1].total(), item[0]))
    ]


def _right(a: AnswerJudgement, b: AnswerJudgement) -> Right:
    rights: Mapping[tuple[bool, bool], Right] = {
        (True, True): "both",
        (True, False): "a",
        (False, True): "b",
        (False, False): "neither",
    }
    return rights[a.outcome.is_right, b.outcome.is_right]


@dataclass(frozen=True, slots=True)
class PairedRates:
    """Micro precision, recall and F1 of both, and B minus A with the interval of a paired bootstrap."""

    comparison: Comparison
    a: RateEstimates
    b: RateEstimates
    difference: RateEstimates


def paired_rates(
    comparison: Comparison, first: Sequence[AnswerJudgement], second: Sequence[AnswerJudgement], num_products: int
) -> PairedRates:
    """Score A, `first`, and B, `second`: judgements of the same labels of the same `num_products`."""
    rates_a, rates_b = (
        scoring.count(judgement.outcome for judgement in judgements).rates for judgements in (first, second)
    )
    # The same seed and number of products draw the same products for both: the bootstrap is a paired one.
    samples_a, samples_b = (scoring.bootstrap(judgements, num_products).micro for judgements in (first, second))
    change = scoring.Rates(
        rates_b.precision - rates_a.precision, rates_b.recall - rates_a.recall, rates_b.f1 - rates_a.f1
    )
    return PairedRates(
        comparison,
        scoring.estimate_rates(rates_a, samples_a),
        scoring.estimate_rates(rates_b, samples_b),
        scoring.estimate_rates(change, samples_b - samples_a),
    )
