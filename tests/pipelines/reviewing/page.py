"""What a reviewer does on the page: opens it, enters, chooses, presses keys, reads."""

from __future__ import annotations

import json
from pathlib import Path

from pipelines.store.corrections import read_verdicts
from pipelines.store.folders import Folder
from pipelines.store.verdicts import ReviewVerdict
from tests.pipelines.browser import Page

WIDE, PHONE = (1200, 800), (360, 700)


def visit(page: Page, address: str, size: tuple[int, int] = WIDE, *, forget: bool = True) -> None:
    """Opens the page as somebody who was never there."""
    for record in (page.requests, page.complaints, page.dialogs):
        record.clear()
    for domain in ("Page", "Runtime", "Network", "Log"):
        page.call(f"{domain}.enable")
    page.resize(*size)
    page.call("Page.navigate", url=address)
    page.until(f"document.readyState == 'complete' && location.href == {json.dumps(address)}")
    if forget:
        page.evaluate("localStorage.clear()")
        page.call("Page.reload")
        page.settle()
    page.until("!document.querySelector('#who').hidden || !document.querySelector('#desk').hidden")


def idle(page: Page) -> None:
    """Lets the page end what it is doing: until then it takes nothing else."""
    page.until("document.body.getAttribute('aria-busy') == 'false'")


def type_in(page: Page, text: str) -> None:
    for key in text:
        page.press(key)


def enter(page: Page, name: str = "Ada") -> None:
    page.until("document.activeElement.id == 'name'")
    type_in(page, name)
    page.press("Enter")
    page.until("!document.querySelector('#desk').hidden")
    idle(page)


def shown(page: Page, selector: str) -> str:
    text: str = page.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")
    return text


def press_and_wait(page: Page, run: Path, key: str) -> ReviewVerdict:
    """Presses a key that says something; returns what is in the log then, and the next answer is shown."""
    before, at = len(read_verdicts(Folder(str(run)))), shown(page, "#progress")
    page.press(key)
    page.until(f"document.querySelector('#progress').innerText != {json.dumps(at)}")
    idle(page)
    said = read_verdicts(Folder(str(run)))
    assert len(said) == before + 1, "it is on the disk when the page goes on"
    return said[-1]


def choose(page: Page, attribute: str) -> None:
    """Only this attribute, as with the mouse."""
    page.evaluate("document.querySelector('#filters').open = true")
    page.evaluate(
        f"attribute.value = {json.dumps(attribute)}; attribute.dispatchEvent(new Event('change', {{bubbles: true}}))"
    )
    page.until(f"document.querySelector('#asked').innerText == {json.dumps(attribute)}")
    page.evaluate("document.querySelector('#filters').open = false")
    idle(page)
