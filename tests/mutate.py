"""Change one operator, bound or branch at a time, and see which changes the quick tests find.

    git worktree add /tmp/base COMMIT && cp tests/mutate.py /tmp/base/tests/
    (cd /tmp/base && python -m tests.mutate > /tmp/before.jsonl)
    python -m tests.mutate > /tmp/after.jsonl

The same 60 mutations at both, as the files that are changed are the same: 5 of each. Each is judged by the tests that
stand beside it here, and for at most `SECONDS`. The tree is put back after each.
"""

from __future__ import annotations

import ast
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECONDS = 240
FILES = {
    "hpd_core/layout.py": "tests/core/test_exactness.py tests/core/training",
    "hpd_core/decoding/scheduler.py": "tests/core/decoding tests/core/test_engine.py",
    "hpd_core/decoding/cohort.py": "tests/core/decoding tests/core/test_exactness.py",
    "hpd_core/text/constraints.py": "tests/core/text/test_constraints.py tests/core/test_exactness.py",
    "hpd_core/text/values.py": "tests/core/text",
    "hpd_core/text/numbers.py": "tests/core/text tests/pipelines/normalising",
    "pipelines/store/ledger.py": "tests/pipelines/store tests/pipelines/job/test_extract.py",
    "pipelines/store/lease.py": "tests/pipelines/store",
    "pipelines/store/isolation.py": "tests/pipelines/store tests/pipelines/job/test_decode_stage.py",
    "pipelines/job/finish_stage.py": "tests/pipelines/job/test_extract.py tests/pipelines/job/test_carryover.py",
    "pipelines/catalog/rows.py": "tests/pipelines/catalog",
    "pipelines/exporting/shop_export.py": "tests/pipelines/exporting",
}
SWAPS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
SWAPS |= {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.And: ast.Or, ast.Or: ast.And, ast.In: ast.NotIn, ast.NotIn: ast.In}


def mutations(source: str) -> Iterator[tuple[int, int, str]]:
    """Each place that can be changed, and the text that stands there then."""
    offsets = [0]
    for line in source.encode().splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    for node in ast.walk(ast.parse(source)):
        old = ast.unparse(node) if isinstance(node, ast.expr) else ""
        if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            node.ops[0] = SWAPS[type(node.ops[0])]()
        elif isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in SWAPS:
            node.op = SWAPS[type(node.op)]()
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            node.value += 1
        elif isinstance(node, ast.IfExp):
            node.body, node.orelse = node.orelse, node.body
        else:
            continue
        if ast.unparse(node) != old and "\n" not in old:
            start = offsets[node.lineno - 1] + node.col_offset
            yield start, offsets[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0), f"({ast.unparse(node)})"


def main(per_file: int = 5) -> None:
    """Try them all; print each with whether it was killed."""
    for name, tests in FILES.items():
        path = ROOT / name
        source = path.read_bytes()
        places = sorted(mutations(source.decode()))
        for start, stop, text in random.Random(name).sample(places, per_file):
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", "-p", "no:cacheprovider"]
            command += ["-m", "not soak and not full", "--hypothesis-profile=quick", *tests.split()]
            try:
                path.write_bytes(source[:start] + text.encode() + source[stop:])
                ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
                said = "killed" if " failed" in ended.stdout else "survived"
                said = said if ended.returncode in (0, 1, 2) else ended.stdout[-300:]
            except subprocess.TimeoutExpired:
                said = "out of time"
            finally:
                path.write_bytes(source)
            line = source[:start].count(b"\n") + 1
            change = f"{source[start:stop].decode()} -> {text}"
            print(json.dumps({"file": name, "line": line, "change": change, "tests": said}), flush=True)


if __name__ == "__main__":
    main()
