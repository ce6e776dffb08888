"""Results of learning and deciding, as text."""

from __future__ import annotations

from rich.console import Console

from pipelines.calibrating.learned import Learned
from pipelines.confidence.decider import Decider
from pipelines.quality.score_tables import print_reliability
from pipelines.rewriting.decided_run import DecidedRun

_MAX_SHOWN = 10


def print_learned(console: Console, learned: Learned, precision: float | None) -> None:
    """Print sample sizes, how well the confidences hold, and what can be promised."""
    about = learned.calibration.about
    labels, loss, ece = about["labels"], about["log_loss"], about["ece"]
    console.print(
        f"{labels['values']:,} labelled values of {labels['products']:,} products and {labels['attributes']:,} "
        f"attributes, {labels['right']:,} right; {about['curve']} curve, {about['folds']} folds"
    )
    if others := about["labels_of_earlier_definitions"]:
        console.print(f"  {others:,} more are left out: of attributes that the last run with them defines otherwise")
    console.print(
        f"  log loss {loss['before']:.3f} -> {loss['after']:.3f}, expected calibration error {ece['before']:.3f} -> "
        f"{ece['after']:.3f} (of products that were not learned from)"
    )
    print_reliability(console, "confidence", learned.reliability)
    if precision is not None:
        _print_promises(console, Decider(learned.calibration, precision), learned)


def _print_promises(console: Console, decider: Decider, learned: Learned) -> None:
    found = decider.to_dict()
    labels = learned.calibration.about["labels"]["values"]
    own = found["own"]
    taken = sum(each["labels"] for each in own) + (found["together"]["labels"] if found["together"] else 0)
    console.print(
        f"At a precision of {decider.precision:g}: {found['attributes_promised']} attributes have a threshold of their "
        f"own, {found['attributes_promised_together']} one together, of {found['attributes_labelled']} with labels; "
        f"{taken:,} of {labels:,} labelled values ({taken / labels:.0%}) would be accepted"
    )
    if found["together"]:
        console.print(f"  together: {_threshold(found['together'])}")
    for each in own[:_MAX_SHOWN]:
        console.print(f"  {each['category']} > {each['attribute']}: {_threshold(each)}")
    if len(own) > _MAX_SHOWN:
        console.print(f"  and {len(own) - _MAX_SHOWN} more")
    if not own and not found["together"]:
        console.print("  Nothing can be promised: every value is for review. More labels, or a lower precision, help")


def _threshold(promise: dict[str, float]) -> str:
    return (
        f"from {promise['confidence']:g} on, {promise['right']:,} of {promise['labels']:,} right (at least "
        f"{promise['at_least']:.3f})"
    )


def print_decided(console: Console, found: DecidedRun, is_trial: bool) -> None:
    """Print the changes of the run's answers."""
    verb = "would change" if is_trial else "changed"
    console.print(
        f"{found.num_values:,} values, {found.num_confident:,} with a confidence, {found.num_changed:,} answers "
        f"{verb}; {found.num_rewritten:,} of {found.num_parts:,} parts {'would be ' if is_trial else ''}written"
    )
    if found.decisions:
        console.print(f"  accept {found.decisions['accept']:,}, review {found.decisions['review']:,}")
