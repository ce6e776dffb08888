"""The report as three files, and its summary in the terminal."""

from __future__ import annotations

from pipelines.reporting import formats
from pipelines.reporting.facts.report import Facts
from pipelines.reporting.page import render_html, render_json, render_markdown
from pipelines.store.folders import Folder


def write_report(facts: Facts, out: Folder) -> list[str]:
    """Write the three files and return their places."""
    files = {
        "report.json": render_json(facts),
        "report.md": render_markdown(facts),
        "report.html": render_html(facts),
    }
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
    print(f"Report: {places[-1]} (the same numbers in report.json and report.md)")
