"""Draws docs/report.png: the top of a run's report and a product of its sample, the rest left out.

    python -m docs.draw_report runs/demo --gold sample/gold.jsonl

It needs a Chromium (`make browser`).
"""

from __future__ import annotations

import argparse
import base64
import tempfile
from pathlib import Path

from pipelines.reporting.gather_facts import ReportWishes, gather
from pipelines.reporting.page import render_html
from tests.pipelines.browser import open_browser

PICTURE = Path(__file__).with_name("report.png")

_WIDTH = 1100
_SHORTENED = """
const left_out = "nav, #quality, #compared, #categories, #dead, #engineering";
for (const each of document.querySelectorAll(left_out)) each.remove();
[...document.querySelectorAll("#attribute-table tbody tr:not([hidden])")].slice(7).forEach((row) => row.remove());
document.getElementById("attribute-more").remove();
const products = [...document.querySelectorAll("#sample-list > details")];
const shown = products.find((each) => each.querySelectorAll("mark").length > 4 && each.textContent.includes("= "));
products.slice(3).filter((each) => each !== shown).forEach((each) => each.remove());
shown.open = true;
"""


def main() -> None:
    """Writes the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--gold")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_browser() as page:
        path = Path(folder) / "report.html"
        path.write_text(render_html(gather(arguments.run, ReportWishes(gold=arguments.gold))), encoding="utf-8")
        page.open(path, width=_WIDTH)
        page.evaluate(f"(() => {{{_SHORTENED}}})()")
        height = page.evaluate("document.body.getBoundingClientRect().height")
        clip = {"x": 0, "y": 0, "width": _WIDTH, "height": height, "scale": 1}
        shot = page.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        PICTURE.write_bytes(base64.b64decode(shot["data"]))


if __name__ == "__main__":
    main()
