"""Summary of an export in the terminal."""

from __future__ import annotations

from pipelines.exporting.acceptance import NOT_NORMALISED
from pipelines.exporting.driver import Exported
from pipelines.exporting.left_out import NOT_STATED
from pipelines.reporting import formats
from pipelines.reviewing.checked_items import as_read

_MAX_EXAMPLES = 8
_MAX_VALUE = 60


def print_exported(exported: Exported) -> None:
    """Print the files, the counts of written and left-out answers, and examples of these."""
    for note in exported.notes:
        print(f"NOTE: {formats.plain(note)}")
    files = formats.plain(", ".join(exported.files))
    kind = "accepted answers" if exported.is_decided else "unchecked answers (the run was not asked to decide: accept)"
    print(f"{exported.num_products:,} products, {exported.num_values:,} {kind}: {files}")
    for reason, count in exported.left_out.by_reason.items():
        what = "not stated in the text" if reason == NOT_STATED else f"left out, {reason}"
        print(f"  {count:,} answer{'s' * (count != 1)} {formats.plain(what)}")
    _print_examples(exported)
    if exported.num_dead_letters:
        count = exported.num_dead_letters
        given_up = "rows were given up" if count > 1 else "row was given up"
        print(f"  {count:,} {given_up}, and no product: {exported.run}/dead_letter says why")


def _print_examples(exported: Exported) -> None:
    examples = [row for row in exported.left_out.to_list() if row["reason"] != NOT_STATED]
    for row in examples[:_MAX_EXAMPLES]:
        value = formats.shortened(row["value"] or "", _MAX_VALUE)
        line = f"{row['attribute']}: {row['reason']} ({row['count']:,}), such as {value!r} of {row['product_id']}"
        if row["reason"] == NOT_NORMALISED["conflict"]:
            line += f", which {as_read(row['value'] or '')} by itself"
        print(f"    {formats.plain(line)}")
    if len(examples) > _MAX_EXAMPLES:
        print(f"    and {len(examples) - _MAX_EXAMPLES:,} more; --json has all of them")
