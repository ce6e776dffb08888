"""Line with the cost of a run so far, shown during the run and at its end."""

from __future__ import annotations

from pipelines.console.money import dollars
from pipelines.store.totals import Totals, loading_note


def describe_cost(totals: Totals) -> str:
    """Return the cost of the committed shards that have a price; at least one must have one."""
    billed, useful = totals.metrics["cost_billed"], totals.metrics["cost_useful"]
    text = f"{dollars(billed)} for the engines, {dollars(useful)} of it computing"
    if (usd_per_1k := totals.usd_per_1k) is not None:
        text += f"; {dollars(usd_per_1k)} per 1,000 decoded products"
        if note := loading_note(totals.metrics["load_seconds"], totals.metrics["billed_seconds"]):
            text += f" ({note})"
    if totals.priced_shards < totals.shards:
        text += f" (only {totals.priced_shards:,} of {totals.shards:,} shards have a price)"
    return text
