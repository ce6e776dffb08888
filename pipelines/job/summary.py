"""Outcome of a run, as text for people and as one JSON object for machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from hpd_core import ErrorCode
from hpd_core.text.near_names import near_names, quoted
from pipelines.catalog.rows import DeadRows
from pipelines.console.exit_codes import EXIT_CLEAN, EXIT_INCOMPLETE
from pipelines.console.progress import format_seconds
from pipelines.console.terminal import SafeTable, print_lines, print_notes, printable, quoted_markup
from pipelines.job.carryover import Changes, EarlierRun
from pipelines.job.job_run import RunOutcome, run_job
from pipelines.job.named_models import sought_later
from pipelines.job.preflight import CatalogCounts, PlannedJob, unknown_in_run, unknown_json
from pipelines.job.prices import why_no_price
from pipelines.job.run_status import totals_lines
from pipelines.quality.answer_features import answer_probability
from pipelines.store.folders import Folder
from pipelines.store.run_tables import Parts
from pipelines.store.tables import TABLES

_UNKNOWN_SHOWN = 20
_CATEGORY_WIDTH = 100
_RENAMED_SHOWN = 3


def exit_code(outcome: RunOutcome, max_dead_letter_share: float) -> int:
    """Return 0, or 3 if the counts do not add up or more rows were dead-lettered than the configuration allows."""
    if outcome.discrepancy is not None or outcome.totals.dead_letter_share > max_dead_letter_share:
        return EXIT_INCOMPLETE
    return EXIT_CLEAN


def print_outcome(console: Console, job: PlannedJob, outcome: RunOutcome) -> None:
    """Print the outcome, and the places of the results."""
    totals, allowed = outcome.totals, job.config.max_dead_letter_share
    lines = []
    if outcome.was_finished:
        lines.append(f"Run {escape(outcome.plan.run_id)} is finished already; nothing was done.")
    speed = ""
    if (pace := outcome.products_per_second) is not None:
        speed = f" in {format_seconds(outcome.seconds)} ({pace:,.2f} products/s, loading included)"
    lines.append(f"[bold]{totals.products:,} products[/] of {totals.rows:,} rows extracted{speed}")
    lines += totals_lines(totals, unknown_in_run(totals, job.schemas))
    if not totals.priced_shards and (named := job.config.cost.instance_type) is not None:
        lines.append(f"  cost         no dollars: {quoted_markup(why_no_price(named, job.config.cost.market))}")
    if outcome.changes is not None:
        lines += _changes_lines(outcome.changes)
    lines += [f"  {table:12} {quoted_markup(job.output.describe(table))}/*.parquet" for table in TABLES]
    print_lines(console, lines)
    print_notes(console, outcome.notes)
    if outcome.discrepancy is not None:
        print_lines(console, [f"[bold red]The counts do not add up:[/] {outcome.discrepancy}"])
    elif (share := totals.dead_letter_share) > allowed:
        limit = f"max_dead_letter_share allows {allowed:.1%}: exit code {EXIT_INCOMPLETE}"
        print_lines(console, [f"[bold red]{share:.1%} of the rows are dead-lettered[/], {limit}"])


def _changes_lines(changes: Changes) -> Iterator[str]:
    yield (
        f"  since {escape(changes.base_run_id)}: {changes.carried:,} carried over, {changes.completed:,} completed, "
        f"{changes.decoded_again:,} decoded again, {changes.new:,} new, {changes.dropped:,} dropped"
        + (f"; {changes.reviewed:,} reviewed answers kept" if changes.reviewed else "")
        + (f"; {changes.reviews_left_out:,} verdicts there are of other texts" if changes.reviews_left_out else "")
    )
    if changes.obstacles:
        yield (
            f"[bold yellow]Note:[/] no model's answer was carried over from {escape(changes.base)}, which was decoded "
            f"otherwise: {escape('; '.join(changes.obstacles))}"
        )


def outcome_json(job: PlannedJob, outcome: RunOutcome, code: int) -> dict[str, Any]:
    """Return the outcome as plain data, for JSON output."""
    totals = outcome.totals
    return {
        "run_id": outcome.plan.run_id,
        "exit_code": code,
        "was_finished": outcome.was_finished,
        "output": job.output.uri,
        "seconds": round(outcome.seconds, 3),
        "products_per_second": outcome.products_per_second,
        "discrepancy": outcome.discrepancy,
        "notes": list(outcome.notes),
        "left_out": job.left_out.to_dict(),
        "changes": asdict(outcome.changes) if outcome.changes is not None else None,
        **totals.to_dict(),
        "no_schema": unknown_json(
            *(totals.unknown_categories, totals.reasons[ErrorCode.NO_SCHEMA], job.schemas),
            are_least=totals.unknown_categories_are_least,
        ),
    }


def print_plan(console: Console, job: PlannedJob, counts: CatalogCounts) -> None:
    """Print what a run would do."""
    print_lines(console, _plan_lines(job, counts))
    print_notes(console, _warnings(job, counts))


def _plan_lines(job: PlannedJob, counts: CatalogCounts) -> Iterator[str]:
    plan, categories = job.plan, counts.categories
    yield f"Plan of run {escape(plan.run_id)} ({'new' if job.is_new else 'stored'}); nothing was started."
    for label, value in plan_json(job, counts).items():
        if isinstance(value, int):
            yield f"  {label.replace('_', ' '):17} {value:,}"
    if job.left_out.files:
        yield f"  left out          {len(job.left_out.files):,}: {quoted_markup(str(job.left_out))}"
    yield f"  output            {quoted_markup(job.output.uri)}"
    for key, name in sought_later(job.config):
        yield f"  {key:17} {quoted_markup(name)}: looked for when the run starts"
    if job.earlier is not None:
        yield f"  base              {quoted_markup(_describe_base(job, job.earlier))}"
    width = min(_CATEGORY_WIDTH, max((len(_shown_category(name)) for name in categories), default=0))
    num_unknown = 0
    for name, count in sorted(categories.items(), key=lambda item: (-item[1], item[0])):
        schema = job.schemas.get(name)
        num_unknown += schema is None
        if schema is not None or num_unknown <= _UNKNOWN_SHOWN:
            note = _describe_missing(name, job) if schema is None else f"{len(schema.attributes)} attributes"
            yield escape(f"    {_shown_category(name):{width}}  {count:>9,}  {note}")
    if num_unknown > _UNKNOWN_SHOWN:
        yield f"    and {num_unknown - _UNKNOWN_SHOWN:,} more without a schema: will be dead-lettered"
    yield from (f"    {escape(line)}" for line in _dead_lines(counts.dead))
    if counts.checked < plan.num_rows:
        dead = _dead_lines(counts.dead_in_sample)
        yield from (f"    of the {counts.checked:,} rows checked {escape(line)}" for line in dead)
        checked = f"{counts.checked:,} of {plan.num_rows:,} rows"
        yield f"    {checked} were checked as a run does, of the others only the category"


def _shown_category(name: str) -> str:
    """Return a category's name as it is if it is short and all of it is visible, else quoted as in the outcome."""
    if not name:
        return "(none)"
    return name if name.isprintable() and name == name.strip() and len(name) <= _CATEGORY_WIDTH else quoted(name)


def _dead_lines(dead: DeadRows) -> list[str]:
    return [
        f"{'1 row' if count == 1 else f'{count:,} rows'} will be dead-lettered ({reason}): "
        f"{printable(dead.examples[reason])}"
        for reason, count in dead.rows.most_common()
    ]


def _dead_json(dead: DeadRows) -> dict[str, Any]:
    return {reason: {"rows": rows, "example": dead.examples[reason]} for reason, rows in dead.rows.items()}


def _warnings(job: PlannedJob, counts: CatalogCounts) -> list[str]:
    # Where every row was checked, the first ones are in the counts.
    is_whole = counts.checked == job.plan.num_rows
    return [*job.warnings, *(() if is_whole else job.sample_warnings)]


def _describe_missing(name: str, job: PlannedJob) -> str:
    hint = near_names(job.schemas).hint(name)
    return "no schema: will be dead-lettered" + (f"; {printable(hint)}" if hint else "")


def _describe_base(job: PlannedJob, earlier: EarlierRun) -> str:
    obstacles = earlier.obstacles(job.config)
    if obstacles:
        return f"run {earlier.plan.run_id}; nothing can be carried over: {'; '.join(obstacles)}"
    carriable = earlier.carriable(job.config, job.schemas)
    num_attributes = sum(len(schema.attributes) for schema in job.schemas.values())
    unchanged = sum(map(len, carriable.values()))
    renamed = [
        f"category {quoted(near.name)} there is {quoted(name)} here, differs in {near.difference}"
        for name in job.schemas
        if name not in earlier.schemas
        for near in near_names(earlier.schemas).find(name)[:1]
        if near.difference is not None and near.name not in job.schemas
    ]
    text = f"run {earlier.plan.run_id}; {unchanged} of {num_attributes} attributes are unchanged"
    return "; ".join([text, *renamed[:_RENAMED_SHOWN]])


def plan_json(job: PlannedJob, counts: CatalogCounts) -> dict[str, Any]:
    """Return the plan as plain data, for JSON output."""
    categories = counts.categories
    return {
        "files": len(job.plan.files),
        "rows": job.plan.num_rows,
        "rows_checked": counts.checked,
        "categories": len(categories),
        "shards": len(job.plan.shards),
        "estimated_tokens": job.plan.estimated_tokens,
        "left_out": job.left_out.to_dict(),
        "rows_by_category": dict(categories),
        "dead_letters": _dead_json(counts.dead),
        "dead_letters_in_sample": _dead_json(counts.dead_in_sample),
        "no_schema": _unknown_in_plan(job, categories),
        "warnings": _warnings(job, counts),
    }


def _unknown_in_plan(job: PlannedJob, categories: Mapping[str, int]) -> dict[str, Any]:
    unknown = Counter({name: rows for name, rows in categories.items() if name and name not in job.schemas})
    return unknown_json(unknown, unknown.total(), job.schemas)


def run_and_tell(job: PlannedJob, console: Console, *, show: int) -> tuple[int, dict[str, Any]]:
    """Run the job and print its outcome, with the attributes of `show` products. Returns (exit code, outcome as plain
    data)."""
    print_notes(console, [*job.warnings, *job.sample_warnings])
    outcome = run_job(job, console)
    code = exit_code(outcome, job.config.max_dead_letter_share)
    if show and (table := preview_table(job.output, show)) is not None:
        console.print(table)
    print_outcome(console, job, outcome)
    return code, outcome_json(job, outcome, code)


_PARTS_READ = 8
_MAX_TEXT = 60


def preview_table(output: Folder, num_products: int) -> Table | None:
    """Return a table of the extracted attributes of `num_products` products, from as many categories as possible; None
    if there are no products."""
    parts, keys = Parts(output, range(_PARTS_READ)), ["category", "source_file", "source_row", "product_id"]
    products = _pick([*parts.rows("products", keys)], num_products)
    if not products:
        return None
    columns = ["source_file", "source_row", "attribute", "value_index", "value_raw", "status"]
    columns += ["num_tokens", "logprob_mean", "probability", "confidence", "evidence"]
    answers = parts.answers_of(columns, {(file, number) for _, file, number, _ in products})
    rows_of = {place: [row for rows in each.values() for row in rows] for place, each in answers.items()}

    table = SafeTable(box=box.SIMPLE_HEAD, title="Extracted attributes", title_justify="left")
    table.add_column("product")
    table.add_column("attribute")
    table.add_column("value")
    table.add_column("found in")
    is_calibrated = any(row["confidence"] is not None for rows in rows_of.values() for row in rows)
    certainty = "confidence" if is_calibrated else "probability"
    table.add_column(certainty, justify="right")
    for category, file, number, product_id in products:
        table.add_section()
        label = f"{product_id}\n{category}"
        for row in rows_of[file, number]:
            attribute = row["attribute"] if row["value_index"] == 0 else ""
            share = row["confidence"] if is_calibrated else answer_probability(row)
            cells = (_value(row), _places(row), "" if share is None else f"{share:.2f}")
            table.add_row(Text(printable(label)), Text(printable(attribute)), *cells)
            label = ""
    return table


def _pick(products: Sequence[tuple[Any, ...]], count: int) -> list[tuple[Any, ...]]:
    """Return products, which begin with their category: first one of each, then others."""
    first_of_category = {product[0]: product for product in reversed(products)}
    chosen = [product for product in products if first_of_category[product[0]] is product][:count]
    others = [product for product in products if product not in chosen]
    return chosen + others[: count - len(chosen)]


def _value(row: dict[str, Any]) -> Text:
    if row["status"] == "absent":
        return Text("not stated", style="dim")
    text = printable(row["value_raw"] or "")
    short = text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
    return Text(short) if row["status"] == "value" else Text(f"{row['status']}: {short}", style="yellow")


def _places(row: dict[str, Any]) -> Text:
    """Return the names of the fields in which the value was found."""
    names = dict.fromkeys(place["field"] for place in row["evidence"] or ())
    return Text(printable(", ".join(names)))
