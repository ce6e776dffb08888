"""A judgement as text for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from pipelines.console.shown_names import with_shown_names
from pipelines.console.terminal import SafeTable, printable
from pipelines.judging.agreement import JudgeAgreement
from pipelines.judging.asking import JudgeUsage
from pipelines.judging.classes import CLASSES
from pipelines.judging.judgement import AttributeJudgement, Judgement, JudgeScore
from pipelines.labelling.progress_lines import format_cost
from pipelines.quality.scoring import Estimate, few_products

_MAX_NAMES = 5  # products named in a line
_MAX_WORST = 10  # attributes in the table of the worst


def print_judgement(console: Console, judgement: Judgement, place: str, by_attribute: bool) -> None:
    """Print everything; `by_attribute`: every attribute in place of the worst."""
    for note in judgement.notes:
        _say(console, f"NOTE: {note}", style="bold yellow")
    of = f"of {judgement.num_products:,} products" + (f" that {judgement.gold} labels" if judgement.gold else "")
    _say(console, f"{judgement.run}: {judgement.num_drawn:,} {of} drawn, with seed {judgement.seed}")
    if judgement.without_text:
        _say(console, f"not judged, their text cannot be read back: {_named(judgement.without_text)}")
    _print_score(console, judgement.judge, by_attribute)
    if judgement.second is not None:
        _print_score(console, judgement.second, by_attribute)
    _print_agreement(console, "With exact match, right or wrong", judgement.exact, "exact match")
    _print_agreement(console, "With the second judge, right or wrong", judgement.right_or_wrong, "second judge")
    _print_agreement(console, "With the second judge, the class", judgement.same_class, "second judge")
    _say(console, f"All verdicts: {place}")


def _print_score(console: Console, score: JudgeScore, by_attribute: bool) -> None:
    undecided = len(score.undecided)
    _say(
        console,
        f"Judged by {score.model}: {score.num_products:,} products, {score.num_answers:,} answers"
        + (f", {score.num_failed:,} of them failed and judged as null" if score.num_failed else "")
        + (f", {undecided:,} undecided" if undecided else ""),
        style="bold",
    )
    for each in score.undecided[:_MAX_NAMES]:
        _say(console, f"  undecided: {each.product_id}, {each.category}, {each.attribute}: {each.reason}")
    if undecided > _MAX_NAMES:
        _say(console, f"  and {undecided - _MAX_NAMES:,} more")
    for reason, names in score.unanswered.items():
        _say(console, f"  not judged ({reason}; the same command asks again): {_named(names)}")
    decided = sum(score.classes.values())
    table = SafeTable(title="The paper's classes (Figure 11)", title_justify="left")
    for column in ("class", "answers", "share"):
        table.add_column(column, justify="left" if column == "class" else "right")
    for name, number in score.classes.items():
        table.add_row(name, f"{number:,}", f"{number / decided:.1%}" if decided else "")
    console.print(table)
    if score.rates is None:
        _say(console, "no LLM-F1: no answer was decided")
    else:
        rates = score.rates
        _say(
            console,
            f"LLM-F1 {_with_interval(rates.f1)}, LLM-P {_with_interval(rates.precision)}, LLM-R "
            f"{_with_interval(rates.recall)} (95%, over products{few_products(score.num_products)})",
        )
    if score.rates is not None or by_attribute:
        console.print(_attribute_table(score.by_attribute, by_attribute))
    _say(console, f"Asked: {_usage(score.usage)}; of it now: {_usage(score.paid)}")


def _attribute_table(scores: Sequence[AttributeJudgement], everything: bool) -> SafeTable:
    shown = scores if everything or len(scores) <= _MAX_WORST else _worst(scores)
    title = "By attribute" if len(shown) == len(scores) else f"The worst {len(shown)} of {len(scores):,} attributes"
    table = SafeTable(title=title, title_justify="left")
    columns = ("category", "attribute", *CLASSES, "undecided", "LLM-F1")
    for column in columns:
        table.add_column(column, justify="left" if column in columns[:2] else "right")
    rows = [
        (each.category, each.attribute, *map(str, (*each.classes.values(), each.num_undecided)), _f1(each))
        for each in shown
    ]
    for row in with_shown_names(columns, rows):
        table.add_row(*row)
    return table


def _worst(scores: Sequence[AttributeJudgement]) -> Sequence[AttributeJudgement]:
    """Return the first attributes that have rates; those without cannot be among the worst."""
    return [each for each in scores if each.rates is not None][:_MAX_WORST]


def _f1(score: AttributeJudgement) -> str:
    return f"{score.rates.f1:.3f}" if score.rates is not None else "-"


def _print_agreement(console: Console, title: str, agreement: JudgeAgreement | None, other: str) -> None:
    if agreement is None:
        return
    if agreement.share is None:
        _say(console, f"{title}: no answer was judged by both")
        return
    share, kappa = agreement.share, agreement.kappa
    said = "" if kappa is None else f", Cohen's kappa {kappa:.2f}"
    alike = f"{share.value:.1%} alike [{share.low:.1%}, {share.high:.1%}]"
    _say(console, f"{title}: {agreement.num_answers:,} answers, {alike}{said}")
    for pair in agreement.pairs:
        if pair.judge != pair.other:
            _say(console, f"  judge: {pair.judge}, {other}: {pair.other}: {pair.number:,}")


def _usage(usage: JudgeUsage) -> str:
    if not usage.requests:
        return "nothing"
    tokens = (
        "tokens unknown"
        if usage.input_tokens is None
        else f"{usage.input_tokens:,} tokens read, {usage.output_tokens or 0:,} written"
    )
    return f"{usage.requests:,} answers, {tokens}, {format_cost(usage.cost_usd)}"


def _with_interval(estimate: Estimate) -> str:
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _named(names: Sequence[str]) -> str:
    return f"{len(names):,} ({', '.join(names[:_MAX_NAMES])}{', ...' if len(names) > _MAX_NAMES else ''})"


def _say(console: Console, text: str, style: str | None = None) -> None:
    console.print(printable(text), style=style, soft_wrap=True)
