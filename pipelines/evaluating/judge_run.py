"""A judgement from beginning to end: draw products, ask the judge, store the result."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import typer
from rich.console import Console

from pipelines.config.labelling import OpenAITeacherConfig
from pipelines.console.exit_codes import EXIT_CLEAN, EXIT_INCOMPLETE
from pipelines.console.terminal import SafeTable, printable, rows_table
from pipelines.errors import UsageError
from pipelines.evaluating.asking import AnswerCache, JudgeUsage, ask_judge
from pipelines.evaluating.judged_products import JudgeAgreement, draw_products, with_exact_match
from pipelines.evaluating.judgement import (
    AttributeJudgement,
    Judgement,
    JudgeScore,
    judge_score,
    undecided_notes,
    verdict_lines,
)
from pipelines.evaluating.questions import CLASSES
from pipelines.job.run import Run
from pipelines.labelling.label_files import format_cost
from pipelines.quality.evaluation import judge_products
from pipelines.quality.gold import read_gold
from pipelines.quality.run_answers import RowKey, read_run
from pipelines.quality.scoring import Comparison, few_products
from pipelines.store.folders import Folder, file_at

RESULT_NAME = "judge.json"
CACHE_NAME = "judge-answers.jsonl"

Exact = dict[tuple[RowKey, str], bool]


def judge_run(
    uri: str,
    config: OpenAITeacherConfig,
    gold: str | None,
    console: Console,
    *,
    limit: int | None,
    seed: int,
    cache: str | None,
    out: str | None,
) -> tuple[Judgement, str]:
    """Judge the run and return the judgement and its place; with `gold`, only of its products.

    Args:
        limit: number of products to judge; None for all.
        cache: the file of answers; None for `CACHE_NAME` in the run's folder.
        out: the file for the result; None for `RESULT_NAME` in the run's folder.

    Raises:
        UsageError: there is no such run, the judge cannot be asked, or there is no text to judge by.
        RunError, BudgetError: the same command continues; answers so far are stored.
    """
    side = Run.open_with_rows(uri)
    folder, name = _result_place(side.folder, out)
    exact = _exact(side, gold) if gold is not None else None
    among = None if exact is None else {key for key, _ in exact}
    drawn = draw_products(side, limit, seed, among)
    if not drawn.products:
        raise UsageError(f"{uri}: there is no product to judge" + (f" of those in {gold}" if gold else ""))
    with AnswerCache(cache or _cache_beside(side.folder)) as answers:
        judged = ask_judge(config, drawn.products, answers, console)
    score = judge_score(judged, drawn.products)
    judgement = Judgement(
        run=uri,
        gold=gold,
        num_products=drawn.num_products,
        num_drawn=len(drawn.products) + len(drawn.without_text),
        seed=seed,
        without_text=drawn.without_text,
        notes=[*drawn.notes, *undecided_notes(score)],
        judge=score,
        exact=None if exact is None else with_exact_match(judged.classes, exact),
        verdicts=verdict_lines(drawn.products, judged),
    )
    folder.write(name, json.dumps(judgement.to_dict(), ensure_ascii=False, indent=1).encode())
    return judgement, folder.describe(name)


def _cache_beside(run: Folder) -> str:
    if not run.is_local:
        raise UsageError(f"--judge-cache: name a local file for the judge's answers, as {run.uri} is not local")
    return run.path(CACHE_NAME)


def _result_place(run: Folder, out: str | None) -> tuple[Folder, str]:
    if out is None:
        return run, RESULT_NAME
    return file_at(out, "--out")


def _exact(side: Run, gold: str) -> Exact:
    """Return whether each labelled answer is right by exact match, with people's corrections, as the judge sees it."""
    products = read_gold(gold, side.schemas)
    found, _ = read_run(side.uri, products, gold, side.reviews)
    indexes = sorted(found)
    return {
        (found[indexes[each.product]].key, each.attribute): each.outcome.is_right
        for each in judge_products(indexes, products, found, Comparison.EXACT)
    }


def judge_and_print(
    console: Console,
    run: str,
    config: OpenAITeacherConfig,
    gold: str | None,
    by_attribute: bool,
    beside: Mapping[str, Any] | None,
    **wishes: Any,
) -> int:
    """Judge and print. Returns exit code 3 if some products could not be asked about. Raises as `judge_run`.

    `beside`: further content of the last line of JSON; None: no such line.
    """
    judgement, place = judge_run(run, config, gold, console, **wishes)
    print_judgement(console, judgement, place, by_attribute)
    if beside is not None:
        typer.echo(json.dumps({**beside, "judge": judgement.summary()}, ensure_ascii=False))
    return EXIT_INCOMPLETE if judgement.num_unanswered else EXIT_CLEAN


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
    if judgement.exact is not None:
        _print_agreement(console, judgement.exact)
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
    rows = [
        (name, f"{number:,}", f"{number / decided:.1%}" if decided else "") for name, number in score.classes.items()
    ]
    console.print(rows_table("The paper's classes (Figure 11)", ["class"], ["answers", "share"], rows))
    if score.rates is None:
        _say(console, "no LLM-F1: no answer was decided")
    else:
        rates = score.rates
        _say(
            console,
            f"LLM-F1 {rates.f1}, LLM-P {rates.precision}, LLM-R "
            f"{rates.recall} (95%, over products{few_products(score.num_products)})",
        )
    if score.rates is not None or by_attribute:
        console.print(_attribute_table(score.by_attribute, by_attribute))
    _say(console, f"Asked: {_usage(score.usage)}; of it now: {_usage(score.paid)}")


def _attribute_table(scores: Sequence[AttributeJudgement], everything: bool) -> SafeTable:
    shown = scores if everything or len(scores) <= _MAX_WORST else _worst(scores)
    title = "By attribute" if len(shown) == len(scores) else f"The worst {len(shown)} of {len(scores):,} attributes"
    rows = [
        (each.category, each.attribute, *map(str, (*each.classes.values(), each.num_undecided)), _f1(each))
        for each in shown
    ]
    return rows_table(title, ["category", "attribute"], [*CLASSES, "undecided", "LLM-F1"], rows)


def _worst(scores: Sequence[AttributeJudgement]) -> Sequence[AttributeJudgement]:
    """Return the first attributes that have rates; those without cannot be among the worst."""
    return [each for each in scores if each.rates is not None][:_MAX_WORST]


def _f1(score: AttributeJudgement) -> str:
    return f"{score.rates.f1:.3f}" if score.rates is not None else "-"


def _print_agreement(console: Console, agreement: JudgeAgreement) -> None:
    title = "With exact match, right or wrong"
    if agreement.share is None:
        _say(console, f"{title}: no answer was judged by both")
        return
    share, kappa = agreement.share, agreement.kappa
    said = "" if kappa is None else f", Cohen's kappa {kappa:.2f}"
    alike = f"{share.value:.1%} alike [{share.low:.1%}, {share.high:.1%}]"
    _say(console, f"{title}: {agreement.num_answers:,} answers, {alike}{said}")
    for pair in agreement.pairs:
        if pair.judge != pair.other:
            _say(console, f"  judge: {pair.judge}, exact match: {pair.other}: {pair.number:,}")


def _usage(usage: JudgeUsage) -> str:
    if not usage.requests:
        return "nothing"
    tokens = (
        "tokens unknown"
        if usage.input_tokens is None
        else f"{usage.input_tokens:,} tokens read, {usage.output_tokens or 0:,} written"
    )
    return f"{usage.requests:,} answers, {tokens}, {format_cost(usage.cost_usd)}"


def _named(names: Sequence[str]) -> str:
    return f"{len(names):,} ({', '.join(names[:_MAX_NAMES])}{', ...' if len(names) > _MAX_NAMES else ''})"


def _say(console: Console, text: str, style: str | None = None) -> None:
    console.print(printable(text), style=style, soft_wrap=True)
