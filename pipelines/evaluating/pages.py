"""A comparison as files: an offline HTML page, JSON and Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from pipelines.evaluating import phrases
from pipelines.evaluating.answer_changes import KINDS, AnswerAgreement, CategoryAgreement, Kind
from pipelines.evaluating.comparison import RunComparison
from pipelines.job.source_texts import TextSegment, match_class
from pipelines.quality.scoring import few_products
from pipelines.reporting import charts
from pipelines.reporting.page import Templates
from pipelines.store.folders import Folder

# Lines of a list: in the page, and before a click; compare.json has all.
_MAX_LINES, _SHOWN_ATTRIBUTES = 500, 25
# The parts of a bar: what is the same, and three ways to differ.
_PARTS: tuple[tuple[Kind, ...], ...] = (KINDS[:3], ("other_value",), ("value_to_absent", "absent_to_value"), KINDS[6:])


def write_pages(comparison: RunComparison, uri: str) -> list[str]:
    """Write the three files to the folder and return their places.

    Raises `UsageError` if a file is where the folder should be, `OSError` if they cannot be written.
    """
    folder = Folder(uri)
    folder.require()
    pages = {
        "compare.html": render_html(comparison),
        "compare.json": json.dumps(comparison.to_dict(), ensure_ascii=False, indent=1),
        "compare.md": render_markdown(comparison),
    }
    for name, text in pages.items():
        folder.write(name, text.encode())
    return [folder.describe(name) for name in pages]


def render_html(comparison: RunComparison) -> str:
    """Render the page."""
    templates = _templates()
    # The look is the report's.
    style = Templates("pipelines.reporting", {}, {}).asset("report.css") + templates.asset("compare.css")
    return templates.page("compare.html.j2", _context(comparison), style=style, script="")


def render_markdown(comparison: RunComparison) -> str:
    """Render the same numbers as Markdown, with the differing values and without their texts."""
    return _templates().markdown("compare.md.j2", _context(comparison))


def _templates() -> Templates:
    functions = {"bar": charts.bar, "stacked": charts.stacked, "words": phrases, "parts": _parts}
    return Templates("pipelines.evaluating", {"owner": _owner, "few_products": few_products}, functions)


def _context(comparison: RunComparison) -> dict[str, Any]:
    counted = [each for each in comparison.by_attribute if each.agreement.share is not None]
    alone = [each for each in comparison.by_attribute if each.only_a or each.only_b]
    categories = [each for each in comparison.by_category if each.agreement.share is not None]
    return {
        "comparison": comparison,
        "a": comparison.a,
        "b": comparison.b,
        "rows": comparison.rows,
        "same": comparison.same_text,
        "quality": comparison.quality,
        "counted": counted[:_MAX_LINES],
        "num_counted": len(counted),
        "shown": _SHOWN_ATTRIBUTES,
        "max_lines": _MAX_LINES,
        "categories": categories[:_MAX_LINES],
        "other_categories": _other_categories(categories[_MAX_LINES:]),
        "alone": alone[:_MAX_LINES],
        "other_alone": alone[_MAX_LINES:],
    }


def _other_categories(categories: Sequence[CategoryAgreement]) -> dict[str, int] | None:
    """Merge categories into one line that keeps the sums; None if there are none."""
    if not categories:
        return None
    return {
        "number": len(categories),
        "num_rows": sum(each.num_rows for each in categories),
        "num_same": sum(each.agreement.num_same for each in categories),
        "num_answers": sum(each.agreement.num_answers for each in categories),
    }


def _parts(agreement: AnswerAgreement) -> list[float]:
    """Return the shares of equal answers and of three kinds of difference."""
    return [sum(agreement.kinds[kind] for kind in part) / (agreement.num_answers or 1) for part in _PARTS]


def _owner(segment: TextSegment) -> Markup:
    """Return the CSS classes of a highlighted segment, from a closed set: whose value stands there, and how."""
    whose = "ab" if len(segment.values) > 1 else "ab"[segment.values[0]]
    return Markup(f"in-{whose} {match_class(segment.match or '')}")
