"""The report's page in a real Chromium: it asks nobody for anything, runs nothing of a catalog, works by keyboard."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.reporting.gather_facts import ReportWishes, gather
from pipelines.reporting.page import render_html
from tests.pipelines.browser import Page
from tests.pipelines.commands import wait_until
from tests.pipelines.reporting.made_runs import Answer, Product, hostile_products, metrics, write_run
from tests.tables import table


def _products() -> list[Product]:
    shoes = [
        Product(
            f"s{number}",
            {"title": f"Velor running shoe, red, {number}", "description": "A red shoe. " * 30},
            {
                "Colour": Answer("red", 0.9),
                "Kind": Answer("running shoe", 0.4 if number % 2 else 0.9),
                "Brand": Answer("Nobody" if number == 3 else "Velor", 0.95),
                "Sole": Answer(None, 0.9, "absent"),
            },
            category="Shoes",
            seconds=1.0,
        )
        for number in range(8)
    ]
    arabic = Product("a0", {"title": "حذاء رياضي أحمر من نايكي"}, {"Brand": Answer("نايكي", 0.8)}, "أحذية", 2.0)
    long_word = Product("l0", {"title": "x" * 600 + " Acme"}, {"Brand": Answer("Acme", 0.7)}, "Shoes", 2.0)
    dead = Product("d0", {"title": "y" * 500}, category="Hats", dead=("no_schema", "no schema for category 'Hats'"))
    return [*shoes, arabic, long_word, dead]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    products, row = _products(), {"busy_seconds": 50.0, "load_seconds": 5.0, "price_per_hour": 3.6}
    rows = [metrics(0, 60, **row), metrics(60, 130, **row)]
    run = write_run(folder, [products[:6], products[6:]], rows)
    gold = folder / "gold.jsonl"
    lines = [f'{{"product_id": "s{n}", "category": "Shoes", "values": {{"Brand": ["Velor"]}}}}' for n in range(4)]
    gold.write_text("\n".join(lines))
    path = folder / "report.html"
    path.write_text(render_html(gather(str(run), ReportWishes(gold=str(gold)))), encoding="utf-8")
    return path


@pytest.fixture
def page(browser: Page, page_file: Path) -> Page:
    browser.open(page_file)
    return browser


@pytest.mark.parametrize(
    ("kind", "expected"), [("ungrounded", {"s3"}), ("doubtful", {"s1", "s3", "s5", "s7"}), ("wrong", {"s3"})]
)
def test_filters(page: Page, kind: str, expected: set[str]) -> None:
    products = "[...document.querySelectorAll('#sample-list .entry')]"
    shown = f"{products}.filter(e => !e.hidden).map(e => e.querySelector('h3').textContent)"
    choose = "(id, value) => { const e = document.getElementById(id); e.value = value; " + (
        "e.dispatchEvent(new Event('input')); }"
    )
    page.evaluate(f"({choose})('sample-kind', '{kind}')")
    assert set(page.evaluate(shown)) == expected
    assert page.evaluate("document.getElementById('sample-count').textContent") == f"{len(expected)} of 10"
    page.evaluate(f"({choose})('sample-search', 'no such text')")
    assert page.evaluate(shown) == []
    assert page.evaluate("!document.getElementById('sample-none').hidden")
    page.evaluate(f"({choose})('sample-search', '')")
    page.evaluate(f"({choose})('sample-kind', '')")
    names = page.evaluate("[...document.getElementById('sample-category').options].map(e => e.text)")
    values = page.evaluate("[...document.getElementById('sample-category').options].map(e => e.value)")
    page.evaluate(f"({choose})('sample-category', '{values[names.index('أحذية')]}')")
    assert page.evaluate(shown) == ["a0"]


_CUT_OFF = """
(() => {
  const scrolls = (e) => e && (/(auto|scroll)/.test(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
  const shown = (e) => e.checkVisibility() && !e.closest('thead') && e.getBoundingClientRect().width > 1;
  return [...document.querySelectorAll('main *, header *')].filter(shown).filter((e) => !scrolls(e.parentElement) &&
    (e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < -1))
    .map((e) => e.outerHTML.slice(0, 120));
})()
"""
_OPEN_ALL = "document.getElementById('sample-fold').click()"


@table("width", [320, 360, 768, 1280])
def test_no_width_needs_sideways_scrolling(browser: Page, page_file: Path, width: int) -> None:
    browser.open(page_file, width=width)
    browser.evaluate(_OPEN_ALL)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("document.body.scrollWidth") <= width
    assert browser.evaluate(_CUT_OFF) == [], "what is wider scrolls in its own container"


def test_a_hostile_catalog_runs_nothing(browser: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path, [hostile_products()], [metrics(0, 10, busy_seconds=9.0)])
    path = tmp_path / "report.html"
    path.write_text(render_html(gather(str(run), ReportWishes())), encoding="utf-8")
    browser.open(path)
    # Everything that could set something off.
    browser.evaluate(
        "for (const e of document.querySelectorAll('*')) for (const kind of ['mouseover', 'click', 'focus'])"
        " e.dispatchEvent(new MouseEvent(kind, {bubbles: false}))"
    )
    browser.settle()
    assert browser.evaluate("typeof window.hacked") == "undefined"
    assert (browser.dialogs, browser.complaints) == ([], []), "nothing even tried"
    assert [url for url in browser.requests if not url.startswith("data:")] == []
    assert browser.evaluate("document.querySelectorAll('script').length") == 1
    assert browser.evaluate("document.querySelectorAll('#sample-list .entry').length") == 10
    assert "<script>hacked('text')</script>" in browser.evaluate("document.querySelector('#sample-list').textContent")
    assert browser.evaluate("getComputedStyle(document.querySelector('.ctl')).unicodeBidi") == "isolate"
    for width in (360, 1280):
        browser.resize(width, 900)
        browser.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        assert browser.evaluate("document.documentElement.scrollWidth") <= width


def test_the_policy_is_a_second_wall(page: Page) -> None:
    """Were a string put in without escaping, nothing would come of it."""
    page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', `<img src='https://evil.example/x' onerror='window.hacked = 1'>"
        "<a id=bad href='javascript:window.hacked = 2'>x</a><style>body { display: none }</style>"
        "<iframe srcdoc='<script>parent.hacked = 3</script>'></iframe>`);"
        "const s = document.createElement('script'); s.textContent = 'window.hacked = 4'; document.body.append(s);"
        "document.getElementById('bad').click()"
    )
    directives = ("img-src", "script-src", "style-src")
    wait_until(lambda: page.settle() or all(each in " ".join(page.complaints) for each in directives))
    assert page.evaluate("typeof window.hacked") == "undefined"
    assert page.evaluate("getComputedStyle(document.body).display") != "none"
    assert page.evaluate("performance.getEntriesByType('resource').filter(e => e.transferSize > 0).length") == 0
