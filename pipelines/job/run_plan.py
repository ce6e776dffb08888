"""Plan of a run: written before any work, and the only basis of a resume."""

from __future__ import annotations

import datetime
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hpd_core import CategorySchema
from pipelines.catalog.input_files import SourceFile
from pipelines.catalog.listing import listed_names
from pipelines.catalog.sharding import Shard, plan_shards, shard_from_dict, tokens_per_row
from pipelines.catalog.staging import fetch_rows, rows_at
from pipelines.config.extraction import JobConfig, config_hash, result_config, with_later_keys
from pipelines.config.schema_file import schemas_hash
from pipelines.errors import UsageError
from pipelines.store.folders import Folder
from pipelines.store.ledger import PLAN_NAME, Ledger, named_damage
from pipelines.store.no_run import no_run

_VERSION = 1


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """Input file as stored in the plan. `staged`: the name under which the run keeps its rows, if it does."""

    name: str
    format: str
    size: int
    fingerprint: str
    num_rows: int
    staged: str | None = None

    @property
    def rows(self) -> tuple[str, str]:
        """Place and format of its rows, on the machine that planned the run."""
        return rows_at(self.name, self.format, self.staged)

    @property
    def content(self) -> tuple[int, str]:
        """Size and fingerprint, which change whenever the file does; `staged` may also differ between versions."""
        return self.size, self.fingerprint


@dataclass(frozen=True, slots=True)
class Plan:
    """Complete plan of a run.

    Attributes:
        result_config: the part of the configuration that decides results; a resume must not change it.
        limit: number of rows taken from the catalog; None for all.
        is_spread: whether these rows are evenly spaced instead of the first ones.
        shards: shards of the catalog in its own order.
        base_run_id: the run from which answers are carried over, if there is one.
    """

    run_id: str
    created_at: str
    result_config: Mapping[str, Any]
    config_hash: str
    schema_hash: str
    limit: int | None
    files: Sequence[PlannedFile]
    shards: Sequence[Shard]
    base_run_id: str | None = None
    is_spread: bool = False

    @property
    def num_rows(self) -> int:
        """Number of rows that the run takes in."""
        return sum(shard.num_rows for shard in self.shards)

    @property
    def estimated_tokens(self) -> int:
        """Approximate number of tokens of all shards."""
        return sum(shard.estimated_tokens for shard in self.shards)

    def to_json(self) -> bytes:
        """Return the plan as stored."""
        return json.dumps({"version": _VERSION, **asdict(self)}, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, data: Mapping[str, Any], place: str) -> Plan:
        """Read a stored plan. Raises `UsageError` if another version of the project wrote it."""
        if data.get("version") != _VERSION or data.get("is_clustered"):
            raise UsageError(f"{place} was written by another version of this project, which can read and continue it")
        shards = [shard_from_dict(shard) for shard in data["shards"]]
        files = [PlannedFile(**file) for file in data["files"]]
        settings = {key: data[key] for key in data if key not in ("version", "is_clustered")}
        return cls(**{**settings, "files": files, "shards": shards})


def planned_files(files: Sequence[SourceFile]) -> list[PlannedFile]:
    """Return input files as a plan stores them."""
    return [
        PlannedFile(file.name, file.format, file.size, file.fingerprint, file.num_rows, file.staged) for file in files
    ]


def make_plan(
    config: JobConfig,
    schemas: Mapping[str, CategorySchema],
    files: Sequence[SourceFile],
    limit: int | None,
    only: Mapping[str, Sequence[int]] | None = None,
    base_run_id: str | None = None,
    *,
    is_spread: bool = False,
    num_shards: int | None = None,
) -> Plan:
    """Return a new plan; nothing is written. Arguments as those of `plan_shards`."""
    row_tokens = tokens_per_row(schemas)
    return Plan(
        run_id=config.run_id or _new_run_id(),
        created_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        result_config=result_config(config),
        config_hash=config_hash(config),
        schema_hash=schemas_hash(schemas),
        limit=limit,
        files=planned_files(files),
        shards=plan_shards(
            *(files, config.shards, row_tokens, config.actors.most(), limit, only),
            is_spread=is_spread,
            num_shards=num_shards,
        ),
        is_spread=is_spread,
        base_run_id=base_run_id,
    )


def find_plan(output: Folder) -> Plan | None:
    """Return the plan in the output folder of a run to be written; None if the folder is empty or missing.

    Raises `UsageError` if something other than a run lies there.
    """
    output.require()
    plan = _stored_plan(output)
    if plan is None and not output.is_empty():
        raise UsageError(f"output folder {output.uri} is not empty and holds no run ({PLAN_NAME}); use another")
    return plan


def find_run(uri: str, key: str = "") -> tuple[Folder, Plan]:
    """Return folder and plan of a run that is to be read, finished or not.

    Raises `UsageError` if there is none, or it cannot be read. `key`: the setting or option that names the run; ""
    for the command's argument.
    """
    folder = Folder(uri)
    try:
        plan = _stored_plan(folder)
    except NotADirectoryError:
        plan = None
    except OSError as error:
        raise UsageError(f"{f'{key}: ' if key else ''}cannot read {uri}: {error}") from error
    if plan is None:
        raise no_run(folder, key)
    return folder, plan


def _stored_plan(folder: Folder) -> Plan | None:
    with named_damage(folder, PLAN_NAME):
        data = folder.read_json(PLAN_NAME)
        return None if data is None else Plan.from_json(data, folder.describe(PLAN_NAME))


def find_finished(uri: str, key: str = "") -> tuple[Folder, Plan, dict[str, Any]]:
    """Return folder, plan and manifest of a run. Raises as `find_run`, or `UsageError` if it is not finished."""
    folder, plan = find_run(uri, key)
    said = f"{key}: " if key else ""
    try:
        manifest = Ledger(folder, "").finished()
    except (OSError, ValueError) as error:
        raise UsageError(f"{said}cannot read {uri}: {type(error).__name__}: {error}") from error
    if manifest is None:
        raise UsageError(f"{said}the run in {uri} is not finished; finish it, or name another")
    return folder, plan, manifest


def check_resume(old: Plan, new: Plan, config: JobConfig, output: Folder) -> None:
    """Raise `UsageError`, naming the difference, unless `new` asks for the same work as the stored `old`."""
    place = f"output folder {output.uri} belongs to run {old.run_id!r}"
    way_out = "use another output folder, or put it back to continue"
    if config.run_id is not None and config.run_id != old.run_id:
        raise UsageError(f"{place}, not {config.run_id!r}; use another output folder, or drop the run id to continue")
    # Not by the hashes: a null key that did not exist when the run began is not a difference.
    if changes := "; ".join(differences(with_later_keys(old.result_config), with_later_keys(new.result_config))):
        raise UsageError(f"{place}, which has another configuration: {changes}. {way_out[0].upper()}{way_out[1:]}")
    if old.schema_hash != new.schema_hash:
        raise UsageError(f"{place}, and the schemas in {config.schemas} have changed since; {way_out}")
    if (old.limit, old.is_spread) != (new.limit, new.is_spread):
        asked = f"not {describe_limit(new)}"
        raise UsageError(f"{place}, which was begun {describe_limit(old)}, {asked}; {way_out}")
    if [(file.name, file.content) for file in old.files] != [(file.name, file.content) for file in new.files]:
        changes = "; ".join(file_differences(old.files, new.files)[:3])
        raise UsageError(f"{place}, and the input has changed since: {changes}; {way_out}")
    if lost := [then.name for then, now in zip(old.files, new.files, strict=True) if not _has_rows(then, now, output)]:
        raise UsageError(
            f"{place}, and {listed_names(lost)} {'is' if len(lost) == 1 else 'are'} the same, but the rows were kept "
            "by another version of HPD and cannot be taken from it: continue with that version, or use another "
            "output folder"
        )


def _has_rows(then: PlannedFile, now: PlannedFile, output: Folder) -> bool:
    """Return whether the rows that the run was planned with can be read here. `now`: the same file, as this version
    reads it."""
    if then == now:
        return True
    return then.num_rows == now.num_rows and then.staged is not None and fetch_rows(output, then.staged)


def describe_limit(plan: Plan) -> str:
    """Return "with --limit 20", "with --first 20", or "without --limit"."""
    return "without --limit" if plan.limit is None else f"with --{'limit' if plan.is_spread else 'first'} {plan.limit}"


def _new_run_id() -> str:
    return f"{datetime.datetime.now(datetime.UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def is_made_up(run_id: str) -> bool:
    """Return whether `run_id` was made from the time, because the run's configuration gave none."""
    return re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", run_id) is not None


def differences(old: Any, new: Any) -> list[str]:
    """Return the differences of two configurations as plain data, one line a key."""
    return [f"{key}: {_shown(before)} -> {_shown(after)}" for key, before, after in changed_keys(old, new)]


def _shown(setting: Any) -> str:
    """Return a setting as written in a configuration file."""
    if isinstance(setting, bool):
        return str(setting).lower()
    return "not set" if setting is None else repr(setting)


def changed_keys(old: Any, new: Any, key: str = "") -> list[tuple[str, Any, Any]]:
    """Return the dotted keys in which two configurations as plain data differ, with both values (None if missing)."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = dict.fromkeys([*old, *new])
        pairs = ((f"{key}.{name}".lstrip("."), old.get(name), new.get(name)) for name in keys)
        return [
            change for name, before, after in pairs if before != after for change in changed_keys(before, after, name)
        ]
    return [(key, old, new)]


def file_differences(old: Sequence[PlannedFile], new: Sequence[PlannedFile]) -> list[str]:
    """Return the differences of two lists of input files, one line a file."""
    before, after = {file.name: file for file in old}, {file.name: file for file in new}
    gone = [f"{name} is gone" for name in before if name not in after]
    added = [f"{name} is new" for name in after if name not in before]
    changed = [
        f"{name} has changed"
        if file.content != after[name].content
        else f"{name} is the same, but read otherwise (by other settings, or another version of HPD)"
        for name, file in before.items()
        if name in after and file != after[name]
    ]
    if not (changed or gone or added) and list(before) != list(after):
        return ["the order of the files has changed"]
    return changed + gone + added
