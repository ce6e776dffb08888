"""The review page in a real Chromium: by keyboard alone, on a phone, and with hostile texts."""

from __future__ import annotations

import json
from pathlib import Path

from pipelines.store.corrections import read_verdicts, settle
from pipelines.store.folders import Folder
from pipelines.store.verdicts import ReviewVerdict
from tests.pipelines.browser import Page
from tests.pipelines.reporting.made_runs import HOSTILE, Answer
from tests.pipelines.reviewing.made_runs import coffee, key_of, reviewable_run
from tests.pipelines.reviewing.page import (
    choose,
    enter,
    idle,
    press_and_wait,
    shown,
    type_in,
    visit,
)
from tests.pipelines.reviewing.served import Server, serving


def test_by_keyboard_alone(browser: Page, run: Path, server: Server) -> None:
    visit(browser, server.address)
    enter(browser)
    assert shown(browser, "#asked") == "Roast", "the least certain"
    assert "medium" in shown(browser, "#value")
    assert browser.evaluate("document.activeElement.id") == "card"
    assert browser.evaluate("[...document.querySelectorAll('mark')].map((each) => each.innerText)") == ["medium"]
    first = press_and_wait(browser, run, "a")
    assert (first.verdict, first.attribute, first.source_row, first.reviewer) == ("accept", "Roast", 2, "Ada")
    choose(browser, "Roast")
    browser.press("c")
    browser.until("!document.querySelector('#editor').hidden && document.activeElement.id == 'typed'")
    browser.until("document.querySelectorAll('#choices li').length == 4")
    type_in(browser, "ight")
    marked = "typed.getAttribute('aria-activedescendant')"
    assert not browser.evaluate(marked), "what only has it somewhere is not taken by Enter"
    browser.evaluate("typed.select()")
    type_in(browser, "l")
    assert browser.evaluate("[...document.querySelectorAll('#choices li')].map((each) => each.innerText)") == [
        *("light", "very light")
    ], "those that begin with it come first"
    browser.press("ArrowDown")
    assert browser.evaluate(marked) == "choice-1"
    second = press_and_wait(browser, run, "Enter")
    assert (second.verdict, second.items, second.source_row) == ("correct", ("very light",), 1)
    third = press_and_wait(browser, run, "n")
    assert (third.verdict, third.source_row) == ("absent", 0)
    # None of this attribute is left; what was said last is taken back and shown again.
    browser.until("!document.querySelector('#done').hidden")
    choose_all = "attribute.value = ''; attribute.dispatchEvent(new Event('change', {bubbles: true}))"
    browser.evaluate(choose_all)
    browser.until("!document.querySelector('#desk').hidden")
    idle(browser)
    browser.evaluate("document.querySelector('#card').focus()")
    fourth = press_and_wait(browser, run, "u")
    assert (fourth.verdict, fourth.undoes) == ("undo", third.id)
    assert shown(browser, "#asked") == "Roast"
    fifth = press_and_wait(browser, run, "Enter")
    assert (fifth.verdict, fifth.key) == ("accept", third.key)
    browser.until("document.querySelector('#asked').innerText != 'Roast'")
    at = shown(browser, "#asked"), shown(browser, "#place")
    browser.press("ArrowLeft")
    browser.until("document.querySelector('#asked').innerText == 'Roast'")
    assert "You said: right" in shown(browser, "#mine")
    idle(browser)
    browser.press("ArrowRight")
    browser.until(f"document.querySelector('#asked').innerText == {json.dumps(at[0])}")
    idle(browser)
    skipped = press_and_wait_for_skip(browser, run)
    assert skipped.verdict == "skip"
    found = settle(read_verdicts(Folder(str(run))))
    assert {(key.source_row, each.items) for key, each in found.items() if key.attribute == "Roast"} == {
        *((2, ("medium",)), (1, ("very light",)), (0, ("medium",)))
    }
    assert browser.complaints == []
    assert all(url.startswith((server.address, "data:")) for url in browser.requests)


def press_and_wait_for_skip(page: Page, run: Path) -> ReviewVerdict:
    """A skip is no review: the progress stays as it is."""
    before, place = len(read_verdicts(Folder(str(run)))), shown(page, "#place") + shown(page, "#asked")
    page.press("s")
    page.until(
        "document.querySelector('#place').innerText + document.querySelector('#asked').innerText != "
        f"{json.dumps(place)} || document.querySelector('#desk').hidden"
    )
    idle(page)
    said = read_verdicts(Folder(str(run)))
    assert len(said) == before + 1
    return said[-1]


_SAVE = "document.querySelector('#editor [type=submit]').click()"


def test_the_button_saves_what_is_typed_and_an_empty_line_says_what_is_missing(
    browser: Page, run: Path, server: Server
) -> None:
    visit(browser, server.address)
    enter(browser)
    choose(browser, "Notes")
    browser.press("c")
    browser.until("document.activeElement.id == 'typed'")
    type_in(browser, "plum")
    browser.evaluate(_SAVE)
    browser.until("document.querySelector('#progress').innerText.startsWith('1 reviewed')")
    idle(browser)
    assert read_verdicts(Folder(str(run)))[-1].items == ("nougat", "almond", "plum")
    choose(browser, "Roast")
    browser.press("c")
    browser.until("document.activeElement.id == 'typed'")
    for save in (lambda: browser.press("Enter"), lambda: browser.evaluate(_SAVE)):
        browser.evaluate("document.querySelector('#problem').innerText = ''")
        save()
        browser.until("document.querySelector('#problem').innerText.includes('a value is needed')")
        idle(browser)
    assert len(read_verdicts(Folder(str(run)))) == 1


def test_texts_that_mean_harm_are_only_texts(browser: Page, tmp_path: Path) -> None:
    products = [
        coffee(number, Brand=Answer(text, 0.01 + number / 100), Notes=Answer([text, f"{text} 2"], 0.01))
        for number, text in enumerate(HOSTILE)
    ]
    for number, text in enumerate(HOSTILE):
        products[number].fields = {"title": f"before {text} after", text: "x" * 100_000 + text}
        products[number].id = f"{text} {number}"
    run = reviewable_run(tmp_path, [products])
    with serving(run) as server:
        visit(browser, server.address)
        browser.evaluate("window.hacked = (what) => { window.wasHacked = what }")
        enter(browser, "<img src=x onerror=hacked(7)>")
        for number, text in enumerate(HOSTILE):
            key = key_of(run, number, "Notes")._asdict()
            answer = server.ask("answer", {"reviewer": "x", "key": key})[1]["answer"]
            assert answer["fields"] is not None
            browser.press("c")
            browser.until("document.activeElement.id == 'typed'")
            idle(browser)
            browser.press("Escape")
            browser.press("ArrowRight")
            browser.until("document.querySelector('[data-do=previous]').disabled == false")
            idle(browser)
            assert "\u202e" not in shown(browser, "body"), "what steers is a label"
            assert text is not None
        assert browser.evaluate("window.wasHacked ?? null") is None
        assert browser.evaluate("document.querySelectorAll('img, iframe, svg, base, a, script:not([src])').length") == 0
        assert browser.dialogs == []
        assert browser.complaints == []
        assert all(url.startswith((server.address, "data:,")) for url in browser.requests)
