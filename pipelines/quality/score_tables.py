"""An evaluation as text: three lines, or tables of scores, outcomes, categories and attributes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from pipelines.console.terminal import printable, rows_table, titled_table
from pipelines.quality.doubtful_labels import DoubtfulLabel, RecheckedLabels
from pipelines.quality.evaluation import AttributeScore, CategoryScore, Evaluation
from pipelines.quality.scoring import AnswerJudgement, AnswerOutcome, Counts, Reliability, few_products

_MAX_NAMES = 5  # products named in a line
_MAX_WORST = 10  # attributes in the table of the worst
_BAR = 30  # characters of a reliability curve's bar
_SURE = 0.5  # from this probability on a value is more likely right than not, if the model is calibrated
_OUTCOMES = [outcome.name for outcome in AnswerOutcome]
_MISTAKES = (AnswerOutcome.VW, AnswerOutcome.NV, AnswerOutcome.VN)  # in the order in which examples are picked


def print_evaluation(console: Console, evaluation: Evaluation, by_attribute: bool) -> None:
    """Print the whole evaluation; `by_attribute`: every attribute in place of those with the most mistakes."""
    for note in evaluation.notes:
        console.print(f"NOTE: {note}", style="bold yellow")
    console.print(
        f"{evaluation.run} against {evaluation.gold}: {evaluation.num_products} products, "
        f"{evaluation.exact.counts.num_labels} labelled attributes"
    )
    if evaluation.dead_lettered:
        named = ", ".join(evaluation.dead_lettered[:_MAX_NAMES])
        more = ", ..." if len(evaluation.dead_lettered) > _MAX_NAMES else ""
        console.print(f"dead-lettered, scored as errors: {len(evaluation.dead_lettered)} ({named}{more})")
    statuses = ", ".join(f"{status} {number}" for status, number in evaluation.statuses.items())
    console.print(f"answers for labelled attributes: {statuses or 'none'}")
    unlabelled = evaluation.unlabelled
    if unlabelled.num_asked:
        console.print(
            f"attributes that nobody labelled, not judged: {unlabelled.num_asked} asked, {unlabelled.num_values} got a "
            f"value ({unlabelled.num_values / unlabelled.num_asked:.1%})"
        )
    console.print(_overall_table(evaluation))
    console.print(_outcome_table(evaluation))
    print_reliability(console, "confidence", evaluation.reliability)
    print_reliability(console, "the model's own probability", evaluation.reliability_of_probability)
    console.print(_category_table(evaluation))
    console.print(_attribute_table(evaluation) if by_attribute else _worst_table(evaluation))


def print_reliability(console: Console, name: str, curve: Reliability | None) -> None:
    """Print the expected and the found share as text: `#` for the share that is right, `|` for the ideal."""
    if curve is None:
        return
    console.print(f"Reliability of {name}: expected calibration error {curve.ece:.3f} (0: it holds what it says)")
    for each in curve.bins:
        bar = list("#" * round(each.share_right * _BAR) + " " * (_BAR - round(each.share_right * _BAR) + 1))
        bar[round(each.mean_confidence * _BAR)] = "|"
        console.print(
            f"  {each.low:.1f} - {each.high:.1f}  {''.join(bar)} said {each.mean_confidence:.2f}, "
            f"found {each.share_right:.2f} of {each.count:,}"
        )


def print_brief(console: Console, evaluation: Evaluation) -> None:
    """Print three lines for the end of another command's output."""
    for note in evaluation.notes:
        console.print(f"NOTE: {note}", style="bold yellow")
    score = evaluation.exact
    labels = f"{score.counts.num_labels:,} labelled attributes"
    console.print(f"Against {evaluation.gold}: {evaluation.num_products} products, {labels}, exact match")
    rate = score.hallucination_rate
    made_up = "" if rate is None else f"; {rate:.1%} of the absent ones got a value"
    precision, recall, f1 = score.micro.precision.value, score.micro.recall.value, str(score.micro.f1)
    console.print(f"  precision {precision:.3f}, recall {recall:.3f}, F1 {f1}{made_up}")
    parts = []
    curve = evaluation.reliability_of_probability
    for text, is_sure in ((f"a probability of {_SURE} or more", True), ("less", False)):
        bins = [each for each in (curve.bins if curve else ()) if (each.low >= _SURE) is is_sure]
        if number := sum(each.count for each in bins):
            right = sum(each.share_right * each.count for each in bins)
            parts.append(f"{right / number:.0%} of the {number:,} values with {text}")
    if parts:
        console.print(f"  right are {' and '.join(parts)}")


def _overall_table(evaluation: Evaluation) -> Table:
    title = f"Scores, with 95% intervals{few_products(evaluation.num_products)}"
    rows = [
        (f"{card.comparison} {name}", *map(str, (rates.precision, rates.recall, rates.f1)))
        for card in evaluation.scores
        for name, rates in (("micro", card.micro), ("macro", card.macro))
    ]
    return rows_table(title, ["", "precision", "recall", "F1"], [], rows)


def _outcome_table(evaluation: Evaluation) -> Table:
    table = titled_table("Outcomes", [""], [*_OUTCOMES, "labels", "hallucination rate"])
    for card in evaluation.scores:
        rate = "-" if card.hallucination_rate is None else f"{card.hallucination_rate:.3f}"
        counts = (*card.counts.as_tuple(), card.counts.num_labels)
        table.add_row(card.comparison, *map(str, counts), rate)
    return table


def _category_table(evaluation: Evaluation) -> Table:
    pairs = zip(*(card.by_category for card in evaluation.scores), strict=True)
    rows = [(cards[0].category, *_score_cells(cards)) for cards in pairs]
    columns = ["precision", "recall", *_f1_columns(evaluation), *_OUTCOMES]
    return rows_table("By category", ["category"], columns, rows)


def _attribute_table(evaluation: Evaluation) -> Table:
    columns = ["precision", "recall", *_f1_columns(evaluation), *_OUTCOMES]
    pairs = zip(*(card.by_attribute for card in evaluation.scores), strict=True)
    rows = sorted((cards[0].category, cards[0].attribute, *_score_cells(cards)) for cards in pairs)
    return rows_table("By attribute", ["category", "attribute"], columns, rows)


def _worst_table(evaluation: Evaluation) -> Table:
    """Return a table of the attributes with the most mistakes under the exact comparison, with an example each."""
    ranked = sorted(
        evaluation.exact.by_attribute,
        key=lambda score: (-_num_mistakes(score.counts), score.rates.f1, score.category, score.attribute),
    )
    examples = _examples(evaluation.judgements)
    table = titled_table("Most mistakes", ["category", "attribute"], ["F1", "mistakes", "of"])
    table.add_column("for example: gold")
    table.add_column("answer")
    for score in (each for each in ranked[:_MAX_WORST] if _num_mistakes(each.counts)):
        example = examples[score.category, score.attribute]
        table.add_row(
            score.category,
            score.attribute,
            f"{score.rates.f1:.3f}",
            str(_num_mistakes(score.counts)),
            str(score.counts.num_labels),
            str(example.gold),
            str(example.answer),
        )
    return table


def _examples(judgements: Iterable[AnswerJudgement]) -> dict[tuple[str, str], AnswerJudgement]:
    """Return the most telling mistake of every attribute: a wrong value before a made-up before a missed one."""
    examples: dict[tuple[str, str], AnswerJudgement] = {}
    for judgement in judgements:
        if judgement.outcome not in _MISTAKES:
            continue
        pair = (judgement.category, judgement.attribute)
        known = examples.get(pair)
        if known is None or _MISTAKES.index(judgement.outcome) < _MISTAKES.index(known.outcome):
            examples[pair] = judgement
    return examples


def _f1_columns(evaluation: Evaluation) -> list[str]:
    return ["F1", *(f"{card.comparison} F1" for card in evaluation.scores[1:])]


def _score_cells(cards: Sequence[CategoryScore | AttributeScore]) -> list[str]:
    exact = cards[0]
    rates = [exact.rates.precision, exact.rates.recall, *(card.rates.f1 for card in cards)]
    return [*(f"{rate:.3f}" for rate in rates), *map(str, exact.counts.as_tuple())]


def _num_mistakes(counts: Counts) -> int:
    return counts.nv + counts.vn + counts.vw


_MAX_ATTRIBUTES = 10
_MAX_TEXT = 120


def print_rechecked(console: Console, found: RecheckedLabels, num_runs: int, limit: int) -> None:
    """Print the counts, the attributes with the most doubtful labels, and `limit` of these labels."""
    for note in found.notes:
        console.print(f"NOTE: {printable(note)}", style="bold yellow", soft_wrap=True)
    console.print(
        f"{printable(found.gold)}: {found.num_labels:,} labels of {found.num_products:,} of its "
        f"{found.num_gold_products:,} products, against {num_runs} run{'s' if num_runs > 1 else ''}",
        soft_wrap=True,
    )
    if num_runs == 1:
        console.print("Another run, by a model of another seed, layout or size, leaves fewer and surer ones.")
    console.print(_counts(found, num_runs))
    if found.doubtful:
        console.print(_by_attribute(found))
        if limit:
            console.print(_surest(found.doubtful[:limit], len(found.doubtful)))


def _counts(found: RecheckedLabels, num_runs: int) -> Table:
    table = titled_table("Labels", [""], ["labels", "share"])
    rows = {
        "right, say all runs": found.num_right,
        "right, say some": found.num_split,
        "wrong, say all, and not alike": found.num_wrong,
        "doubtful: wrong, say all, with one voice": len(found.doubtful),
        **{f"  {kind}": number for kind, number in found.kinds().items()},
        "a run says nothing": found.num_silent,
    }
    if num_runs == 1:
        del rows["right, say some"]
    for name, number in rows.items():
        table.add_row(name, f"{number:,}", f"{number / found.num_labels:.1%}" if found.num_labels else "-")
    return table


def _by_attribute(found: RecheckedLabels) -> Table:
    counts = Counter((each.product.category, each.attribute) for each in found.doubtful)
    most = sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:_MAX_ATTRIBUTES]
    rows = [
        (*pair, f"{number:,}", f"{found.labels_of[pair]:,}", f"{number / found.labels_of[pair]:.0%}")
        for pair, number in most
    ]
    title = "Attributes with the most doubtful labels"
    return rows_table(title, ["category", "attribute"], ["doubtful", "of", "share"], rows)


def _surest(doubtful: Sequence[DoubtfulLabel], total: int) -> Table:
    title = f"The surest of them, {len(doubtful):,} of {total:,}"
    table = titled_table(title, ["product", "category", "attribute", "label", "answer"], ["sureness"])
    for each in doubtful:
        sureness = "-" if each.sureness is None else f"{each.sureness:.3f}"
        line = f"line {each.product.row + 1}" if each.product.product_id is None else each.product.product_id
        texts = (line, each.product.category, each.attribute, str(each.gold), str(each.answer))
        table.add_row(*(_shortened(text) for text in texts), sureness)
    return table


def _shortened(text: str) -> str:
    """Shorten a label to one line of at most `_MAX_TEXT` characters and an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_TEXT else f"{line[:_MAX_TEXT]}…"
