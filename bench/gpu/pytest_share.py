"""A plugin of pytest: one share of the tests, each reported when it is done, so that a killed process has told its own.

HPD_SHARE_OF_TESTS: "2/8", the third of eight shares; HPD_TEST_REPORTS: the file to which a JSON line a test is added.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

_OURS = ("hpd_core", "pipelines", "bench", "tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every n-th test stays, so that slow neighbours are shared among all."""
    number, count = map(int, os.environ["HPD_SHARE_OF_TESTS"].split("/"))
    others = [item for place, item in enumerate(items) if place % count != number]
    config.hook.pytest_deselected(items=others)
    items[:] = items[number::count]


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that cannot be imported has failed; but not where a package is missing that is not ours."""
    if report.failed and os.environ["HPD_SHARE_OF_TESTS"].startswith("0/"):
        last = str(report.longrepr).strip().splitlines()[-1]
        name = last.partition("No module named '")[2].partition("'")[0]
        is_missing = bool(name) and name.partition(".")[0] not in _OURS
        _tell(report.nodeid, "skipped" if is_missing else "failed", 0.0, last)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Nothing else tells which test was under way when its process was ended."""
    _tell(nodeid, "begun", 0.0, "")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """What a test came to: with its call, or before it where that is skipped or fails."""
    if report.when == "call" or (report.when == "setup" and not report.passed):
        _tell(report.nodeid, report.outcome, report.duration, _reason(report.longrepr))
    elif report.failed:
        _tell(report.nodeid, "failed", report.duration, _reason(report.longrepr))


def _reason(longrepr: Any) -> str:
    if longrepr is None:
        return ""
    if isinstance(longrepr, tuple):  # of a skipped test: file, line, reason
        return str(longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(longrepr, "reprcrash", None)
    return str(crash.message if crash else longrepr).strip().partition("\n")[0][:200]


def _tell(test: str, outcome: str, seconds: float, reason: str) -> None:
    line = json.dumps({"test": test, "outcome": outcome, "seconds": seconds, "reason": reason})
    with open(os.environ["HPD_TEST_REPORTS"], "a", encoding="utf-8") as file:
        print(line, file=file)
