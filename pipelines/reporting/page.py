"""Facts as one HTML file and as JSON, from templates that escape every string of a catalog.

A page is self-contained. Two defences protect the reader from a catalog's text. Every string is escaped on insertion,
and a Content-Security-Policy allows only the page's own script and style, by their hashes. No catalog string is ever
put into an attribute, a script or a style.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pipelines.job.source_texts import MATCHES, TextSegment, match_class
from pipelines.quality.scoring import few_products
from pipelines.reporting import charts, formats
from pipelines.reporting.report_facts import Facts
from pipelines.reporting.sample_facts import SampledProduct, SampledValue
from pipelines.reporting.table_scan import DOUBTFUL
from pipelines.reporting.value_facts import CategoryFacts
from pipelines.store.folders import Folder
from pipelines.store.totals import sum_of_known

_CHART_NAMES = ("bar", "stacked", "interval", "reliability")
_CHARTS = {name: getattr(charts, name) for name in _CHART_NAMES}
_NUM_COLOURS = 8
# In the page, so that it stays readable; report.json has all.
_MAX_CATEGORIES, _MAX_ATTRIBUTES, _MAX_PAIRS = 300, 300, 1200
TOKEN_NAMES = {
    "prefix_tokens_reused": "prefix, reused",
    "prefix_tokens_computed": "prefix, computed",
    "document_tokens": "documents",
    "document_tokens_shared": "documents, shared",
    "key_tokens": "keys",
    "value_tokens": "values",
    "scored_tokens": "values, scored",
}


def render_html(facts: Facts) -> str:
    """Render the page."""
    templates = _templates()
    style, script = templates.asset("report.css"), templates.asset("report.js")
    return templates.page("report.html.j2", _context(facts), style=style, script=script)


def render_json(facts: Facts) -> str:
    """Render all facts as JSON, for machines."""
    return json.dumps(facts.to_dict(), ensure_ascii=False, indent=1)


def _templates() -> Templates:
    filters = {"coded": _coded, "colours": _colours, "flags": _flags, "match": _match, "few_products": few_products}
    return Templates("pipelines.reporting", filters, _CHARTS)


def _context(facts: Facts) -> dict[str, Any]:
    account = facts.account
    numbers = {category.category: index for index, category in enumerate(facts.categories)}
    sampled = {product.category for product in facts.sample.products}
    is_calibrated = facts.verdict.expected_right is not None
    return {
        "is_decided": facts.verdict.accepted is not None,
        "is_calibrated": is_calibrated,
        "certainty": "confidence" if is_calibrated else "probability",
        "has_seconds": any(each.engine_seconds is not None for each in facts.categories),
        **_attributes(facts, numbers),
        "facts": facts,
        "identity": facts.identity,
        "totals": facts.totals,
        "account": account,
        "time": account.time if account is not None else None,
        "money": account.money if account is not None else None,
        "tokens": [(TOKEN_NAMES.get(name, name), count) for name, count in (account.tokens if account else {}).items()],
        "categories": facts.categories[:_MAX_CATEGORIES],
        "other_categories": _others(facts.categories[_MAX_CATEGORIES:]),
        "category_numbers": numbers,
        "sampled_categories": [(name, index) for name, index in numbers.items() if name in sampled],
        "doubtful": DOUBTFUL,
    }


def _attributes(facts: Facts, categories: Mapping[str, int]) -> dict[str, Any]:
    """Return attributes over all categories, then in each, with their numbers.

    HTML attributes never hold catalog names.
    """
    over_all = facts.attributes[:_MAX_ATTRIBUTES]
    numbers = {each.attribute: index for index, each in enumerate(facts.attributes)}
    # One category alone says the same twice.
    in_each = facts.by_category[:_MAX_PAIRS] if len(facts.categories) > 1 else ()
    listed = {each.category for each in in_each}
    sampled = {value.attribute for product in facts.sample.products for value in product.values}
    left_out = len(facts.attributes) - len(over_all) + (len(facts.by_category) - len(in_each) if in_each else 0)
    return {
        "attributes": (*over_all, *in_each),
        "attribute_numbers": numbers,
        "over_all": over_all,
        "num_more_attributes": left_out,
        "listed_categories": [(name, index) for name, index in categories.items() if name in listed],
        "sampled_attributes": [(name, index) for name, index in numbers.items() if name in sampled],
    }


def _others(categories: Sequence[CategoryFacts]) -> CategoryFacts | None:
    """Merge categories into one line that keeps the sums; None if there are none."""
    if not categories:
        return None

    names = [each.name for each in dataclasses.fields(CategoryFacts) if each.name not in ("category", "f1")]
    sums: dict[str, Any] = {name: sum_of_known(getattr(each, name) for each in categories) for name in names}
    return CategoryFacts(category=f"{len(categories):,} others", **sums)


def _coded(text: str) -> Markup:
    """Mark up text between backticks as code."""
    parts = enumerate(map(formats.show, text.split("`")))
    return Markup("").join(Markup("<code>{}</code>").format(part) if index % 2 else part for index, part in parts)


def _colours(segment: TextSegment) -> Markup:
    """Return the CSS classes of a highlighted segment. They are from a closed set of words, so safe in an attribute."""
    several = " multi" if len(segment.values) > 1 else ""
    return Markup(f"c{segment.values[0] % _NUM_COLOURS} {match_class(segment.match or 'fuzzy')}{several}")


def _match(match: str | None) -> Markup:
    return Markup(match if match in MATCHES else "fuzzy")


def _flags(product: SampledProduct) -> Markup:
    """Return the flags that the filter uses, from a closed set of words."""
    flags = {
        "review": product.num_review,
        "ungrounded": product.num_ungrounded,
        "failed": product.num_failed,
        "wrong": product.num_wrong,
        "doubtful": any(_is_doubtful(value) for value in product.values),
    }
    return Markup(" ".join(flag for flag, is_set in flags.items() if is_set))


def _is_doubtful(value: SampledValue) -> bool:
    return value.status != "absent" and value.certainty is not None and value.certainty < DOUBTFUL


def write_report(facts: Facts, out: Folder) -> list[str]:
    """Write both files and return their places."""
    files = {"report.json": render_json(facts), "report.html": render_html(facts)}
    for name, text in files.items():
        out.write(name, text.encode())
    return [out.describe(name) for name in files]


def print_report(facts: Facts, places: list[str], brief: bool) -> None:
    """Print the verdict, the totals and the place of the report; `brief`: only the place."""
    if brief:
        print(f"Report: {places[-1]}")
        return
    for note in facts.notes:
        print(f"NOTE: {formats.plain(note)}")
    verdict = facts.verdict
    print(f"{verdict.headline} {verdict.advice.replace('`', '')}")
    account, money = facts.account, facts.account.money if facts.account else None
    cost = f"{formats.usd(money.billed)}, {formats.usd(money.per_1k)} per 1,000 products" if money else "no price set"
    time = f"; {formats.hours(account.time.billed)} of engines" if account else ""
    f1 = f"; F1 {formats.rate(facts.quality.f1.value)}" if facts.quality else ""
    print(f"{facts.totals.products:,} products: {cost}{time}{f1}")
    print(f"Report: {places[-1]} (the same numbers in report.json)")


_FORMATS = {
    name: getattr(formats, name)
    for name in ("usd", "hours", "number", "share", "rate", "probability", "size", "plain", "leaf")
}


@dataclass(frozen=True, slots=True)
class Templates:
    """The folder `templates` of a package.

    Attributes:
        filters, functions: extras for its templates, besides the formats.
    """

    package: str
    filters: Mapping[str, Any]
    functions: Mapping[str, Any]

    def page(self, name: str, context: Mapping[str, Any], *, style: str, script: str) -> str:
        """Render the page of a template, which inserts `policy`, `style` and `script`."""
        policy = (
            f"default-src 'none'; style-src 'sha256-{_digest(style)}'; script-src 'sha256-{_digest(script)}'; "
            "img-src data:; base-uri 'none'; form-action 'none'"
        )
        assets = {"style": Markup(style), "script": Markup(script), "policy": Markup(policy)}
        return self._environment(_finalize_html, autoescape=True).get_template(name).render({**context, **assets})

    def markdown(self, name: str, context: Mapping[str, Any]) -> str:
        """Render the Markdown of a template."""
        return self._environment(_finalize_markdown, autoescape=False).get_template(name).render(context)

    def asset(self, name: str) -> str:
        """Read a style sheet or script."""
        return resources.files(self.package).joinpath("templates", name).read_text(encoding="utf-8")

    def _environment(self, finalize: Any, *, autoescape: bool) -> Environment:
        environment = Environment(
            loader=PackageLoader(self.package),
            autoescape=autoescape,
            finalize=finalize,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters |= {**_FORMATS, **self.filters}
        environment.globals |= self.functions
        return environment


def _finalize_html(value: Any) -> Any:
    return formats.show(value) if isinstance(value, str) else value


def _finalize_markdown(value: Any) -> Any:
    return formats.markdown(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
