"""Comparison of two runs, as data. Answers are counted in comparing/answer_changes.py and joined in joined_runs.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.comparing.answer_changes import (
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
from pipelines.comparing.cost_figures import Figures, read_figures
from pipelines.comparing.examples import ChangeExample, read_examples
from pipelines.comparing.gold_comparison import GoldQuality, Label, compare_quality
from pipelines.comparing.joined_runs import JoinedRuns, RowCounts, Sampled
from pipelines.comparing.setting_changes import Settings, compare_settings
from pipelines.errors import UsageError
from pipelines.job.run_status import State
from pipelines.quality.run_answers import RowKey
from pipelines.reviewing.texts_in_run import left_out_note
from pipelines.runs.run import Run

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
