"""Dead-lettered rows of a finished run, to be tried again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipelines.errors import RunError, UsageError
from pipelines.job.run_plan import Plan, PlannedFile, file_differences, find_finished
from pipelines.store.damaged import named_damage
from pipelines.store.folders import map_requests
from pipelines.store.ledger import MANIFEST_NAME, Ledger
from pipelines.store.tables import read_part


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
