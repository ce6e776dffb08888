"""The real command, killed with no chance to clean up, and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.conftest import Workplace, product, products, read_table

ROOT = Path(__file__).parents[2]
ROWS = 120


def command(config: Path, *arguments: str) -> list[str]:
    return [sys.executable, "pipelines/extract.py", "--config", str(config), *arguments]


def committed(output: Path) -> int:
    return len(list((output / "_shards").glob("*.json")))


def file_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def wait_until(condition: Any, seconds: float = 600) -> None:
    """Long enough for a machine that does much else besides: it costs only where the condition never comes true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@pytest.mark.usefixtures("shared_ray")
def test_a_killed_run_continues_and_ends_with_the_rows_of_an_undisturbed_one(workplace: Workplace) -> None:
    rows = [*products(ROWS), product(ROWS, category=None), product(ROWS + 1, category="Hats")]
    workplace.write_parquet("a.parquet", rows, row_group_size=50)
    output = workplace.folder / "killed"
    config = workplace.write_config(output=str(output), log_seconds=1, max_dead_letter_share=1.0)

    driver = subprocess.Popen(
        command(config), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        wait_until(lambda: committed(output) >= 2 or driver.poll() is not None)
        assert driver.poll() is None, driver.communicate()[0]
    finally:
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
    done = committed(output)
    planned = len(json.loads((output / "_plan.json").read_text())["shards"])
    assert 2 <= done < planned, "the kill came too late to test anything"
    assert not (output / "manifest.json").exists()
    committed_shards = [path.stem for path in (output / "_shards").glob("*.json")]
    tries = {shard: file_names(output / "_attempts" / shard) for shard in committed_shards}

    again = subprocess.run(command(config, "--json"), cwd=ROOT, capture_output=True, text=True, timeout=240)
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


def assert_same(expected: list[dict[str, Any]], actual: list[dict[str, Any]]) -> None:
    """Equal rows but for the run's name, the tries, what was measured, and rounding in the probabilities."""
    assert len(actual) == len(expected)
    for one, other in zip(expected, actual, strict=True):
        for key in one.keys() - {"run_id", "attempts", "engine_seconds"}:
            if key.startswith("logprob") and one[key] is not None:
                assert other[key] == pytest.approx(one[key], abs=1e-4)
            else:
                assert other[key] == one[key], key


def test_the_command_from_anywhere_and_its_exit_codes(workplace: Workplace) -> None:
    """From another working directory, so that neither driver nor workers find the checkout by chance."""
    workplace.write_jsonl("a.jsonl", [*products(3), product(3, id=None)])
    config = workplace.write_config()
    script = [sys.executable, str(ROOT / "pipelines/extract.py"), "--config", str(config)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*script, *arguments], cwd=workplace.folder, capture_output=True, text=True, timeout=240, env=environment
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
