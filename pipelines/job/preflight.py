"""Checks and plan of a job: errors that can be found before any work are raised here.

Counts of rows whose category has no schema, by the category's name: before, during and after a run.

Counts of a planned catalog, for `--dry-run`: its rows by category, and those that will be dead letters.

Reading a category is cheap; checking a row as a run does is expensive if it holds HTML. So the category of every row is
read, and all rows of a small catalog are checked, but only some of a large one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from hpd_core import CategorySchema, ErrorCode, HPDError
from hpd_core.text.near_names import near_names, quoted
from hpd_core.text.template import render_attribute
from pipelines.catalog.input_files import SourceFile, scan_sources
from pipelines.catalog.listing import LeftOutFiles
from pipelines.catalog.readers import read_piece
from pipelines.catalog.rows import DeadRows, RowRefusal, SourceRow, find_category, known_category, to_record
from pipelines.catalog.sharding import RowRange
from pipelines.config.catalog_input import InputConfig
from pipelines.config.extraction import JobConfig
from pipelines.config.schema_file import load_schemas
from pipelines.errors import RunError, UsageError
from pipelines.job.carryover import EarlierRun, finished_runs, has_any_product, has_wildcard
from pipelines.job.context import code_digest
from pipelines.job.named_models import check_named_models
from pipelines.job.prices import price_notes
from pipelines.job.run_plan import (
    Plan,
    PlannedFile,
    check_resume,
    file_differences,
    find_finished,
    find_plan,
    make_plan,
    planned_files,
)
from pipelines.store.folders import Folder, map_requests
from pipelines.store.ledger import MANIFEST_NAME, PLAN_NAME, Ledger, named_damage, pilot_folder
from pipelines.store.tables import read_part
from pipelines.store.totals import MAX_UNKNOWN_CATEGORIES, Totals


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """Checked and planned job; nothing has been written for a new one.

    Attributes:
        earlier: the run that `base` names, whose answers are carried over where nothing has changed.
        left_out: files in the input folders that are not read.
        warnings: warnings about the files, the files left out, the models, the prices and the schemas.
        sample_warnings: warnings about the first rows.
    """

    config: JobConfig
    schemas: dict[str, CategorySchema]
    output: Folder
    plan: Plan
    is_new: bool
    earlier: EarlierRun | None = None
    left_out: LeftOutFiles = field(default_factory=LeftOutFiles)
    warnings: Sequence[str] = ()
    sample_warnings: Sequence[str] = ()


def plan_job(
    config: JobConfig,
    limit: int | None = None,
    only: Mapping[str, Sequence[int]] | None = None,
    *,
    is_to_run: bool = True,
    is_spread: bool = False,
    num_shards: int | None = None,
) -> PlannedJob:
    """Check everything that can be checked before any work, and plan the job. Raises `UsageError`.

    Args:
        limit: number of rows that a new run takes: the first ones or, if `is_spread`, evenly spaced ones.
        only: numbers of the only rows that a new run takes (ascending, by the file's name).
        num_shards: if given, a new run's rows are dealt to so many shards in turn.
        is_to_run: whether the job will run, so that its models are checked, too; otherwise the plan is only shown.
    """
    code_digest()  # of the code that plans, whatever is edited later
    schemas = load_schemas(config.schemas)
    output = Folder(config.output)
    try:
        stored = find_plan(output)
        is_over = stored is not None and output.exists(MANIFEST_NAME)
    except OSError as error:
        raise UsageError(f"cannot read output folder {output.uri}: {error}") from error
    _check_category(config, schemas)
    notes = check_named_models(config) if is_to_run and not is_over else []
    sources = scan_sources(config.input, [output.uri, pilot_folder(output.uri)])
    files = sources.files
    wanted, config = config.base, _with_base(config, stored, output, files, schemas)
    if stored is None and wanted is not None and config.base is None:
        notes.append(f"base: no finished run of this whole catalog matches {wanted}: every product will be decoded")
    planned = partial(
        PlannedJob,
        config,
        schemas,
        output,
        left_out=sources.left_out,
        warnings=[*notes, *price_notes(config.cost), *sources.warnings(), *schema_warnings(config, schemas)],
        sample_warnings=[*sources.sample_warnings()],
    )
    if stored is not None:
        check_resume(stored, make_plan(config, schemas, files, limit, is_spread=is_spread), config, output)
        return planned(stored, is_new=False, earlier=_reopen(config, stored, output))
    earlier = EarlierRun.open(config.base, output) if config.base is not None else None
    if earlier is not None and earlier.schemas.keys().isdisjoint(schemas) and not _is_same_catalog(earlier, files):
        raise UsageError(
            f"base: {config.base} is a run of another catalog: it has none of these categories, and none of the ids in "
            "the first rows. Name an earlier run of this one, or leave out base"
        )
    if config.retry_failed is not None:
        only = failed_rows(config.retry_failed, planned_files(files))
    base_run_id = earlier.plan.run_id if earlier is not None else None
    plan = make_plan(config, schemas, files, limit, only, base_run_id, is_spread=is_spread, num_shards=num_shards)
    return planned(plan, is_new=True, earlier=earlier)


def _check_category(config: JobConfig, schemas: Mapping[str, CategorySchema]) -> None:
    """Raise `UsageError` if the configuration puts all rows into a category that has no schema."""
    text = config.input.category.text
    if text is not None and find_category({}, config.input, schemas) not in schemas:
        raise UsageError(
            f"input.category: {near_names(schemas).missing(text)}, and all rows are to be of that ({config.schemas})"
        )


def _reopen(config: JobConfig, stored: Plan, output: Folder) -> EarlierRun | None:
    """Reopen the base run of a resumed run. If it no longer exists, return None: answers not yet carried over are
    decoded."""
    if config.base is None:
        return None
    try:
        earlier = EarlierRun.open(config.base, output)
    except UsageError as error:
        if isinstance(error.__cause__, OSError):
            raise  # a storage that is away for now: what it holds is not to be paid for again
        return None
    return earlier if earlier.plan.run_id == stored.base_run_id else None


def _is_same_catalog(earlier: EarlierRun, files: Sequence[SourceFile]) -> bool:
    """Return whether the earlier run had one of the products in the files' first rows; true if these have no ids."""
    ids = {product_id for file in files for product_id in file.sample_ids}
    return not ids or has_any_product(earlier, ids)


def _with_base(
    config: JobConfig,
    stored: Plan | None,
    output: Folder,
    files: Sequence[SourceFile],
    schemas: Mapping[str, CategorySchema],
) -> JobConfig:
    """Resolve a pattern in `base` to the newest finished run of this catalog that it matches; None if there is none."""
    if config.base is None or not has_wildcard(config.base):
        return config
    try:
        if Folder(config.base).exists(PLAN_NAME):
            return config
    except OSError as error:
        raise UsageError(f"base: cannot look for {config.base}: {error}") from error
    # A resumed run keeps the base that it began with.
    if stored is not None:
        base = stored.result_config.get("base")
    else:
        base = None
        for uri in finished_runs(config.base, output):
            run = EarlierRun.open(uri, output)
            if _is_same_catalog(run, files):
                base = run.folder.uri
                break
            # A feed may begin with new products: then compare the categories.
            if base is None and not run.schemas.keys().isdisjoint(schemas):
                base = run.folder.uri
    return config.model_copy(update={"base": base})


def failed_rows(uri: str, files: Sequence[PlannedFile]) -> dict[str, list[int]]:
    """Return the numbers of the rows that the run at `uri` has given up, ascending, by input file.

    Raises `UsageError` if it is not a finished run, or was over other files: rows are identified by their place.
    """
    folder, plan, manifest = find_finished(uri, "retry_failed")
    ledger = Ledger(folder, "")
    try:
        # Most shards have none: their manifests say so.
        with named_damage(folder, MANIFEST_NAME):
            num_rows = manifest["totals"]["dead_letters"]
        shards = ledger.manifests(ledger.committed()) if num_rows else ()
        tables = (shard["tables"]["dead_letter"] for shard in shards)
        names = [table["public"] for table in tables if table["num_rows"]]
        parts = map_requests(lambda name: read_part(folder, name, ["source_file", "source_row"]), names)
    except (OSError, RunError) as error:
        raise UsageError(f"retry_failed: cannot read {uri}: {error}") from error
    if list(plan.files) != list(files):
        changes = "; ".join(file_differences(plan.files, files)[:3])
        raise UsageError(
            f"retry_failed: the input has changed since run {plan.run_id!r}: {changes}. Its rows are no more "
            f"where they were; --base {uri} takes a changed catalog, and decodes what has no answer yet"
        )
    rows: defaultdict[str, list[int]] = defaultdict(list)
    for part in parts:
        for file, row in zip(*(column.to_pylist() for column in part.columns), strict=True):
            rows[file].append(row)
    return {file: sorted(numbers) for file, numbers in rows.items()}


_SHOWN = 10
# Schemas below this size, in bytes and positions, fit into any model's context.
_SMALL = 2500
# Tokens are usually longer, so a shorter label needs no closer look.
_BYTES_PER_TOKEN = 2


def schema_warnings(config: JobConfig, schemas: Mapping[str, CategorySchema]) -> list[str]:
    """Return a line for each of the first problems. Load the tokenizer, which takes seconds, only for large schemas.

    Raises `UsageError` if no product of any category can be decoded.
    """
    refuse_constrained(config, schemas)
    asked = {attribute.name for schema in schemas.values() for attribute in schema.attributes}
    if unknown := config.input.copied.keys() - asked:
        raise UsageError(f"input.copied: no category of {config.schemas} has {', '.join(map(repr, sorted(unknown)))}")
    suspects = [schema for schema in schemas.values() if _may_be_tight(schema, config)]
    if not suspects:
        return []
    # Imports torch: jobs with schemas of ordinary size do without.
    from hpd_core.requests.schema_room import SchemaRoom

    try:
        room = SchemaRoom.from_pretrained(config.model, config.engine, config.decoding)
    except HPDError as error:
        return [f"whether the schemas fit into the model's context is not known: {error}"]
    problems = [problem for schema in suspects for problem in room.problems(schema)]
    if {problem.category for problem in problems if problem.is_fatal} == set(schemas):
        raise UsageError("\n  ".join([f"{config.schemas}: no product can be decoded", *_shown(problems)]))
    return list(_shown(problems))


def refuse_constrained(config: JobConfig, schemas: Mapping[str, CategorySchema]) -> None:
    """Raise `UsageError` if an attribute is verbatim or implied, and a model of the job writes what it likes."""
    engines = [("engine", config.engine)]
    if config.cascade is not None:
        engines.append(("cascade.engine", config.cascade.engine))
    problems = [f"{name}: it {problem}" for name, engine in engines if (problem := engine.why_not_verbatim)]
    if config.decoding == "ar":
        problems.append("decoding: 'ar' writes what it likes, set it to 'hpd'")
    named = (
        f"{each.name!r} of {schema.category!r}"
        for schema in schemas.values()
        for each in schema.attributes
        if each.verbatim or each.implied
    )
    if problems and (attribute := next(named, None)) is not None:
        raise UsageError(f"{config.schemas}: attribute {attribute} is verbatim or implied. {problems[0]}")


def _shown(problems: Sequence[object]) -> Iterator[str]:
    yield from map(str, problems[:_SHOWN])
    if len(problems) > _SHOWN:
        yield f"and {len(problems) - _SHOWN:,} more problems of this kind with the schemas"


def _may_be_tight(schema: CategorySchema, config: JobConfig) -> bool:
    """Return whether a schema needs a closer look with the tokenizer; takes microseconds, by lengths alone."""
    limits = [attribute.max_value_tokens or config.engine.max_value_tokens for attribute in schema.attributes]
    listed = config.engine.prompt.max_listed_values
    size = sum(len(render_attribute(attribute, listed).encode()) for attribute in schema.attributes)
    is_in_a_row = config.engine.layout == "stacked" or config.decoding == "ar"
    if size + (sum(limits) if is_in_a_row else max(limits)) > _SMALL or min(limits) <= 2:
        return True
    return any(
        len(member.encode()) > _BYTES_PER_TOKEN * limit
        for attribute, limit in zip(schema.attributes, limits, strict=True)
        for member in attribute.labels
    )


_MAX_LENGTH = 200  # characters of a name; a longer one is a text in the wrong column
_MAX_END = 60  # characters kept of its end
_MAX_NAMES = 300  # names per shard


def count_unknown(categories: Iterable[str | None]) -> dict[str, int]:
    """Return the number of rows by category name, for the most frequent names; cut the middle of a very long name."""
    counts = Counter(_kept(name or "") for name in categories)
    return dict(counts.most_common(_MAX_NAMES))


def _kept(name: str) -> str:
    if len(name) <= _MAX_LENGTH:
        return name
    return f"{name[: _MAX_LENGTH - _MAX_END - 1]}…{name[-_MAX_END:]}"


def unknown_in_run(totals: Totals, schemas: Collection[str]) -> Iterator[str]:
    """Yield the lines of `unknown_lines` about a run."""
    are_least = totals.unknown_categories_are_least
    return unknown_lines(totals.unknown_categories, totals.reasons[ErrorCode.NO_SCHEMA], schemas, are_least=are_least)


def unknown_lines(
    counts: Counter[str], num_rows: int, schemas: Collection[str], *, are_least: bool = False
) -> Iterator[str]:
    """Yield a line for each of the most frequent names, then one with the number of rows of other names.

    Args:
        counts: rows by name. If names were left out, each count is a lower bound and is shown as "at least".
        num_rows: all rows without a schema.
    """
    shown = counts.most_common(_SHOWN)
    least, most = ("at least ", "at most ") if are_least and shown else ("", "")
    for name, rows in shown:
        hint = near_names(schemas).hint(name)
        yield f"no schema for category {quoted(name)} ({least}{rows:,} {_rows(rows)})" + (f"; {hint}" if hint else "")
    if rest := num_rows - sum(rows for _, rows in shown):
        yield f"no schema for other categories ({most}{rest:,} {_rows(rest)})"


def _rows(count: int) -> str:
    return "row" if count == 1 else "rows"


def unknown_json(
    counts: Counter[str], num_rows: int, schemas: Collection[str], *, are_least: bool = False
) -> dict[str, Any]:
    """Return the same as plain data: the most frequent categories, and the rows of all others."""
    near, shown = near_names(schemas), counts.most_common(MAX_UNKNOWN_CATEGORIES)
    named = [
        {
            "category": name,
            "rows": rows,
            "near": [{"category": each.name, "difference": each.difference} for each in near.find(name)],
        }
        for name, rows in shown
    ]
    return {
        "categories": named,
        "other_rows": num_rows - sum(rows for _, rows in shown),
        "rows_are_least": are_least,
    }


# Refusals that are counted by category.
_BY_CATEGORY = ("no_schema", "null_category")
# Rows that are checked, and in how many places of a large catalog at least.
_MAX_CHECKED = 10_000
_PLACES = 20


@dataclass(slots=True)
class CatalogCounts:
    """Counts of a catalog's rows before a run.

    Attributes:
        categories: rows by category; "" for rows without one.
        dead: rows that will be dead letters for another reason than their category's name. Unreadable rows and
            categories are counted over the whole catalog; other reasons only if every row was checked.
        checked: number of rows that were checked as a run does.
        dead_in_sample: rows refused for those other reasons, if only a sample was checked.
    """

    categories: Counter[str] = field(default_factory=Counter)
    dead: DeadRows = field(default_factory=DeadRows)
    checked: int = 0
    dead_in_sample: DeadRows = field(default_factory=DeadRows)


def count_categories(plan: Plan, config: InputConfig, schemas: Mapping[str, CategorySchema]) -> CatalogCounts:
    """Count every planned row, and check up to about 10,000. Raises `RunError` if a file cannot be read."""
    counts = CatalogCounts()
    pieces = [piece for shard in plan.shards for piece in shard.pieces]
    is_whole = plan.num_rows <= _MAX_CHECKED
    dead = counts.dead if is_whole else counts.dead_in_sample
    # Small pieces are checked whole, large ones only at their beginning.
    step = 1 if is_whole else max(1, min(len(pieces) // _PLACES, plan.num_rows // _MAX_CHECKED))
    share = _MAX_CHECKED if is_whole else max(1, _MAX_CHECKED // len(pieces[::step]))
    for index, piece in enumerate(pieces):
        file = plan.files[piece.file].name
        for row in _sampled_rows(plan, piece, config.category.columns, config):
            category = _category(row, config, schemas)
            if isinstance(category, RowRefusal):
                counts.dead.add(category, file, row.number)
            else:
                counts.categories[category] += 1
        for row in islice(_sampled_rows(plan, piece, config.columns, config), share if index % step == 0 else 0):
            counts.checked += 1
            if row.values is None or isinstance(_category(row, config, schemas), RowRefusal):
                continue  # it is counted
            outcome = to_record(row.values, "", config, schemas)
            if isinstance(outcome, RowRefusal) and outcome.code not in _BY_CATEGORY:
                dead.add(outcome, file, row.number)
    return counts


def _sampled_rows(plan: Plan, piece: RowRange, columns: Sequence[str], config: InputConfig) -> Iterator[SourceRow]:
    file = plan.files[piece.file]
    return read_piece(*file.rows, piece, columns, anonymous=config.anonymous)


def _category(row: SourceRow, config: InputConfig, schemas: Mapping[str, CategorySchema]) -> str | RowRefusal:
    if row.values is None:
        return row.problem or RowRefusal("unreadable", "the row could not be read")
    return known_category(row.values, config, schemas)
