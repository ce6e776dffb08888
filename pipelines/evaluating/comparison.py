"""Comparison of two runs, as data. Answers are counted in answer_changes.py and joined in joined_runs.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpd_core import CategorySchema
from pipelines.config.lint import diff
from pipelines.errors import UsageError
from pipelines.evaluating.answer_changes import (
    AnswerAgreement,
    AttributeAgreement,
    CategoryAgreement,
    Moments,
    TrustChange,
    by_attribute,
    by_category,
    clustered,
    summarise,
)
from pipelines.evaluating.examples import ChangeExample, GoldQuality, Label, compare_quality, read_examples
from pipelines.evaluating.joined_runs import JoinedRuns, RowCounts, Sampled
from pipelines.job.run import Run
from pipelines.job.run_plan import changed_keys, file_differences
from pipelines.job.run_status import State
from pipelines.quality.run_answers import RowKey
from pipelines.reporting.account import read_account
from pipelines.store.texts_in_run import left_out_note

MAX_EXAMPLES = 50
SEED = 0


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One of the runs.

    Attributes:
        state: "running" if a driver works on it, "stopped" if none does and it is not finished. Then `rows`, those
            committed so far, are fewer than `planned_rows`.
        unpublished_shards, unpublished_rows: committed ones that are left out, because their tables are not published
            yet.
        model_id and the following: self-description of the first engine.
    """

    uri: str
    run_id: str
    created_at: str
    state: State
    planned_rows: int
    rows: int
    unpublished_shards: int
    unpublished_rows: int
    model_id: str | None
    model_revision: str | None
    adapter_revision: str | None
    decoding: str | None
    layout: str | None
    dtype: str | None
    prompt_hash: str | None
    figures: Figures


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Changes from run A to run B.

    Attributes:
        same_text: agreement on the rows with the same text in both. (The text of a dead-lettered row is unknown.)
        changed_text: agreement on the rows whose text changed, so that differences are not due to the model alone.
        by_category, by_attribute: agreement within `same_text`, least first.
        trust: answers in all rows that are accepted, or that a person gave, in one run alone.
        examples: answers of `same_text` with another value, decision or source, of the least agreeing attributes first.
        changed_examples: the same for `changed_text`.
        seed: seed of the draw of examples.
        notes: caveats that a reader must know before trusting the numbers.
    """

    a: ComparedRun
    b: ComparedRun
    notes: Sequence[str]
    settings: Settings
    rows: RowCounts
    same_text: AnswerAgreement
    changed_text: AnswerAgreement
    by_category: Sequence[CategoryAgreement]
    by_attribute: Sequence[AttributeAgreement]
    trust: Sequence[TrustChange]
    quality: GoldQuality | None
    seed: int
    examples: Sequence[ChangeExample]
    changed_examples: Sequence[ChangeExample]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return dataclasses.asdict(self) | {"trust": [each._asdict() for each in self.trust]}


def compare_runs(
    a: str, b: str, *, gold: str | None = None, max_examples: int = MAX_EXAMPLES, seed: int = SEED
) -> RunComparison:
    """Compare the run in folder `a` with the one in folder `b`.

    Args:
        a, b: output folders, local or any fsspec URI, of finished or running runs.
        gold: gold file in any layout of quality/gold.py.
        max_examples: differing answers shown in full, for rows with the same and with changed text each.
        seed: seed of their draw.

    Raises `UsageError` if there is no run, the two have nothing in common, something cannot be read, or the gold file
    does not belong to them.
    """
    side_a, side_b = Run.open_with_rows(a), Run.open_with_rows(b)
    if side_a.is_same(side_b):
        raise UsageError(f"{a} and {b} are the same folder; name two runs")
    settings = compare_settings(side_a, side_b)
    quality, labels = compare_quality(side_a, side_b, gold) if gold is not None else (None, {})
    with JoinedRuns.of(side_a, side_b, by_row=settings.same_files) as join:
        rows = join.row_counts()
        if not rows.both:
            raise UsageError(_nothing_in_common(side_a, side_b, rows))
        # True and false are conclusions: they are looked for nowhere in the text.
        booleans = side_a.booleans | side_b.booleans
        cells = [
            cell._replace(ungrounded_a=None, ungrounded_b=None) if (cell.category, cell.attribute) in booleans else cell
            for cell in join.cells()
        ]
        moments = join.moments()
        same = [cell for cell in cells if not cell.text_changed]
        changed = [cell for cell in cells if cell.text_changed]
        attributes = by_attribute(same)
        trust = join.trust_changes()
        labelled = {key for key, _ in labels}
        sampled = join.sample(_order(attributes), max_examples, seed, labelled)
        sampled_changed = join.sample(_order(by_attribute(changed)), max_examples, seed, labelled, text_changed=True)
    figures_a, figures_b = read_figures(side_a), read_figures(side_b)
    runs = _run(side_a, figures_a[0]), _run(side_b, figures_b[0])
    return RunComparison(
        a=runs[0],
        b=runs[1],
        notes=[
            *_notes(runs, settings, rows),
            *(f"{name}: {note}" for name, (_, notes) in (("A", figures_a), ("B", figures_b)) for note in notes),
            *(
                f"{name}: {note}"
                for name, side in (("A", side_a), ("B", side_b))
                for note in left_out_note(side.reviews.left_out, side.uri)
            ),
        ],
        settings=settings,
        rows=rows,
        same_text=summarise(same, clustered(sum(moments.values(), Moments(0, 0, 0, 0, 0, 0)))),
        changed_text=summarise(changed, None),
        by_category=by_category(same, moments),
        by_attribute=attributes,
        trust=trust,
        quality=quality,
        seed=seed,
        examples=list(_labelled(read_examples(side_a, side_b, sampled), sampled, labels)),
        changed_examples=list(_labelled(read_examples(side_a, side_b, sampled_changed), sampled_changed, labels)),
    )


def _order(attributes: Sequence[AttributeAgreement]) -> list[tuple[str, str]]:
    return [(each.category, each.attribute) for each in attributes]


def _run(side: Run, figures: Figures) -> ComparedRun:
    engine, status = side.engine, side.status
    return ComparedRun(
        uri=side.uri,
        run_id=side.run_id,
        created_at=side.plan.created_at,
        state=status.state,
        planned_rows=status.planned_rows,
        rows=status.totals.rows,
        unpublished_shards=status.totals.shards - side.totals.shards,
        unpublished_rows=status.totals.rows - side.totals.rows,
        figures=figures,
        **{
            key: engine.get(key)
            for key in (
                *("model_id", "model_revision", "adapter_revision", "decoding", "layout", "dtype"),
                "prompt_hash",
            )
        },
    )


def _labelled(
    examples: Sequence[ChangeExample], sampled: Sequence[Sampled], labels: dict[tuple[RowKey, str], Label]
) -> Iterator[ChangeExample]:
    for example, each in zip(examples, sampled, strict=True):
        label = labels.get((each.a.key, each.attribute))
        yield example if label is None else dataclasses.replace(example, gold=label.gold, right=label.right)


def _nothing_in_common(a: Run, b: Run, rows: RowCounts) -> str:
    files = (", ".join(file.name for file in side.plan.files[:3]) for side in (a, b))
    way = "no row" if rows.matched_by == "row" else "no product id that is not doubled"
    read_a, read_b = files
    return f"the runs have nothing in common: {way} is in both ({a.uri} read {read_a}; {b.uri} read {read_b})"


def _notes(runs: Sequence[ComparedRun], settings: Settings, rows: RowCounts) -> Iterator[str]:
    for name, run in zip("AB", runs, strict=True):
        if run.state != "finished":
            going = "still going" if run.state == "running" else "not finished, and nobody works on it"
            yield (
                f"{name} is {going}: {run.rows:,} of {run.planned_rows:,} rows are committed; "
                "only what both have committed is compared"
            )
        if run.unpublished_shards:
            yield (
                f"{name}: {run.unpublished_shards:,} shards are committed and not published yet; their "
                f"{run.unpublished_rows:,} rows are left out"
            )
    if settings.schemas is None:
        yield "Schemas are not compared: one of the runs is too old to say what it asked for (it has no _schemas.json)"
    if rows.doubled_a or rows.doubled_b:
        named = ", ".join(rows.doubled_ids)
        yield (
            f"{rows.doubled_a:,} rows of A and {rows.doubled_b:,} of B are not compared: their product id is doubled, "
            f"so nobody can tell which belongs to which ({named}{', ...' if len(rows.doubled_ids) > 4 else ''})"
        )
    if rows.no_id_a or rows.no_id_b:
        yield f"{rows.no_id_a:,} rows of A and {rows.no_id_b:,} of B have no product id, and are not compared"
    if rows.text_changed:
        what = "all" if rows.text_changed == rows.both else f"{rows.text_changed:,} of {rows.both:,}"
        yield (
            f"{what} rows in both have another text (or category, or order of fields): they are counted apart, "
            "because their difference is not the model's"
        )


# Of an engine's description, what the configuration does not say: where 'auto' and names have led to.
_ENGINE_KEYS = (
    "model_revision",
    "adapter_revision",
    "dtype",
    "quantization",
    "attention",
    "layers",
    "prompt_hash",
    "device",
    "device_name",
    "versions",
)


@dataclass(frozen=True, slots=True)
class Setting:
    """A key with different values; null if a run lacks it."""

    key: str
    a: Any
    b: Any


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A difference of a category's schema, or of one attribute of it, in words."""

    category: str
    attribute: str | None
    change: str


@dataclass(frozen=True, slots=True)
class Settings:
    """Differences between the runs' settings.

    Attributes:
        config: keys of the configuration that decide results.
        engine: revisions, precision, device and versions that were loaded.
        schemas: None if one of the runs did not record its schemas.
        files: input files, a line each.
        same_files: whether rows can be matched by their place, because both runs read the same files.
    """

    config: Sequence[Setting]
    engine: Sequence[Setting]
    schemas: Sequence[SchemaChange] | None
    files: Sequence[str]
    same_files: bool


def compare_settings(a: Run, b: Run) -> Settings:
    """Return the differences, in the order of the keys."""
    engine_a, engine_b = ({key: side.engine.get(key) for key in _ENGINE_KEYS} for side in (a, b))
    files = list(a.plan.files) != list(b.plan.files)
    return Settings(
        config=[Setting(*change) for change in changed_keys(dict(a.plan.result_config), dict(b.plan.result_config))],
        engine=[Setting(*change) for change in changed_keys(engine_a, engine_b)],
        schemas=None if a.schemas is None or b.schemas is None else _schema_changes(a.schemas, b.schemas),
        files=file_differences(a.plan.files, b.plan.files) if files else [],
        same_files=_same_files(a, b),
    )


def _schema_changes(a: Mapping[str, CategorySchema], b: Mapping[str, CategorySchema]) -> list[SchemaChange]:
    return [SchemaChange(remark.category, remark.attribute, remark.message) for remark in diff(a, b)]


def _same_files(a: Run, b: Run) -> bool:
    """Return whether one run read exactly the files of the other, or some of them."""
    first, second = ({(file.name, file.fingerprint) for file in side.plan.files} for side in (a, b))
    names = {name for name, _ in first | second}
    return len(names) == len(first | second) and (first <= second or second <= first)


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures for the compared shards. None means unknown. A price of zero is a price.

    Attributes:
        metered_shards: number of shards with metrics; time, tokens and dollars cover only these.
        values: number of answers that are values.
        decoded: products that the run decoded itself, at least in part; the others were carried over and cost nothing.
        wall_seconds: seconds with an engine alive or a shard in progress; without pauses between sessions.
        billed_seconds: engine seconds billed; busy_seconds: those spent computing; load_seconds: those spent loading.
        products_per_second: decoded products by wall seconds; products_per_engine_second: by billed seconds.
        tokens: number of tokens by kind.
        retries: tries of shards beyond the first, of `retried_shards`.
        hardware: GPU types (or "cpu") and instance types, if known.
        priced_shards: number of shards with a known price; dollars cover only these.
        usd_per_1k: dollars billed per 1,000 decoded products.
    """

    shards: int
    metered_shards: int
    products: int
    values: int
    decoded: int
    dead_letters: int
    wall_seconds: float | None
    billed_seconds: float | None
    busy_seconds: float | None
    load_seconds: float | None
    products_per_second: float | None
    products_per_engine_second: float | None
    tokens: Mapping[str, int]
    steps: int | None
    retries: int | None
    retried_shards: int | None
    hardware: tuple[str, ...]
    priced_shards: int
    usd_per_engine_hour: float | None
    usd_billed: float | None
    usd_useful: float | None
    usd_per_1k: float | None

    @property
    def is_metered(self) -> bool:
        """Whether sums of time, tokens and steps cover all shards."""
        return self.metered_shards == self.shards

    @property
    def is_priced(self) -> bool:
        """Whether sums of dollars cover all shards."""
        return self.priced_shards == self.shards


def read_figures(side: Run) -> tuple[Figures, list[str]]:
    """Return the figures, and notes on them. Raises `UsageError` if the metrics cannot be read."""
    account, machines = read_account(side.parts)
    totals = side.totals
    time, money = (account.time, account.money) if account is not None else (None, None)
    return Figures(
        shards=totals.shards,
        metered_shards=account.shards if account else 0,
        products=totals.products,
        values=totals.statuses["value"],
        decoded=totals.decoded,
        dead_letters=totals.dead_letters,
        wall_seconds=account.wall_seconds if account else None,
        billed_seconds=time.billed if time else None,
        busy_seconds=time.busy if time else None,
        load_seconds=time.load if time else None,
        products_per_second=account.products_per_second if account else None,
        products_per_engine_second=account.products_per_engine_second if account else None,
        tokens=account.tokens if account else {},
        steps=account.num_steps if account else None,
        retries=account.retries if account else None,
        retried_shards=account.retried_shards if account else None,
        hardware=(*machines.devices, *machines.instances),
        priced_shards=money.shards if money else 0,
        usd_per_engine_hour=money.usd_per_hour if money else None,
        usd_billed=money.billed if money else None,
        usd_useful=money.useful if money else None,
        usd_per_1k=money.per_1k if money else None,
    ), machines.notes
