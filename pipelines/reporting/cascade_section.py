"""Facts about a run's second pass, from its totals and from the curve of `hpd plan --gold`."""

from __future__ import annotations

from typing import Any

from pipelines.cascading.curve import CURVE_NAME, Curve
from pipelines.reporting.facts.cascade import CascadeFacts
from pipelines.store.folders import Folder
from pipelines.store.ledger import pilot_folder
from pipelines.store.run import Run


def cascade_facts(run: Run) -> tuple[CascadeFacts | None, list[str]]:
    """Return the facts (None for a run of one model) and notes."""
    settings: dict[str, Any] | None = run.plan.result_config.get("cascade")
    if settings is None:
        return None, []
    curve, place, notes = _read_curve(run.folder.uri)
    found = run.status.totals.cascade
    larger = " + ".join(str(settings[key]) for key in ("model", "adapter") if settings.get(key))
    counts = {name: found[name] for name in ("answers", "asked", "products", "changed", "kept")}
    return CascadeFacts(larger, settings["below"], **counts, curve=curve, curve_place=place), notes


def _read_curve(uri: str) -> tuple[Curve | None, str, list[str]]:
    folder = Folder(pilot_folder(uri))
    place = folder.describe(CURVE_NAME)
    try:
        data = folder.read_json(CURVE_NAME)
        return None if data is None else Curve.from_dict(data), place, []
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return None, place, [f"The curve of F1 against cost in {place} is left out: {type(error).__name__}: {error}."]
