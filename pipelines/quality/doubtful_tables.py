"""Rechecked labels as text: number of doubtful labels, their attributes, and the surest of them in full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from pipelines.console.shown_names import shown_names
from pipelines.console.terminal import printable, titled_table
from pipelines.quality.doubtful_labels import DoubtfulLabel, RecheckedLabels

_MAX_ATTRIBUTES = 10
_MAX_TEXT = 120


def print_rechecked(console: Console, found: RecheckedLabels, num_runs: int, limit: int) -> None:
    """Print the counts, the attributes with the most doubtful labels, and `limit` of these labels."""
    for note in found.notes:
        console.print(f"NOTE: {printable(note)}", style="bold yellow", soft_wrap=True)
    console.print(
        f"{printable(found.gold)}: {found.num_labels:,} labels of {found.num_products:,} of its "
        f"{found.num_gold_products:,} products, against {num_runs} run{'s' if num_runs > 1 else ''}",
        soft_wrap=True,
    )
    if num_runs == 1:
        console.print("Another run, by a model of another seed, layout or size, leaves fewer and surer ones.")
    console.print(_counts(found, num_runs))
    if found.doubtful:
        console.print(_by_attribute(found))
        if limit:
            console.print(_surest(found.doubtful[:limit], len(found.doubtful)))


def _counts(found: RecheckedLabels, num_runs: int) -> Table:
    table = titled_table("Labels", [""], ["labels", "share"])
    rows = {
        "right, say all runs": found.num_right,
        "right, say some": found.num_split,
        "wrong, say all, and not alike": found.num_wrong,
        "doubtful: wrong, say all, with one voice": len(found.doubtful),
        **{f"  {kind}": number for kind, number in found.kinds().items()},
        "a run says nothing": found.num_silent,
    }
    if num_runs == 1:
        del rows["right, say some"]
    for name, number in rows.items():
        table.add_row(name, f"{number:,}", f"{number / found.num_labels:.1%}" if found.num_labels else "-")
    return table


def _by_attribute(found: RecheckedLabels) -> Table:
    counts = Counter((each.product.category, each.attribute) for each in found.doubtful)
    categories = shown_names(category for category, _ in found.labels_of)
    attributes = shown_names(attribute for _, attribute in found.labels_of)
    table = titled_table(
        "Attributes with the most doubtful labels", ["category", "attribute"], ["doubtful", "of", "share"]
    )
    for (category, attribute), number in sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:_MAX_ATTRIBUTES]:
        labels = found.labels_of[category, attribute]
        shown = (categories[category], attributes[attribute])
        table.add_row(*shown, f"{number:,}", f"{labels:,}", f"{number / labels:.0%}")
    return table


def _surest(doubtful: Sequence[DoubtfulLabel], total: int) -> Table:
    title = f"The surest of them, {len(doubtful):,} of {total:,}"
    table = titled_table(title, ["product", "category", "attribute", "label", "answer"], ["sureness"])
    for each in doubtful:
        sureness = "-" if each.sureness is None else f"{each.sureness:.3f}"
        line = f"line {each.product.row + 1}" if each.product.product_id is None else each.product.product_id
        texts = (line, each.product.category, each.attribute, str(each.gold), str(each.answer))
        table.add_row(*(_shortened(text) for text in texts), sureness)
    return table


def _shortened(text: str) -> str:
    """Shorten a label to one line of at most `_MAX_TEXT` characters and an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_TEXT else f"{line[:_MAX_TEXT]}…"
