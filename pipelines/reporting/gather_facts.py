"""Facts of a report, gathered from run folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.job.run import Run
from pipelines.reporting.account import ShardTotals, find_forecast, forecast_facts, priced, read_account
from pipelines.reporting.answer_facts import (
    GoldScores,
    attribute_facts,
    category_facts,
    read_gold_scores,
    total_of,
    verdict_of,
)
from pipelines.reporting.report_facts import CascadeFacts, DeadReason, Facts, Identity, InputFile, ReportTotals
from pipelines.reporting.sample import GoldIndex, build_sample, draw
from pipelines.reporting.table_scan import (
    ANSWER_COLUMNS,
    AnswerSum,
    AnswerSums,
    read_dead_letters,
    scan_answers,
    scan_products,
)
from pipelines.store.texts_in_run import left_out_note


@dataclass(frozen=True, slots=True)
class ReportWishes:
    """Options of a report, beside the run itself.

    Attributes:
        forecast: path of the forecast, if not the one where `hpd plan` puts it.
        usd_per_hour: price of an engine hour; prices the run afterwards.
        sample_size: number of products to show.
    """

    gold: str | None = None
    forecast: str | None = None
    usd_per_hour: float | None = None
    sample_size: int = 200
    seed: int = 0


def gather(uri: str, wishes: ReportWishes) -> Facts:
    """Gather all facts of the run in the folder `uri`.

    Raises `UsageError` if there is no run, a part of it cannot be read, or gold does not fit.
    """
    run = Run.open(uri)
    account, machines = read_account(run.parts, wishes.usd_per_hour)
    notes = [*run.notes(), *_unpublished_notes(run), *machines.notes]
    if account is not None and account.money is not None and account.money.shards < account.shards:
        notes.append("--usd-per-hour gives all shards a price.")
    gold, gold_index = GoldScores(), None
    if wishes.gold is not None:
        gold = read_gold_scores(run, wishes.gold)
        gold_index = GoldIndex(gold.products, wishes.gold, run.schemas)
        notes += gold.notes

    notes += left_out_note(run.reviews.left_out, run.uri)
    sums, answers = scan_products(run.parts, machines.prices, machines.larger_prices), AnswerSums(AnswerSum)
    products = scan_answers(run.reviewed.read("attributes", ANSWER_COLUMNS), answers, run.booleans)
    drawn = draw(products, wishes.sample_size, wishes.seed)
    dead_letters = read_dead_letters(run.parts, sums)
    sample, sample_notes = build_sample(
        run.reviewed, run.plan, run.input_settings, drawn, wishes.seed, run.booleans, gold_index
    )
    totals = _totals(run, dead_letters)
    if totals.rows and not totals.products:
        notes.append("Every row is dead-lettered: nothing was extracted.")
    verdict = verdict_of(total_of(answers), totals.products, run.precision)
    is_decided = verdict.accepted is not None
    categories = category_facts(sums, answers, account, gold.by_category, is_decided=is_decided)
    attributes, by_category = attribute_facts(answers, gold.by_attribute, is_decided=is_decided)
    forecast, forecast_place, forecast_notes = find_forecast(run.folder.uri, wishes.forecast)
    expected = None
    if forecast is not None:
        forecast = forecast if wishes.usd_per_hour is None else priced(forecast, wishes.usd_per_hour)
        expected = forecast_facts(forecast, forecast_place, account, totals, run)
    return Facts(
        identity=_identity(run, machines),
        verdict=verdict,
        totals=totals,
        attributes=attributes,
        by_category=by_category,
        account=account,
        forecast=expected,
        forecast_place=forecast_place,
        cascade=cascade_facts(run),
        categories=categories,
        quality=gold.quality,
        dead_letters=dead_letters,
        sample=sample,
        notes=(*notes, *forecast_notes, *sample_notes),
    )


_OF_PLAN = ("run_id", "created_at", "config_hash", "schema_hash", "limit", "base_run_id")


def _identity(run: Run, machines: ShardTotals) -> Identity:
    return Identity(
        uri=run.folder.uri,
        name=run.name,
        state=run.status.state,
        **{name: getattr(run.plan, name) for name in _OF_PLAN},
        layout=run.layout,
        engine=run.engine,
        devices=dict(machines.devices),
        instances=dict(machines.instances),
        inputs=tuple(InputFile(file.name, file.size, file.num_rows) for file in run.plan.files),
    )


def _totals(run: Run, dead_letters: Sequence[DeadReason]) -> ReportTotals:
    totals = run.status.totals
    return ReportTotals(
        planned_rows=run.status.planned_rows,
        planned_shards=run.status.planned_shards,
        **{name: getattr(totals, name) for name in ("shards", "rows", "products", "dead_letters")},
        refused=sum(reason.count for reason in dead_letters if reason.stage == "prepare"),
        carried=totals.carried["products"],
        statuses=dict(totals.statuses),
    )


def _unpublished_notes(run: Run) -> list[str]:
    number = run.num_unpublished
    return [f"{number:,} committed shards are not published yet; they are left out."] if number else []


def cascade_facts(run: Run) -> CascadeFacts | None:
    """Return the facts; None for a run of one model."""
    settings: dict[str, Any] | None = run.plan.result_config.get("cascade")
    if settings is None:
        return None
    found = run.status.totals.cascade
    larger = " + ".join(str(settings[key]) for key in ("model", "adapter") if settings.get(key))
    counts = {name: found[name] for name in ("answers", "asked", "products", "changed", "kept")}
    return CascadeFacts(larger, settings["below"], **counts)
