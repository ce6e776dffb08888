"""Draws docs/review.png: the page of a review, with a correction begun.

    python -m docs.draw_review runs/demo --category "Running Shoes" --attribute Closure

The run stays as it is: its folder is copied, and nothing is said. It needs a Chromium (`make browser`).
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

from tests.pipelines.browser import Page, open_browser
from tests.pipelines.reviewing.served import serving

PICTURE = Path(__file__).with_name("review.png")

_WIDTH, _HEIGHT = 1100, 660


def main() -> None:
    """Writes the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--category", required=True)
    parser.add_argument("--attribute", required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_browser() as page:
        copy = Path(folder) / Path(arguments.run).name
        shutil.copytree(arguments.run, copy)
        with serving(copy) as server:
            page.call("Page.enable")
            page.resize(_WIDTH, _HEIGHT)
            page.call("Page.navigate", url=server.address)
            page.until("document.activeElement.id == 'name'")
            for key in "Ada":
                page.press(key)
            page.press("Enter")
            page.until("document.body.getAttribute('aria-busy') == 'false' && !document.querySelector('#desk').hidden")
            for select, name in (("category", arguments.category), ("attribute", arguments.attribute)):
                _choose(page, select, name)
            page.press("c")
            page.until("document.activeElement.id == 'typed'")
            page.settle()
            page.screenshot(PICTURE)


def _choose(page: Page, select: str, name: str) -> None:
    page.evaluate(f"{select}.value = {json.dumps(name)}; {select}.dispatchEvent(new Event('change'))")
    page.settle()
    page.until("document.body.getAttribute('aria-busy') == 'false'")


if __name__ == "__main__":
    main()
