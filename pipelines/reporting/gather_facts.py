"""Facts of a report, gathered from run folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.errors import UsageError
from pipelines.job.run import Run
from pipelines.quality.curve import CURVE_NAME, Curve
from pipelines.reporting.answer_facts import GoldScores, attribute_facts, category_facts, read_gold_scores, verdict_of
from pipelines.reporting.cost_facts import Account
from pipelines.reporting.outlook import ShardTotals, find_forecast, forecast_facts, outlook, priced, read_account
from pipelines.reporting.report_facts import CascadeFacts, DeadReason, Facts, Identity, InputFile, ReportTotals
from pipelines.reporting.sample import GoldIndex, build_sample, draw
from pipelines.reporting.table_scan import AnswerSums, read_dead_letters, scan_attributes, scan_products
from pipelines.reporting.value_facts import OtherRun, ReportQuality
from pipelines.store.folders import Folder
from pipelines.store.ledger import pilot_folder
from pipelines.store.texts_in_run import left_out_note


@dataclass(frozen=True, slots=True)
class ReportWishes:
    """Options of a report, beside the run itself.

    Attributes:
        forecast: path of the forecast, if not the one where `hpd plan` puts it.
        usd_per_hour: price of an engine hour; prices the run (and compared runs) afterwards.
        sample_size: number of products to show.
    """

    gold: str | None = None
    forecast: str | None = None
    compare: Sequence[str] = ()
    usd_per_hour: float | None = None
    sample_size: int = 200
    seed: int = 0


def gather(uri: str, wishes: ReportWishes) -> Facts:
    """Gather all facts of the run in the folder `uri`.

    Raises `UsageError` if there is no run, a part of it cannot be read, or gold or a compared run does not fit.
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
    sums, answers = scan_products(run.parts, machines.prices, machines.larger_prices), AnswerSums()
    drawn = draw(scan_attributes(run.reviewed, sums, answers, run.booleans), wishes.sample_size, wishes.seed)
    dead_letters = read_dead_letters(run.parts, sums)
    sample, sample_notes = build_sample(
        run.reviewed, run.plan, run.input_settings, drawn, wishes.seed, run.booleans, gold_index
    )
    totals = _totals(run, dead_letters)
    if totals.rows and not totals.products:
        notes.append("Every row is dead-lettered: nothing was extracted.")
    verdict = verdict_of(answers.total(), totals.products, run.precision)
    is_decided = verdict.accepted is not None
    categories = category_facts(sums, answers, account, gold.by_category, is_decided=is_decided)
    attributes, by_category = attribute_facts(answers, gold.by_attribute, is_decided=is_decided)
    cascade, cascade_notes = cascade_facts(run)
    notes += cascade_notes
    forecast, forecast_place, forecast_notes = find_forecast(run.folder.uri, wishes.forecast)
    expected = None
    if forecast is not None:
        forecast = forecast if wishes.usd_per_hour is None else priced(forecast, wishes.usd_per_hour)
        expected = forecast_facts(forecast, forecast_place, account, categories, totals, run)
    compared = [compared_run(run, account, gold.quality, is_this=True)] if wishes.compare else []
    for other in wishes.compare:
        line, other_notes = read_compared(other, run, wishes.gold, wishes.usd_per_hour)
        compared.append(line)
        notes += [f"{other}: {note}" for note in other_notes]
    return Facts(
        identity=_identity(run, machines),
        verdict=verdict,
        totals=totals,
        attributes=attributes,
        by_category=by_category,
        account=account,
        forecast=expected,
        forecast_place=forecast_place,
        cascade=cascade,
        outlook=outlook(account, totals, forecast) if account is not None else None,
        categories=categories,
        quality=gold.quality,
        compared=tuple(compared),
        dead_letters=dead_letters,
        sample=sample,
        notes=(*notes, *forecast_notes, *sample_notes),
    )


def _identity(run: Run, machines: ShardTotals) -> Identity:
    plan = run.plan
    return Identity(
        uri=run.folder.uri,
        name=run.name,
        run_id=plan.run_id,
        state=run.status.state,
        created_at=plan.created_at,
        config_hash=plan.config_hash,
        schema_hash=plan.schema_hash,
        limit=plan.limit,
        base_run_id=plan.base_run_id,
        layout=run.layout,
        engine=run.engine,
        devices=dict(machines.devices),
        instances=dict(machines.instances),
        inputs=tuple(InputFile(file.name, file.size, file.num_rows) for file in plan.files),
    )


def _totals(run: Run, dead_letters: Sequence[DeadReason]) -> ReportTotals:
    totals = run.status.totals
    return ReportTotals(
        planned_rows=run.status.planned_rows,
        planned_shards=run.status.planned_shards or 0,
        shards=totals.shards,
        rows=totals.rows,
        products=totals.products,
        dead_letters=totals.dead_letters,
        refused=sum(reason.count for reason in dead_letters if reason.stage == "prepare"),
        carried=totals.carried["products"],
        statuses=dict(totals.statuses),
    )


def _unpublished_notes(run: Run) -> list[str]:
    number = run.num_unpublished
    return [f"{number:,} committed shards are not published yet; they are left out."] if number else []


def cascade_facts(run: Run) -> tuple[CascadeFacts | None, list[str]]:
    """Return the facts (None for a run of one model) and notes."""
    settings: dict[str, Any] | None = run.plan.result_config.get("cascade")
    if settings is None:
        return None, []
    curve, place, notes = _read_curve(run.folder.uri)
    found = run.status.totals.cascade
    larger = " + ".join(str(settings[key]) for key in ("model", "adapter") if settings.get(key))
    counts = {name: found[name] for name in ("answers", "asked", "products", "changed", "kept")}
    return CascadeFacts(larger, settings["below"], **counts, curve=curve, curve_place=place), notes


def _read_curve(uri: str) -> tuple[Curve | None, str, list[str]]:
    folder = Folder(pilot_folder(uri))
    place = folder.describe(CURVE_NAME)
    try:
        data = folder.read_json(CURVE_NAME)
        return None if data is None else Curve.from_dict(data), place, []
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return None, place, [f"The curve of F1 against cost in {place} is left out: {type(error).__name__}: {error}."]


def read_compared(uri: str, this: Run, gold: str | None, usd_per_hour: float | None) -> tuple[OtherRun, list[str]]:
    """Read another run to compare with `this`, the report's own. Raises `UsageError` if there is no run.

    Returns the run and notes on it. A run without gold labels has no scores, and a note.
    """
    run = Run.open(uri)
    account, machines = read_account(run.parts, usd_per_hour)
    notes = [*run.notes(), *_unlike(run, this), *machines.notes]
    quality = None
    if gold is not None:
        try:
            scores = read_gold_scores(run, gold)
            quality, notes = scores.quality, [*notes, *scores.notes]
        except UsageError as error:
            notes.append(f"Not scored: {error}.")
    return compared_run(run, account, quality, is_this=False), notes


def _unlike(run: Run, this: Run) -> Iterator[str]:
    """Yield notes on inputs or devices that make the numbers of the two runs differ in meaning."""
    read, read_here = (
        (sorted((file.fingerprint, file.num_rows) for file in each.plan.files), each.plan.limit) for each in (run, this)
    )
    if read != read_here:
        yield "It read other files, or another part of them, than the run of this report."
    if run.device is not None and this.device is not None and run.device != this.device:
        yield f"It ran on {run.device}, the run of this report on {this.device}."


def compared_run(run: Run, account: Account | None, quality: ReportQuality | None, *, is_this: bool) -> OtherRun:
    """Return the comparison line of an opened run. `is_this`: it is the report's own."""
    billed = account.time.billed if account is not None and account.decoded else None
    return OtherRun(
        uri=run.folder.uri,
        run_id=run.plan.run_id,
        state=run.status.state,
        is_this=is_this,
        model=str(run.engine.get("model_id") or "unknown"),
        adapter=run.engine.get("adapter_id"),
        layout=run.layout,
        products=run.status.totals.products,
        dead_letters=run.status.totals.dead_letters,
        num_scored=quality.num_products if quality is not None else None,
        f1=quality.f1 if quality is not None else None,
        usd_per_1k=account.money.per_1k if account is not None and account.money is not None else None,
        seconds_per_1k=billed / account.decoded * 1000 if account is not None and billed is not None else None,
        products_per_second=account.products_per_second if account is not None else None,
    )
