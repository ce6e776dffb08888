"""A judgement from beginning to end: draw products, ask one or two judges, store the result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from pipelines.config.labelling import OpenAITeacherConfig
from pipelines.errors import UsageError
from pipelines.judging.agreement import of_judges, with_exact_match
from pipelines.judging.answer_cache import AnswerCache
from pipelines.judging.asking import ask_judge, judge_config
from pipelines.judging.judged_products import draw_products
from pipelines.judging.judgement import Judgement, judge_score, undecided_notes, verdict_lines
from pipelines.quality.evaluation import judge_products
from pipelines.quality.gold import read_gold
from pipelines.quality.run_answers import RowKey, read_run
from pipelines.quality.scoring import Comparison
from pipelines.runs.run import Run
from pipelines.store.folders import Folder, file_at

RESULT_NAME = "judge.json"
CACHE_NAME = "judge-answers.jsonl"

Exact = dict[tuple[RowKey, str], bool]


@dataclass(frozen=True, slots=True)
class JudgeWishes:
    """Options of a judgement.

    Attributes:
        judge, second: an endpoint or a YAML file; `changes`, `second_changes`: `key=value` for it.
        limit: number of products to judge; None for all.
        cache: the file of answers; None for `CACHE_NAME` in the run's folder.
        out: the file for the result; None for `RESULT_NAME` in the run's folder.
    """

    judge: str
    changes: Sequence[str] = ()
    second: str | None = None
    second_changes: Sequence[str] = ()
    limit: int | None = None
    seed: int = 0
    cache: str | None = None
    out: str | None = None


def judge_run(uri: str, wishes: JudgeWishes, gold: str | None, console: Console) -> tuple[Judgement, str]:
    """Judge the run and return the judgement and its place; with `gold`, only of its products.

    Raises:
        UsageError: there is no such run, a judge cannot be asked, or there is no text to judge by.
        RunError, BudgetError: the same command continues; answers so far are stored.
    """
    config = judge_config(wishes.judge, wishes.changes, "--judge")
    second_config = _second(wishes, config)
    side = Run.open_with_rows(uri)
    cache = wishes.cache or _cache_beside(side.folder)
    folder, name = _result_place(side.folder, wishes.out)
    exact = _exact(side, gold) if gold is not None else None
    among = None if exact is None else {key for key, _ in exact}
    drawn = draw_products(side, wishes.limit, wishes.seed, among)
    if not drawn.products:
        raise UsageError(f"{uri}: there is no product to judge" + (f" of those in {gold}" if gold else ""))
    with AnswerCache(cache) as answers:
        judged = ask_judge(config, drawn.products, answers, console)
        second = None if second_config is None else ask_judge(second_config, drawn.products, answers, console)
    score = judge_score(judged, drawn.products)
    second_score = None if second is None else judge_score(second, drawn.products)
    judgement = Judgement(
        run=uri,
        gold=gold,
        num_products=drawn.num_products,
        num_drawn=len(drawn.products) + len(drawn.without_text),
        seed=wishes.seed,
        without_text=drawn.without_text,
        notes=[*drawn.notes, *undecided_notes(each for each in (score, second_score) if each is not None)],
        judge=score,
        second=second_score,
        exact=None if exact is None else with_exact_match(judged.classes, exact),
        same_class=None if second is None else of_judges(judged.classes, second.classes, right_or_wrong=False),
        right_or_wrong=None if second is None else of_judges(judged.classes, second.classes, right_or_wrong=True),
        verdicts=verdict_lines(drawn.products, judged, second),
    )
    folder.write(name, json.dumps(judgement.to_dict(), ensure_ascii=False, indent=1).encode())
    return judgement, folder.describe(name)


def _second(wishes: JudgeWishes, first: OpenAITeacherConfig) -> OpenAITeacherConfig | None:
    if wishes.second is None:
        if wishes.second_changes:
            raise UsageError("--second-judge-set goes with --second-judge")
        return None
    config = judge_config(wishes.second, wishes.second_changes, "--second-judge")
    if config.model == first.model and config.request == first.request and config.system == first.system:
        raise UsageError(f"--second-judge: it is the judge itself ({config.model}); name another model")
    return config


def _cache_beside(run: Folder) -> str:
    if not run.is_local:
        raise UsageError(f"--judge-cache: name a local file for the judge's answers, as {run.uri} is not local")
    return run.path(CACHE_NAME)


def _result_place(run: Folder, out: str | None) -> tuple[Folder, str]:
    if out is None:
        return run, RESULT_NAME
    return file_at(out, "--judge-out")


def _exact(side: Run, gold: str) -> Exact:
    """Return whether each labelled answer is right by exact match, with people's corrections, as the judge sees it."""
    products = read_gold(gold, side.schemas)
    found, _ = read_run(side.uri, products, gold, side.reviews)
    indexes = sorted(found)
    return {
        (found[indexes[each.product]].key, each.attribute): each.outcome.is_right
        for each in judge_products(indexes, products, found, Comparison.EXACT)
    }
