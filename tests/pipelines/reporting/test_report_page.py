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
    other = write_run(folder / "other", [products[:4]], rows[:1])
    gold = folder / "gold.jsonl"
    lines = [f'{{"product_id": "s{n}", "category": "Shoes", "values": {{"Brand": ["Velor"]}}}}' for n in range(4)]
    gold.write_text("\n".join(lines))
    path = folder / "report.html"
    path.write_text(render_html(gather(str(run), ReportWishes(gold=str(gold), compare=[str(other)]))), encoding="utf-8")
    return path


@pytest.fixture
def page(browser: Page, page_file: Path) -> Page:
    browser.open(page_file)
    return browser


def test_charts_and_highlights_are_to_be_seen(page: Page) -> None:
    boxes = page.evaluate(
        "[...document.querySelectorAll('svg.stack, svg.chart, svg.bar')].filter(e => e.checkVisibility()).map(e => "
        "[e.getBoundingClientRect().width, e.getBoundingClientRect().height, "
        "e.querySelectorAll('rect, polyline, circle').length])"
    )
    assert len(boxes) > 10
    assert all(width > 50 and height > 5 and shapes for width, height, shapes in boxes)
    shares = page.evaluate(
        "[...document.querySelectorAll('#time svg.stack rect')].map(e => e.getBoundingClientRect().width / "
        "document.querySelector('#time svg.stack').getBoundingClientRect().width)"
    )
    assert shares == pytest.approx([100 / 130, 10 / 130, 0, 20 / 130], abs=0.01)
    marked = page.evaluate("[...document.querySelectorAll('#sample-list mark')].map(e => e.textContent)")
    assert marked.count("Velor") == 7, "one of the eight has another brand"
    assert "نايكي" in marked
    assert page.evaluate(
        "[...document.querySelectorAll('#sample-list mark')].every(e => getComputedStyle(e).backgroundColor != "
        "'rgba(0, 0, 0, 0)')"
    )
    assert page.evaluate("document.querySelectorAll('.value.ungrounded').length") == 1


def test_right_to_left_text_runs_from_the_right(page: Page) -> None:
    direction = (
        "getComputedStyle([...document.querySelectorAll('.fields dd')].find(e => e.textContent.includes('حذاء')))"
    )
    assert page.evaluate(f"{direction}.direction") == "rtl"


def test_products_by_keyboard(page: Page) -> None:
    active = "document.activeElement.querySelector('h3') && document.activeElement.querySelector('h3').textContent"
    order = page.evaluate("[...document.querySelectorAll('#sample-list h3')].map(e => e.textContent)")
    page.press("j")
    assert page.evaluate(active) == order[0]
    page.press("j")
    page.press("j")
    assert page.evaluate(active) == order[2]
    page.press("k")
    assert page.evaluate(active) == order[1]
    # It is scrolled to, which takes some frames.
    top = "document.activeElement.getBoundingClientRect().top"
    page.until(f"0 <= {top} && {top} < innerHeight")
    # Enter opens it; on with the tabulator to its values' places, where Enter goes to the place in the text.
    assert not page.evaluate("document.activeElement.parentElement.open"), "folded at first"
    page.press("Enter")
    page.until("document.activeElement.parentElement.open")
    bottom = "document.activeElement.parentElement.getBoundingClientRect().bottom"
    page.until(f"{bottom} <= innerHeight + 1")
    page.press("Tab")
    assert page.evaluate("document.activeElement.matches('.entry button[data-v]')")
    assert page.evaluate("document.querySelectorAll('mark.on').length") >= 1, "what has the focus is lit"
    page.press("Enter")
    page.press("/")
    assert page.evaluate("document.activeElement.id") == "sample-search"
    page.press("j")
    assert page.evaluate("document.activeElement.value") == "j", "typed, not obeyed"
    page.press("Escape")
    assert page.evaluate("document.activeElement === document.body")


def test_everything_can_be_reached_with_the_tabulator(page: Page) -> None:
    page.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.press("Enter")
    page.until("location.hash == '#main'")
    reached = set()
    for _ in range(24):
        page.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {"attribute-search", "attribute-category", "BUTTON"} <= reached
    assert {"sample-category", "sample-attribute", "sample-kind", "sample-search", "sample-fold", "SUMMARY"} <= reached


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


def test_on_a_phone_each_number_of_an_attribute_has_its_name(browser: Page, page_file: Path) -> None:
    browser.open(page_file, width=360)
    row = "document.querySelector('#attribute-table tbody tr:not([hidden])')"
    assert browser.evaluate(f"{row}.querySelector('.look').getBoundingClientRect().right") <= 360
    assert browser.evaluate(
        f"[...{row}.querySelectorAll('td.n')].map(e => getComputedStyle(e, '::before').content.replaceAll('\"', ''))"
    ) == [f"{name} " for name in ("filled", "values", "not stated", "failed", "likely", "labels", "precision", "F1")]
    browser.evaluate(_OPEN_ALL)
    cells = "[...document.querySelectorAll('.values td.p')]"
    assert browser.evaluate(f"{cells}.every(e => getComputedStyle(e, '::before').content.includes('probability'))")


def choose(identifier: str, index: int) -> str:
    """Chooses from a list, as a user does."""
    return (
        f"(() => {{ const e = document.getElementById('{identifier}'); e.selectedIndex = {index}; "
        "e.dispatchEvent(new Event('input')); })()"
    )


_ROWS = "[...document.querySelectorAll('#attribute-table tbody tr')].filter(e => !e.hidden)"
_NAMES = f"{_ROWS}.map(e => e.cells[0].querySelector('bdi').textContent)"


def test_attributes_are_found_and_lead_to_their_products(page: Page) -> None:
    assert page.evaluate(_NAMES) == ["Brand", "Colour", "Kind", "Sole"]
    assert "2 categories" in page.evaluate(f"{_ROWS}[0].textContent")
    page.press("a")
    assert page.evaluate("document.activeElement.id") == "attribute-search"
    for letter in "olou":
        page.press(letter)
    assert page.evaluate(_NAMES) == ["Colour"]
    page.press("Tab")
    page.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "products"
    page.press("Enter")
    assert page.evaluate("document.getElementById('sample-count').textContent") == "8 of 10 · Colour"
    assert page.evaluate("document.activeElement.matches('summary')")
    page.evaluate(_OPEN_ALL)
    shown = "[...document.querySelectorAll('.entry[open] .value, .entry[open] .one')].filter(e => !e.hidden)"
    assert set(page.evaluate(f"{shown}.map(e => e.firstElementChild.textContent)")) == {"Colour"}


def test_the_attributes_of_one_category(page: Page) -> None:
    page.evaluate(choose("attribute-category", 2))
    chosen = page.evaluate("document.getElementById('attribute-category').selectedOptions[0].textContent")
    assert page.evaluate("document.getElementById('attribute-count').textContent") == f"1 attribute · {chosen}"
    assert page.evaluate(f"{_ROWS}.map(e => e.cells[3].textContent.trim())") == ["1"]


def test_light_dark_and_paper(page: Page, page_file: Path) -> None:
    def brightness() -> float:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(float, colour.removeprefix("rgb(").removesuffix(")").split(","))) / 3

    assert brightness() > 240
    page.open(page_file, dark=True)
    assert brightness() < 40
    page.call("Emulation.setEmulatedMedia", media="print")
    assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.querySelectorAll('#sample-list .entry')[9].getBoundingClientRect().height") > 50
    page.call("Emulation.setEmulatedMedia", media="")


def test_on_paper_is_all_that_fits_the_filters(browser: Page, tmp_path: Path) -> None:
    answers = {f"Attribute {number:02}": Answer("red") for number in range(31)}
    products = [
        Product(f"{category}{number:02}", {"title": "red"}, answers, category)
        for category, count in (("A", 25), ("B", 22), *((f"C{number}", 1) for number in range(21)))
        for number in range(count)
    ]
    run = write_run(tmp_path, [products], [metrics(0, 10)])
    path = tmp_path / "report.html"
    path.write_text(render_html(gather(str(run), ReportWishes())), encoding="utf-8")
    browser.open(path)
    index = browser.evaluate("[...document.getElementById('sample-category').options].findIndex(e => e.text == 'B')")
    browser.evaluate(choose("sample-category", index))
    seen = "[...document.querySelectorAll('%s')].filter(e => e.checkVisibility()).map(e => e.textContent)"
    rows, inside = seen % "#attribute-table tbody bdi", seen % ".entry[open] h3"
    categories, shown = seen % "#categories tbody bdi", seen % "output"
    assert len(browser.evaluate(rows)) == 20
    browser.call("Emulation.setEmulatedMedia", media="print")
    browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert len(browser.evaluate(rows)) == 31
    assert len(browser.evaluate(categories)) == 23
    assert (len(browser.evaluate(inside)), {name[0] for name in browser.evaluate(inside)}) == (20, {"B"})
    assert len(browser.evaluate(seen % ".entry h3")) == 20
    assert browser.evaluate(shown) == ["31 attributes", "22 of 68 · B"], "paper says what was chosen"
    browser.call("Emulation.setEmulatedMedia", media="")
    browser.evaluate("dispatchEvent(new Event('afterprint'))")
    assert len(browser.evaluate(rows)) == 20
    assert browser.evaluate(inside) == []
    assert len(browser.evaluate(seen % ".entry h3")) == 22


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
