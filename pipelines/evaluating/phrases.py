"""A comparison in words and figures, shared by the terminal, the page and the Markdown file."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from pipelines.evaluating.answer_changes import KINDS, SAME_KINDS, AnswerAgreement, Kind
from pipelines.evaluating.comparison import RunComparison
from pipelines.evaluating.examples import Answered, PairedRates, ShownItem
from pipelines.quality.scoring import Estimate
from pipelines.reporting import formats
from pipelines.reporting.page import TOKEN_NAMES

KIND_WORDS: dict[Kind, str] = {
    "same_value": "same value",
    "both_absent": "both absent",
    "both_failed": "both failed",
    "other_value": "another value",
    "value_to_absent": "value → absent",
    "absent_to_value": "absent → value",
    "to_failure": "answer → failure",
    "from_failure": "failure → answer",
    "other_failure": "another failure",
}
DIFFERENT_KINDS: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind not in SAME_KINDS)
TRUST_WORDS = ("now accepted", "now to review", "now a person's", "no longer a person's")
RIGHT_WORDS = {"a": "A", "b": "B", "both": "both", "neither": "neither"}
_MAX_SETTING, _MAX_ANSWER = 160, 300  # characters that are shown


class Line(NamedTuple):
    """A line of a table: its label, the figures of A and B, and the change from A to B if it is a number."""

    label: str
    a: str
    b: str
    change: str = ""


def run_lines(comparison: RunComparison) -> list[Line]:
    """Return lines that identify the two runs."""
    a, b = comparison.a, comparison.b
    pairs = [
        ("folder", a.uri, b.uri),
        ("run", a.run_id, b.run_id),
        ("state", *(f"{run.state}, {run.rows:,} of {run.planned_rows:,} rows" for run in (a, b))),
        ("begun", a.created_at, b.created_at),
        ("model", *(_join(run.model_id, run.model_revision) for run in (a, b))),
        ("adapter", *(run.adapter_revision or "none" for run in (a, b))),
        ("decoding", *(_join(run.decoding, run.layout, run.dtype) for run in (a, b))),
    ]
    return [Line(*pair) for pair in pairs]


def setting_lines(comparison: RunComparison) -> list[Line]:
    """Return lines on the differences of configurations and engines."""
    settings = comparison.settings
    return [Line(each.key, _setting(each.a), _setting(each.b)) for each in (*settings.config, *settings.engine)]


def schema_lines(comparison: RunComparison) -> list[str]:
    """Return lines on the differences of the schemas."""
    changes = comparison.settings.schemas or ()
    return [f"{' > '.join(filter(None, (change.category, change.attribute)))}: {change.change}" for change in changes]


def row_lines(comparison: RunComparison) -> list[tuple[str, str]]:
    """Return lines on where the rows of both runs are."""
    rows = comparison.rows
    by = "file and row number" if rows.matched_by == "row" else "product id"
    lines = [
        (f"in both, by {by}", rows.both),
        ("only in A", rows.only_a),
        ("only in B", rows.only_b),
        ("not comparable: doubled id, A", rows.doubled_a),
        ("not comparable: doubled id, B", rows.doubled_b),
        ("not comparable: no id, A", rows.no_id_a),
        ("not comparable: no id, B", rows.no_id_b),
        ("in both, with another text", rows.text_changed),
        ("in both, dead-lettered in A alone", rows.dead_a),
        ("in both, dead-lettered in B alone", rows.dead_b),
        ("in both, dead-lettered twice", rows.dead_both),
        ("in both, taken over as a whole by A", rows.carried_a),
        ("in both, taken over as a whole by B", rows.carried_b),
    ]
    return [(label, f"{number:,}") for label, number in lines if number or label.startswith(("in both, by", "only"))]


def figure_lines(comparison: RunComparison) -> list[Line]:
    """Return lines on cost and speed."""
    a, b = comparison.a.figures, comparison.b.figures
    kinds = dict.fromkeys([*a.tokens, *b.tokens])
    # Of sums over other shards, a change says nothing; rates and prices are of the shards that are known.
    time, money = a.is_metered and b.is_metered, a.is_priced and b.is_priced
    lines = [
        _number("products", a.products, b.products),
        _number("values", a.values, b.values),
        _number("decoded here, not taken over", a.decoded, b.decoded),
        _number("dead letters", a.dead_letters, b.dead_letters),
        _number("products/s", a.products_per_second, b.products_per_second),
        _number("products/s of an engine", a.products_per_engine_second, b.products_per_engine_second),
        _number("wall time", a.wall_seconds, b.wall_seconds, formats.hours, is_whole=time),
        _number("engine time, billed", a.billed_seconds, b.billed_seconds, formats.hours, is_whole=time),
        _number("engine time, computing", a.busy_seconds, b.busy_seconds, formats.hours, is_whole=time),
        _number("engine time, loading", a.load_seconds, b.load_seconds, formats.hours, is_whole=time),
        *(
            _number(f"tokens: {TOKEN_NAMES.get(kind, kind)}", a.tokens.get(kind), b.tokens.get(kind), is_whole=time)
            for kind in kinds
        ),
        _number("steps", a.steps, b.steps, is_whole=time),
        _number("shards tried again", a.retried_shards, b.retried_shards, is_whole=time),
        _number("tries beyond the first", a.retries, b.retries, is_whole=time),
        Line("hardware", *("; ".join(each.hardware) or formats.NONE for each in (a, b))),
        _number("an engine hour", a.usd_per_engine_hour, b.usd_per_engine_hour, formats.usd),
        _number("cost", a.usd_billed, b.usd_billed, formats.usd, is_whole=money),
        _number("of it computing", a.usd_useful, b.usd_useful, formats.usd, is_whole=money),
        _number("cost of 1,000 decoded products", a.usd_per_1k, b.usd_per_1k, formats.usd),
    ]
    return [line for line in lines if (line.a, line.b) != ("0", "0")]


def change_lines(comparison: RunComparison) -> list[str]:
    """Return the changes from A to B, a line each; empty if nothing changed."""
    rows, same, changed = comparison.rows, comparison.same_text, comparison.changed_text
    accepted, to_review, reviewed, no_longer = (
        sum(int(each[place]) for each in comparison.trust) for place in range(2, 6)
    )
    lines: list[tuple[int, str]] = [
        (rows.only_a + rows.only_b, f"Products: {rows.only_b:,} new, {rows.only_a:,} gone"),
        (rows.text_changed, f"Products with another text: {rows.text_changed:,}; {_changed_of(changed)}"),
        (same.num_answers - same.num_same, f"Products with the same text: {_changed_of(same)}"),
        (rows.dead_a + rows.dead_b, f"Dead letters: {rows.dead_b:,} new, {rows.dead_a:,} gone"),
        (accepted + to_review, f"Decisions: {accepted:,} answers now accepted, {to_review:,} now to review"),
        (reviewed + no_longer, f"Answers of people: {reviewed:,} new, {no_longer:,} gone"),
    ]
    return [line for number, line in lines if number]


def _changed_of(agreement: AnswerAgreement) -> str:
    return f"{agreement.num_answers - agreement.num_same:,} of {agreement.num_answers:,} answers changed"


def trust_lines(comparison: RunComparison) -> list[tuple[str, ...]]:
    """Return attributes with another decision or source of answers: category, attribute and the counts."""
    return [(each.category, each.attribute, *(f"{number:,}" for number in each[2:])) for each in comparison.trust]


def standing(answered: Answered) -> str:
    """Return who gave an answer and its decision; empty for a model's answer without a decision."""
    decided = {"accept": "accepted", "review": "to review"}.get(answered.decision or "", "")
    return ", ".join(filter(None, ["by a person" if answered.is_reviewed else "", decided]))


def headline(comparison: RunComparison) -> str:
    """Return the agreement of the runs in one sentence."""
    agreement = comparison.same_text
    if agreement.share is None:
        return "no answer to compare: no row has the same text in both"
    text = (
        f"{agreement.num_same:,} of {agreement.num_answers:,} answers are the same: {share(agreement.share)}, "
        "95% interval over products"
    )
    if agreement.num_same_decode:
        decoded = agreement.num_answers - agreement.num_same_decode
        same = agreement.num_same - agreement.num_kept
        of_them = f"; of those decoded by both, {formats.share(same / decoded)}" if decoded else ""
        text += f" ({agreement.num_kept:,} of them are one decode that was taken over{of_them})"
    return text


def kind_lines(agreement: AnswerAgreement) -> list[tuple[str, str, str]]:
    """Return the kinds of change that occur, with number and share."""
    return [
        (KIND_WORDS[kind], f"{number:,}", formats.share(number / agreement.num_answers))
        for kind, number in agreement.kinds.items()
        if number
    ]


def num_failures(agreement: AnswerAgreement) -> int:
    """Return the number of answers that differ because of a failure in one run, or of different failures in both."""
    return sum(agreement.kinds[kind] for kind in DIFFERENT_KINDS[3:])


def status_lines(agreement: AnswerAgreement) -> list[tuple[str, str, str]]:
    """Return the status pairs of A and B with at least one failure, with their number."""
    pairs = ((pair.replace("_", " ").split(" > "), number) for pair, number in agreement.statuses.items())
    return [(a, b, f"{number:,}") for (a, b), number in pairs if {a, b} - {"value", "absent"}]


def rate_lines(rates: PairedRates) -> list[Line]:
    """Return precision, recall and F1 with intervals, and their differences."""
    return [
        Line(
            f"{rates.comparison} {name}",
            figure(getattr(rates.a, key)),
            figure(getattr(rates.b, key)),
            figure(getattr(rates.difference, key), sign=True),
        )
        for name, key in (("precision", "precision"), ("recall", "recall"), ("F1", "f1"))
    ]


def share(estimate: Estimate) -> str:
    """Format a share with its interval, in percent."""
    return f"{formats.share(estimate.value)} [{formats.share(estimate.low)}, {formats.share(estimate.high)}]"


def figure(estimate: Estimate, sign: bool = False) -> str:
    """Format a rate with its interval."""
    form = "+.3f" if sign else ".3f"
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"


def answer(answered: Answered) -> str:
    """Format an answer: its values, or its status and the model's text; then its source and decision."""
    text = value_text(answered)
    if answered.status != "value":
        text = f"({answered.status}{f': {text}' if text else ''})"
    return text + (f" [{said}]" if (said := standing(answered)) else "")


def quoted_answer(answered: Answered) -> str:
    """Return an answer, its text in quotes: in a line of text, nothing within it can pass for the rest of the line."""
    text = value_text(answered)
    return answer(answered).replace(text, quoted(text), 1) if text else answer(answered)


def quoted(text: str) -> str:
    """Return a text in quotes, with its white space and quotes escaped."""
    return json.dumps(text, ensure_ascii=False)


def value_text(answered: Answered) -> str:
    """Format the values, or the model's text; empty if there is none."""
    return formats.shortened("; ".join(item.text for item in answered.items if item.text is not None), _MAX_ANSWER)


def places(item: ShownItem) -> str:
    """Format the places of a value in the text."""
    if item.evidence is None:
        return ""
    if item.is_ungrounded:
        return "not in the text"
    return ", ".join(
        f"{place.field} {place.start}-{place.end}" + ("" if place.match == "exact" else f" ({place.match})")
        for place in item.evidence[:3]
    ) + (", ..." if len(item.evidence) > 3 else "")


def _join(*parts: str | None) -> str:
    return ", ".join(part for part in parts if part) or formats.NONE


def _setting(value: Any) -> str:
    if value is None:
        return formats.NONE
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return formats.shortened(text, _MAX_SETTING)


def _number(
    label: str,
    a: float | None,
    b: float | None,
    form: Callable[[float | None], str] = formats.number,
    *,
    is_whole: bool = True,
) -> Line:
    """Return a line of two numbers. `is_whole`: both cover all of their run's shards."""
    change = f"{b / a - 1:+.1%}" if a and b is not None else ""
    return Line(label, form(a), form(b), formats.NONE if change and not is_whole else change)
