"""The real command, killed with no chance to clean up, and started again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines.commands import ROOT, assert_same, command, wait_until
from tests.pipelines.conftest import Workplace, product, products, read_table
from tests.pipelines.kills import Kill, KilledRun

ROWS = 120


def committed(output: Path) -> int:
    return len(list((output / "_shards").glob("*.json")))


def file_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_killed_run_continues_and_ends_with_the_rows_of_an_undisturbed_one(workplace: Workplace) -> None:
    rows = [*products(ROWS), product(ROWS, category=None), product(ROWS + 1, category="Hats")]
    workplace.write_parquet("a.parquet", rows, row_group_size=50)
    output = workplace.folder / "killed"
    config = workplace.write_config(output=str(output), log_seconds=1, max_dead_letter_share=1.0)

    # The fourth commit is never made: however late the kill comes, the run is not finished.
    with KilledRun(config, output, [Kill("commit", 4, "before", "stop")]) as run:
        driver = run.start()
        try:
            wait_until(lambda: committed(output) >= 2 or driver.poll() is not None)
            assert driver.poll() is None, run.explain("the driver has ended")
        finally:
            driver.kill()
            driver.wait()
    done = committed(output)
    planned = len(json.loads((output / "_plan.json").read_text())["shards"])
    assert 2 <= done < planned
    assert not (output / "manifest.json").exists()
    committed_shards = [path.stem for path in (output / "_shards").glob("*.json")]
    tries = {shard: file_names(output / "_attempts" / shard) for shard in committed_shards}

    again = subprocess.run(command(config, "--json"), cwd=ROOT, capture_output=True, text=True, timeout=1200)
    assert again.returncode == 0, again.stderr
    assert "Continuing run" in again.stderr
    totals = json.loads(again.stdout.splitlines()[-1])
    assert (totals["rows"], totals["products"], totals["dead_letters"]) == (ROWS + 2, ROWS, 2)
    for shard, names in tries.items():
        assert file_names(output / "_attempts" / shard) == names, "a committed shard was done again"
    for table in ("products", "attributes", "dead_letter", "metrics"):
        assert not list(output.glob(f"{table}/.*")), "a half-written file in a public folder"

    workplace.run()
    for table in ("products", "attributes", "dead_letter"):
        assert_same(read_table(workplace.folder / "out", table), read_table(output, table))


@pytest.mark.full
def test_the_command_from_anywhere_and_its_exit_codes(workplace: Workplace) -> None:
    """From another working directory, so that neither driver nor workers find the checkout by chance."""
    workplace.write_jsonl("a.jsonl", [*products(3), product(3, id=None)])
    config = workplace.write_config()
    script = [sys.executable, str(ROOT / "pipelines/extract.py"), "--config", str(config)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*script, *arguments], cwd=workplace.folder, capture_output=True, text=True, timeout=1200, env=environment
        )

    first = run("--show", "2")
    assert first.returncode == 3, first.stderr
    assert "3 products of 4 rows extracted" in first.stdout
    assert "1 null_id" in first.stdout
    assert "Extracted attributes" in first.stdout
    assert "25.0% of the rows are dead-lettered" in first.stdout
    assert first.stderr == "", "Ray's noise"
    second = run("--set", "max_dead_letter_share=0.5")
    assert second.returncode == 0
    assert "is finished already; nothing was done." in second.stdout
