"""A comparison on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console

from pipelines.comparing import phrases
from pipelines.comparing.comparison import RunComparison
from pipelines.comparing.examples import ChangeExample
from pipelines.console.shown_names import with_shown_names
from pipelines.console.terminal import SafeTable, printable
from pipelines.quality.scoring import few_products

_MAX_LINES = 10  # of schema changes, attributes, examples


def print_comparison(console: Console, comparison: RunComparison) -> None:
    """Print everything, with lists cut to what fits on a screen."""
    for note in comparison.notes:
        console.print(printable(f"NOTE: {note}"), style="bold yellow", soft_wrap=True)
    _print_changes(console, comparison)
    _lines(console, "Runs", phrases.run_lines(comparison))
    if settings := phrases.setting_lines(comparison):
        _lines(console, "Settings that differ", settings)
    else:
        console.print("No setting that decides results differs.")
    _list(console, "Schemas differ:", phrases.schema_lines(comparison))
    _list(console, "Input files differ:", comparison.settings.files)
    _table(console, "Rows", ["", "#"], phrases.row_lines(comparison))
    console.print(f"Same text: {phrases.headline(comparison)}", soft_wrap=True)
    _table(console, "", ["A → B", "#answers", "#share"], phrases.kind_lines(comparison.same_text))
    if failures := phrases.status_lines(comparison.same_text):
        _table(console, "Failures", ["A", "B", "#answers"], failures)
    if comparison.changed_text.num_answers:
        title = f"Another text: {comparison.rows.text_changed:,} rows, not the model's difference alone"
        _table(console, title, ["A → B", "#answers", "#share"], phrases.kind_lines(comparison.changed_text))
    _print_agreement(console, comparison)
    if trust := phrases.trust_lines(comparison):
        columns = ["category", "attribute", *(f"#{word}" for word in phrases.TRUST_WORDS)]
        _table(console, _cut("Answers that are trusted otherwise", trust), columns, trust[:_MAX_LINES])
    _print_quality(console, comparison)
    _lines(console, "Cost and speed", phrases.figure_lines(comparison), change=True)
    _print_examples(console, "Answers to changed texts that differ", comparison.changed_examples)
    _print_examples(console, "Answers to the same text that differ", comparison.examples)


def _print_changes(console: Console, comparison: RunComparison) -> None:
    lines = phrases.change_lines(comparison)
    console.print(f"What changed{':' if lines else ': nothing'}", style="bold")
    for line in lines:
        console.print(f"  {line}", soft_wrap=True)


def _print_agreement(console: Console, comparison: RunComparison) -> None:
    categories = [
        (
            each.category,
            f"{each.num_rows:,}",
            f"{each.agreement.num_same:,}",
            f"{each.agreement.num_answers:,}",
            phrases.share(each.agreement.share),
        )
        for each in comparison.by_category
        if each.agreement.share is not None
    ]
    columns = ["category", "#rows", "#same", "#of", "#share [95%]"]
    _table(console, _cut("Agreement by category", categories), columns, categories[:_MAX_LINES])
    attributes = [
        (
            each.category,
            each.attribute,
            f"{each.agreement.num_same:,}",
            f"{each.agreement.num_answers:,}",
            phrases.share(each.agreement.share),
            *(str(each.agreement.kinds[kind]) for kind in phrases.DIFFERENT_KINDS[:3]),
            str(phrases.num_failures(each.agreement)),
        )
        for each in comparison.by_attribute
        if each.agreement.share is not None
    ]
    kinds = [f"#{phrases.KIND_WORDS[kind]}" for kind in phrases.DIFFERENT_KINDS[:3]]
    columns = ["category", "attribute", "#same", "#of", "#share [95%]", *kinds, "#failures"]
    _table(console, _cut("Least agreeing attributes", attributes), columns, attributes[:_MAX_LINES])
    alone = [
        (each.category, each.attribute, f"{each.only_a:,}", f"{each.only_b:,}")
        for each in comparison.by_attribute
        if each.only_a or each.only_b
    ]
    if alone:
        columns = ["category", "attribute", "#rows of A", "#rows of B"]
        _table(console, _cut("Asked for by one run alone, not counted", alone), columns, alone[:_MAX_LINES])


def _print_quality(console: Console, comparison: RunComparison) -> None:
    quality = comparison.quality
    if quality is None:
        return
    console.print(
        printable(
            f"Against {quality.gold}: {quality.num_products:,} of its {quality.num_gold_products:,} products are in "
            f"both, {quality.num_labels:,} labelled attributes"
        )
    )
    lines = [line for rates in quality.rates for line in phrases.rate_lines(rates)]
    title = f"Micro, with 95% intervals{few_products(quality.num_products)}"
    _table(console, title, ["", "#A", "#B", "#B - A, paired"], lines)
    if not quality.verdicts:
        return
    verdicts = [
        (each.category, each.attribute, *map(str, (each.a, each.b, each.both, each.neither)))
        for each in quality.verdicts
    ]
    sums = [str(sum(getattr(each, key) for each in quality.verdicts)) for key in phrases.RIGHT_WORDS]
    columns = ["category", "attribute", "#A", "#B", "#both", "#neither"]
    title = _cut("Who is right where the runs differ", verdicts)
    _table(console, title, columns, [*verdicts[:_MAX_LINES], ("all", "", *sums)])


def _print_examples(console: Console, title: str, examples: Sequence[ChangeExample]) -> None:
    if not examples:
        return
    with_gold = any(example.gold is not None for example in examples)
    columns = ["product", "attribute", "A", "stands in", "B", "stands in", *(["gold", "right"] if with_gold else [])]
    step = max(1.0, len(examples) / _MAX_LINES)
    shown = [examples[int(index * step)] for index in range(min(_MAX_LINES, len(examples)))]
    rows = []
    for example in shown:
        cells = [example.product_id, example.attribute]
        for answered in (example.a, example.b):
            cells += [phrases.answer(answered), "; ".join(filter(None, map(phrases.places, answered.items)))]
        if with_gold:
            cells += [example.gold or "(no label)", phrases.RIGHT_WORDS[example.right] if example.right else ""]
        rows.append(cells)
    _table(console, _cut(title, examples), columns, rows)


def _cut(title: str, lines: Sequence[object]) -> str:
    return title if len(lines) <= _MAX_LINES else f"{title}, {_MAX_LINES} of {len(lines):,}"


def _lines(console: Console, title: str, lines: Sequence[phrases.Line], change: bool = False) -> None:
    columns = ["", "A", "B"] if not change else ["", "#A", "#B", "#change"]
    _table(console, title, columns, [line[: len(columns)] for line in lines])


def _list(console: Console, title: str, lines: Sequence[str]) -> None:
    if not lines:
        return
    console.print(title)
    for line in lines[:_MAX_LINES]:
        console.print(printable(f"  {line}"), soft_wrap=True)
    if len(lines) > _MAX_LINES:
        console.print(f"  ... and {len(lines) - _MAX_LINES:,} more")


def _table(console: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table. `#` before the name of a column marks numbers."""
    table = SafeTable(title=title or None, title_justify="left")
    for column in columns:
        is_number = column.startswith("#")
        table.add_column(column.removeprefix("#"), justify="right" if is_number else "left", no_wrap=is_number)
    for row in with_shown_names(columns, rows):
        table.add_row(*row)
    console.print(table)
