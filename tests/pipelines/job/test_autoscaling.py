"""A job on a real autoscaling cluster of several (small) nodes: nodes come with the work and go after it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.commands import ROOT, wait_until
from tests.pipelines.conftest import Workplace, products, read_table
from tests.pipelines.job import faulty
from tests.pipelines.ports import free_ports

PORT = 6379
"""Ray's provider of nodes on one machine knows no other."""
GPUS = 2
"""Of each node: logical ones, which Ray counts and nobody computes on. (Eight would need eight engines a node.)"""
TOKEN = secrets.token_hex(32)

WATCH = """
import json, time, ray
ray.init("auto", log_to_driver=False, logging_level="ERROR")
while True:
    print(json.dumps([n["NodeID"] for n in ray.nodes() if n["Alive"] and n["Resources"].get("GPU")]), flush=True)
    time.sleep(0.5)
"""

# An engine takes four shards and waits: the work lasts until the nodes are there, however long they take.
HELD_BACK = """
import sys
from pipelines.job import ray_stages
from tests.pipelines.job import faulty
ray_stages.Decode = faulty.HoldingDecode
from pipelines.extract import app
app(sys.argv[1:])
"""


class Watcher:
    """Asks the cluster twice a second for its nodes with GPUs, from a process of its own."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WATCH], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.looks: list[list[str]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("["):  # Ray writes there, too
                self.looks.append(json.loads(line))

    def wait(self, condition: Callable[[list[str]], bool]) -> list[str]:
        """The first look from now on that fulfils the condition."""
        start = len(self.looks)
        wait_until(lambda: any(map(condition, self.looks[start:])))
        return next(look for look in self.looks[start:] if condition(look))

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()


@dataclass(frozen=True)
class GrowingCluster:
    """A head that does no work, and starts nodes with GPUs as they are wanted."""

    environment: dict[str, str]
    folder: Path
    head: subprocess.Popen[bytes]

    def node_managers(self) -> list[int]:
        """Process ids of the raylets of the nodes with GPUs."""
        return [pid for pid, command in _of(self.folder) if "raylet/raylet " in command and "GPU," in command]


def free_of(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def cluster() -> Iterator[GrowingCluster]:
    if not free_of(PORT):
        pytest.skip(f"port {PORT}, the only one on which Ray's provider of local nodes looks for the head, is taken")
    folder = Path(tempfile.mkdtemp(prefix="hpd-ray-"))
    empty: dict[str, Any] = {"docker": {}, "auth": {}, "file_mounts": {}, "file_mounts_sync_continuously": False}
    empty |= {key: [] for key in ("cluster_synced_files", "rsync_exclude", "rsync_filter")}
    empty |= {f"{name}_commands": [] for name in ("initialization", "setup", "head_setup", "worker_setup")}
    empty |= {f"{name}_start_ray_commands": [] for name in ("head", "worker")}
    config = empty | {
        "cluster_name": "hpd-test",
        "max_workers": 3,
        "upscaling_speed": 100,
        "idle_timeout_minutes": 0.2,
        "provider": {
            "type": "fake_multinode",
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
        },
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "gpus": {"resources": {"CPU": 4, "GPU": GPUS}, "node_config": {}, "min_workers": 0, "max_workers": 3},
        },
    }
    (folder / "autoscaling.json").write_text(json.dumps(config))
    environment = {key: value for key, value in os.environ.items() if key not in ("RAY_ADDRESS", "RAY_JOB_ID")}
    environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, "RAY_FAKE_CLUSTER": "1"}
    environment |= {"PYTHONPATH": str(ROOT), "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
    command = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--num-cpus", "0"]
    command += ["--port", str(PORT), "--ray-client-server-port", str(free_ports(1)[0]), "--include-dashboard", "false"]
    command += ["--temp-dir", str(folder), "--autoscaling-config", str(folder / "autoscaling.json")]
    head = subprocess.Popen(
        [*command, "--disable-usage-stats"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        # Who connects waits for the head some twenty seconds, and a busy machine may need longer to start it.
        wait_until(lambda: listening(PORT) or head.poll() is not None)
        assert head.poll() is None, "ray start has ended"
        yield GrowingCluster(environment | {"RAY_ADDRESS": f"127.0.0.1:{PORT}"}, folder, head)
    finally:
        head.terminate()
        try:
            head.wait(15)
        except subprocess.TimeoutExpired:
            head.kill()
            head.wait()
        for pid, _ in _of(folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def _of(folder: Path) -> list[tuple[int, str]]:
    """Processes whose command names the cluster's folder: their ids and commands."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(folder) in command:
                found.append((int(path.parent.name), command))
    return found


def nodes_at_work(output: Path) -> set[str]:
    """The nodes that have decoded something that is committed."""
    return {json.loads(path.read_text())["engine"]["node_id"] for path in (output / "_shards").glob("*.json")}


@pytest.mark.soak
@pytest.mark.ray
def test_nodes_come_with_the_work_survive_a_loss_and_go(workplace: Workplace, cluster: GrowingCluster) -> None:
    workplace.write_jsonl("c.jsonl", products(400))
    engine = workplace.document()["engine"] | {"max_prompts_per_cohort": 1, "max_value_tokens": 30}
    actors = {"min": 1, "num_gpus": 1, "num_cpus": 1, "num_threads": 1}
    shards, cost = {"target_tokens": 300, "ramp": []}, {"usd_per_hour": 10.0}
    config = workplace.write_config(engine=engine, actors=actors, shards=shards, cost=cost)
    output = workplace.folder / "out"
    watcher, job = Watcher(cluster.environment), None
    try:
        # Before the job is there, whose first node would not wait for a look that is late.
        assert watcher.wait(lambda look: True) == [], "a cluster at rest has no GPU"
        job = subprocess.Popen(
            [sys.executable, "-c", HELD_BACK, "--config", str(config), "--json"],
            env=cluster.environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        watcher.wait(lambda look: len(look) == 2)
        lost, *_ = cluster.node_managers()
        wait_until(lambda: len(nodes_at_work(output)) == 2 or job.poll() is not None)
        assert job.poll() is None, job.stdout and job.stdout.read()
        os.kill(lost, signal.SIGKILL)
        (output / faulty.GO).touch()
        text, _ = job.communicate(timeout=3000)
        assert job.returncode == 0, text
        totals = json.loads(text.splitlines()[-1])
        assert (totals["products"], totals["dead_letters"]) == (400, 0)
        metrics = read_table(output, "metrics")
        assert len({row["node_id"] for row in metrics}) >= 2, "the lost node's engines went on elsewhere"
        assert len({row["actor_id"] for row in metrics}) >= 2, "the pool has grown"
        assert {row["price_per_hour"] for row in metrics} == {10.0 / GPUS}, "an engine's share of its node"
        watcher.wait(lambda look: look == [])
    finally:
        watcher.close()
        if job is not None:
            job.kill()
            job.wait()
