"""`tests/gpu` on the card, several processes side by side, counted test by test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.gpu.plan import EXACT, PartError
from bench.gpu.supervisor import ROOT, GpuSettings

_MOST_PROCESSES = 8
_SECONDS_FOR_THE_COUNT = 6.0
_SHOWN = 8


def exactness(seconds: float, settings: GpuSettings, say: Callable[[str], object]) -> Iterator[dict[str, Any]]:
    """A row: how many tests passed, failed and were skipped.

    Args:
        seconds: what is not done by then is counted as not done.

    Raises:
        PartError: not all that ran passed, not all ran, or none. The row comes first.
    """
    count = 2 if settings.rehearsal else max(1, min(_MOST_PROCESSES, (os.cpu_count() or 2) // 2))
    with tempfile.TemporaryDirectory() as folder:
        processes = [_start(Path(folder), number, count) for number in range(count)]
        deadline = time.monotonic() + seconds - _SECONDS_FOR_THE_COUNT
        while time.monotonic() < deadline and any(process.poll() is None for process in processes):
            time.sleep(0.2)
        were_cut = [process.poll() is None for process in processes]
        for process in processes:
            process.kill()
            process.wait()
        tests = [
            json.loads(line) for path in sorted(Path(folder).glob("*.jsonl")) for line in path.read_text().splitlines()
        ]
        logs = [path.read_text(errors="replace") for path in sorted(Path(folder).glob("*.log"))]
    Path(settings.out, "exactness.txt").write_text("\n".join(logs))
    yield _row(tests, say)
    problems = _problems(tests, were_cut, [process.returncode for process in processes], settings)
    if problems:
        raise PartError(f"{'; '.join(problems)} (exactness.txt has all of it)")


def _start(folder: Path, number: int, count: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"]
    # As many examples as `make test` has: the others are for machines with more time.
    command += [
        "-p",
        "bench.gpu.pytest_share",
        "--continue-on-collection-errors",
        "--hypothesis-profile=quick",
        "tests/gpu",
    ]
    environment = os.environ | {
        "HPD_SHARE_OF_TESTS": f"{number}/{count}",
        "HPD_TEST_REPORTS": str(folder / f"{number}.jsonl"),
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "2",
    }
    with (folder / f"{number}.log").open("wb") as log:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)


def _row(tests: Sequence[Mapping[str, Any]], say: Callable[[str], object]) -> dict[str, Any]:
    counts = Counter(test["outcome"] for test in tests if test["outcome"] != "begun")
    say(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())) or "no test has run")
    reasons = Counter(test["reason"] for test in tests if test["outcome"] == "skipped")
    for reason, count in reasons.most_common(_SHOWN):
        say(f"skipped: {count} x {reason}")
    for test in [test for test in tests if test["outcome"] == "failed"]:
        say(f"failed: {test['test']}: {test['reason']}")
    for name in _not_done(tests):
        say(f"not done: {name}")
    slow = {test["test"]: test["seconds"] for test in tests if test["seconds"] >= 1}
    return {"kind": EXACT, **{key: counts[key] for key in ("passed", "failed", "skipped")}, "slow_tests": slow}


def _not_done(tests: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of those that have begun and come to nothing."""
    done = {test["test"] for test in tests if test["outcome"] != "begun"}
    return [test["test"] for test in tests if test["test"] not in done]


def _problems(
    tests: Sequence[Mapping[str, Any]], were_cut: Sequence[bool], codes: Sequence[int], settings: GpuSettings
) -> list[str]:
    """Args: were_cut, codes: of each process, whether it was killed and its exit code."""
    counts = Counter(test["outcome"] for test in tests)
    problems = []
    if counts["failed"]:
        problems.append(f"{counts['failed']} failed")
    if any(were_cut):
        problems.append(f"{sum(were_cut)} of {len(were_cut)} processes were not done in time")
    # 1: a failed test, which is counted. 5: no test, which a share of few tests may be.
    strange = [code for code, was_cut in zip(codes, were_cut, strict=True) if code not in (0, 1, 5) and not was_cut]
    if strange:
        problems.append(f"pytest's exit codes are {', '.join(map(str, strange))}")
    if not counts["passed"] and not settings.rehearsal:
        problems.append("none has passed")
    return problems
