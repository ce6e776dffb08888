"""Kill -9 at every step of the commit protocol, and at random moments: every row is committed once all the same.

`make soak` does all of it. HPD_KILL_SEED=<number> draws others, or a failed one's again.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.commands import wait_until
from tests.pipelines.conftest import Workplace, product, products
from tests.pipelines.kills import Kill, KilledRun, check_finished

pytestmark = pytest.mark.ray

SEED = int(os.environ.get("HPD_KILL_SEED", "5"))
WRITES = ("begin", "part attributes", "part products", "part dead_letter", "part metrics", "commit")
PUBLISHED = ("publish attributes", "publish products", "publish dead_letter", "publish metrics")
# Before a step is after the one before it: these are all places between two steps, and those within one.
OF_WORKERS = [
    ("engine", "torn"),
    *itertools.product(WRITES, ("before", "torn", "inside")),
    *itertools.product(PUBLISHED, ("before", "inside")),
    (PUBLISHED[-1], "after"),
]
ROWS = 162

KILLED: Counter[str] = Counter()
"""Kills of all tests here, by kind."""
FINISHED: set[str] = set()
"""Tests that have come to their end."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Workplace:
    """A catalog with two rows that are dead letters."""
    workplace = Workplace(tmp_path_factory.mktemp("kills"), tiny_model_dir)
    rows = [*products(ROWS - 2), product(ROWS, category=None), product(ROWS + 1, category="Hats")]
    workplace.write_parquet("a.parquet", rows, row_group_size=40)
    workplace.changes = {"max_dead_letter_share": 1.0, "log_seconds": 1, "decoding": "made-up", "executor": "ray"}
    workplace.changes["shards"] = {"target_tokens": 200, "ramp": []}
    return workplace


def killed(place: Workplace, name: str, kills: list[Kill], **changes: Any) -> KilledRun:
    """A run with its own configuration."""
    output = place.folder / name
    config = place.write_config(output=str(output), **changes)
    return KilledRun(config.rename(place.folder / f"{name}.yaml"), output, kills)


@pytest.fixture(scope="module")
def undisturbed(place: Workplace) -> Path:
    """The output of a run that nobody kills."""
    output = place.folder / "undisturbed"
    place.run(output=str(output), executor="local")
    return output


def settle(run: KilledRun, undisturbed: Path, test: str) -> None:
    """What every test ends with."""
    check_finished(run, ROWS, undisturbed)
    KILLED.update(run.count())
    FINISHED.add(test)
    print(f"{test}: {dict(run.count())}, {len(run.exit_codes)} starts")


def spread(points: list[tuple[str, str]], shards: int, victims: list[str], draw: random.Random) -> list[Kill]:
    """A kill for every step and moment, no two of them at the same occurrence."""
    # A shard whose worker dies between commit and publishing is published by the driver: not all come to every step.
    places = draw.sample(range(1, shards - 10), len(points))
    return [
        Kill(step, 1 if step == "engine" else place, moment, draw.choice(victims))
        for place, (step, moment) in zip(places, points, strict=True)
    ]


def num_shards(undisturbed: Path) -> int:
    return len(json.loads((undisturbed / "_plan.json").read_text())["shards"])


@pytest.mark.full
def test_a_run_that_is_killed_at_several_steps_ends_as_an_undisturbed_one(place: Workplace, undisturbed: Path) -> None:
    kills = [
        Kill("begin", 2, "after"),
        Kill("commit", 3, "inside"),
        Kill("publish products", 4, "before", "machine"),
        Kill("finish", 1, "after"),
    ]
    with killed(place, "few", kills) as run:
        run.drive(max_starts=5)
        assert len(run.fired()) == len(kills)
        settle(run, undisturbed, "few")


@pytest.mark.soak
def test_workers_die_at_every_step(place: Workplace, undisturbed: Path) -> None:
    kills = spread(OF_WORKERS, num_shards(undisturbed), ["self"], random.Random(SEED))
    with killed(place, "workers", kills) as run:
        run.drive(max_starts=10)
        assert len(run.fired()) == len(kills), run.explain("not every kill has happened")
        settle(run, undisturbed, "workers")


@pytest.mark.soak
def test_the_driver_dies_at_every_step(place: Workplace, undisturbed: Path) -> None:
    steps = [("plan", 4), ("lease", 4), ("schemas", 4), ("finish", 4)]
    moments = ("before", "torn", "inside", "after")
    kills = [Kill(step, number, moments[number - 1]) for step, count in steps for number in range(1, count + 1)]
    # Committed, and its worker dies with its driver: the next driver publishes it, and dies at that.
    kills += [Kill("publish attributes", num_shards(undisturbed) - 1, "before", "machine")]
    kills += [Kill("repair attributes", 1, "before"), Kill("repair attributes", 2, "inside")]
    kills += [Kill("repair products", 1, "before"), Kill("repair metrics", 1, "after")]
    kills += [Kill("clean", 1, "before"), Kill("clean", 2, "inside"), Kill("clean", 3, "after")]
    with killed(place, "drivers", kills) as run:
        run.drive(max_starts=len(kills) + 3)
        assert len(run.fired()) == len(kills), run.explain("not every kill has happened")
        settle(run, undisturbed, "drivers")


@pytest.mark.soak
@pytest.mark.parametrize("number", range(3))
def test_anybody_dies_at_random_moments(place: Workplace, undisturbed: Path, number: int) -> None:
    draw = random.Random(f"{SEED} {number}")
    with killed(place, f"random-{number}", []) as run:
        run.drive(40, draw, max_random=12)
        settle(run, undisturbed, f"random {number}")


@pytest.mark.soak
def test_whole_nodes_are_lost(place: Workplace, undisturbed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster of a head without work and two nodes, each of which is replaced when it is lost."""
    from ray.cluster_utils import Cluster

    draw = random.Random(f"{SEED} nodes")
    kills = spread(draw.sample(OF_WORKERS[1:], 8), num_shards(undisturbed), ["node"], draw)
    with killed(place, "nodes", kills) as run:
        for name in ("HPD_KILLS", "PYTHONPATH"):
            monkeypatch.setenv(name, run.environment[name])
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        try:
            for _ in range(2):
                cluster.add_node(num_cpus=2)
            run.environment["RAY_ADDRESS"] = cluster.address
            replaced = itertools.count(1)
            next_loss = next(replaced)

            def replace() -> None:
                nonlocal next_loss
                if len(run.fired()) >= next_loss:
                    cluster.add_node(num_cpus=2, wait=False)
                    next_loss = next(replaced)

            run.drive(12, meanwhile=replace)
        finally:
            # Nodes that are dead cannot be asked to go.
            with suppress(Exception):
                cluster.shutdown()
        assert len(run.fired()) >= 5, run.explain("too few nodes were lost")
        settle(run, undisturbed, "nodes")


@pytest.mark.soak
def test_a_zombie_goes_on_after_its_successor_has_finished(place: Workplace, undisturbed: Path) -> None:
    """A whole machine freezes, one of its workers just about to commit, and wakes up when the run is finished."""
    kills = [Kill("commit", 2, "before", "stop")]
    with killed(place, "zombies", kills, retries={"lease_seconds": 5}) as run:
        driver = run.start()
        wait_until(lambda: list((run.folder / "fired").iterdir()), 300)
        frozen = [driver.pid, *(pid for pid in run.processes() if pid != driver.pid)]
        for pid in frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        run.drive(max_starts=1)
        worker = json.loads(next((run.folder / "fired").iterdir()).read_text())["by"]
        os.kill(worker, signal.SIGCONT)
        published = run.folder / "steps" / "publish metrics"
        wait_until(lambda: str(worker) in published.read_text().split(), 120)
        for pid in frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        assert driver.wait(300) == 1, run.explain("the zombie's driver has to find out")
        run.drive(max_starts=1)  # what the zombie had left in _parts goes
        settle(run, undisturbed, "zombies")


@pytest.mark.soak
def test_of_two_drivers_at_once_one_does_the_run(place: Workplace, undisturbed: Path) -> None:
    with killed(place, "two", [], retries={"lease_seconds": 10}) as run:
        drivers = [run.start(), run.start()]
        codes = sorted(driver.wait(600) for driver in drivers)
        assert codes in ([0, 0], [0, 1]), run.explain(str(codes))
        if codes == [0, 1]:
            assert "another driver" in (run.folder / "log").read_text()
        run.drive(max_starts=1)
        settle(run, undisturbed, "two")
