"""Checks and plan of a job: errors that can be found before any work are raised here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from hpd_core import CategorySchema
from hpd_core.text.near_names import near_names
from pipelines.catalog.categories import find_category
from pipelines.catalog.input_files import SourceFile, scan_sources
from pipelines.catalog.left_out import LeftOutFiles
from pipelines.catalog.sharding import Shard
from pipelines.config.extraction import JobConfig
from pipelines.errors import RunError, UsageError
from pipelines.job.base_changes import has_any_product
from pipelines.job.carryover import EarlierRun, finished_runs, has_wildcard
from pipelines.job.clustering.clusters import Clusters
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
from pipelines.job.same_code import code_digest
from pipelines.job.schema_warnings import schema_warnings
from pipelines.schemas.schema_file import load_schemas
from pipelines.store.damaged import named_damage
from pipelines.store.folders import Folder, map_requests
from pipelines.store.ledger import MANIFEST_NAME, PLAN_NAME, Ledger, pilot_folder
from pipelines.store.tables import read_part


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """Checked and planned job; nothing has been written for a new one.

    Attributes:
        earlier: the run that `base` names, whose answers are carried over where nothing has changed.
        clusters: the clustered catalog; None if the job does not cluster, or before `run_job` has done so.
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
    clusters: Clusters | None = None
    left_out: LeftOutFiles = field(default_factory=LeftOutFiles)
    warnings: Sequence[str] = ()
    sample_warnings: Sequence[str] = ()

    @property
    def shards(self) -> Sequence[Shard]:
        """Shards that are decoded and committed: the clustered ones, else the plan's."""
        return self.plan.shards if self.clusters is None else self.clusters.shards

    @property
    def is_cut(self) -> bool:
        """Whether `shards` are final: before a catalog is clustered they only locate its rows."""
        return self.clusters is not None or not self.plan.is_clustered


def plan_job(
    config: JobConfig,
    limit: int | None = None,
    only: Mapping[str, Sequence[int]] | None = None,
    *,
    is_to_run: bool = True,
    is_spread: bool = False,
) -> PlannedJob:
    """Check everything that can be checked before any work, and plan the job. Raises `UsageError`.

    Args:
        limit: number of rows that a new run takes: the first ones or, if `is_spread`, evenly spaced ones.
        only: numbers of the only rows that a new run takes (ascending, by the file's name).
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
        failed = FailedRows.read(config.retry_failed)
        failed.check_input(planned_files(files))
        only = failed.rows
    base_run_id = earlier.plan.run_id if earlier is not None else None
    plan = make_plan(config, schemas, files, limit, only, base_run_id, is_spread=is_spread)
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


@dataclass(frozen=True, slots=True)
class FailedRows:
    """Rows that a run has given up.

    Attributes:
        rows: numbers of the dead-lettered rows, ascending, by input file.
    """

    uri: str
    plan: Plan
    rows: Mapping[str, Sequence[int]]

    @classmethod
    def read(cls, uri: str) -> FailedRows:
        """Read the dead-lettered rows of the run at `uri`. Raises `UsageError` if it is not a finished run."""
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
        rows: defaultdict[str, list[int]] = defaultdict(list)
        for part in parts:
            for file, row in zip(*(column.to_pylist() for column in part.columns), strict=True):
                rows[file].append(row)
        return cls(uri, plan, {file: sorted(numbers) for file, numbers in rows.items()})

    def check_input(self, files: Sequence[PlannedFile]) -> None:
        """Raise `UsageError` unless the files are the very same, because rows are identified by their place."""
        if list(self.plan.files) != list(files):
            changes = "; ".join(file_differences(self.plan.files, files)[:3])
            raise UsageError(
                f"retry_failed: the input has changed since run {self.plan.run_id!r}: {changes}. Its rows are no more "
                f"where they were; --base {self.uri} takes a changed catalog, and decodes what has no answer yet"
            )
