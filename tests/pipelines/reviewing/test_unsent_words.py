"""What a reviewer said on the page while its server was gone, in a real Chromium."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.store.corrections import read_verdicts
from pipelines.store.folders import Folder
from pipelines.store.tables import ATTRIBUTES
from tests.pipelines.browser import Page
from tests.pipelines.ports import free_ports
from tests.pipelines.reviewing.page import (
    choose,
    enter,
    idle,
    press_and_wait,
    shown,
    type_in,
    visit,
)
from tests.pipelines.reviewing.served import serving


def test_what_was_not_acknowledged_is_said_again_to_the_server_that_comes_back(browser: Page, run: Path) -> None:
    (port,) = free_ports(1)
    with serving(run, port=port) as server:
        visit(browser, server.address)
        enter(browser)
        choose(browser, "Roast")
        server.process.kill()
        server.process.wait()
        browser.press("a")
        browser.until("document.querySelector('#banner').innerText.includes('Not saved yet')")
    assert read_verdicts(Folder(str(run))) == []
    with serving(run, port=port) as server:
        browser.until("document.querySelector('#banner').innerText.includes('started anew')")
        visit(browser, server.address, forget=False)
        browser.until("document.querySelector('#progress').innerText.startsWith('1 reviewed (1 by you)')")
        (said,) = read_verdicts(Folder(str(run)))
        assert (said.verdict, said.attribute, said.reviewer) == ("accept", "Roast", "Ada")
        assert browser.evaluate("Object.keys(localStorage)") == ["hpd-review-name"]


def test_of_what_is_said_again_the_last_word_counts(browser: Page, run: Path) -> None:
    (port,) = free_ports(1)
    with serving(run, port=port) as server:
        visit(browser, server.address)
        enter(browser)
        choose(browser, "Roast")
    with serving(run, port=port) as server:
        for key in "anananan":
            browser.press(key)
            browser.until("document.querySelector('#banner').innerText.includes('started anew')")
            idle(browser)
        visit(browser, server.address, forget=False)
        browser.until("document.querySelector('#progress').innerText.startsWith('1 reviewed (1 by you)')")
        said = [each.verdict for each in read_verdicts(Folder(str(run)))]
        assert said == ["accept", "absent"] * 4, "in the order in which it was said"


def test_what_the_server_that_comes_back_refuses_is_shown_and_kept_until_it_is_judged_anew(
    browser: Page, run: Path
) -> None:
    (port,) = free_ports(1)
    with serving(run, port=port) as server:
        visit(browser, server.address)
        enter(browser)
        choose(browser, "Weight")
        server.process.kill()
        server.process.wait()
        browser.press("a")
        browser.until("document.querySelector('#banner').innerText.includes('Not saved yet')")
    make_unclear(run, "Weight")
    with serving(run, port=port) as server:
        for _ in range(2):
            browser.until("document.querySelector('#banner').innerText.includes('started anew')")
            visit(browser, server.address, forget=False)
            browser.until("!document.querySelector('#refused').hidden")
            assert 'Weight of catalog.jsonl:0, "right" (Ada): what the number is worth' in shown(browser, "#refused")
            assert browser.evaluate("Object.keys(localStorage).length") == 2, "it is kept"
            browser.evaluate("document.querySelector('#banner').innerText = 'started anew'")
        idle(browser)
        browser.evaluate("document.querySelector('#refused button').click()")
        browser.until("document.querySelector('#asked').innerText == 'Weight'")
        idle(browser)
        browser.evaluate("document.querySelector('#card').focus()")
        browser.press("c")
        browser.until("document.activeElement.id == 'typed'")
        browser.evaluate("typed.select()")
        type_in(browser, "500 g")
        assert press_and_wait(browser, run, "Enter").items == ("500 g",)
        assert browser.evaluate("document.querySelector('#refused').hidden")
        assert browser.evaluate("Object.keys(localStorage)") == ["hpd-review-name"]


def make_unclear(run: Path, attribute: str) -> None:
    """Has the run say that nobody knows what these numbers are worth."""
    unclear = {"norm_status": "ambiguous", "value_norm": None, "value_num": None, "unit": None}
    for part in (run / "attributes").glob("*.parquet"):
        rows = [row | (unclear if row["attribute"] == attribute else {}) for row in pq.read_table(part).to_pylist()]
        pq.write_table(pa.Table.from_pylist(rows, schema=ATTRIBUTES), part)
