"""`ray job submit` against a local head with its job server."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.pipelines.commands import ROOT, wait_until
from tests.pipelines.conftest import Workplace, products, read_table
from tests.pipelines.ports import free_ports


@dataclass(frozen=True)
class JobServer:
    """A Ray head of our own: its address, and the environment in which a client may talk to it."""

    address: str
    environment: dict[str, str]

    def is_ready(self) -> bool:
        headers = {"Authorization": f"Bearer {self.environment['RAY_AUTH_TOKEN']}"}
        request = urllib.request.Request(f"{self.address}/api/version", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@pytest.fixture
def job_server() -> Iterator[JobServer]:
    """Ends with the `ray start --block` that this test owns."""
    dashboard, *ports_of_ray = free_ports(4)
    environment = {key: value for key, value in os.environ.items() if key not in ("RAY_ADDRESS", "PYTHONPATH")}
    # Ray's job server asks for a token: this one is of this test and of no use elsewhere.
    environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    # Sockets have short paths: not in pytest's deep folder.
    folder = tempfile.mkdtemp(prefix="hpd-ray-")
    names = ("--port", "--ray-client-server-port", "--dashboard-agent-listen-port", "--dashboard-port")
    ports = [word for name, port in zip(names, [*ports_of_ray, dashboard], strict=True) for word in (name, str(port))]
    head = subprocess.Popen(
        [
            *(str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--num-cpus", "2"),
            *("--include-dashboard", "true", "--temp-dir", folder, "--disable-usage-stats", *ports),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    server = JobServer(f"http://127.0.0.1:{dashboard}", environment)
    try:
        wait_until(lambda: server.is_ready() or head.poll() is not None)
        assert head.poll() is None, "ray start has ended"
        yield server
    finally:
        head.terminate()
        try:
            head.wait(5)
        except subprocess.TimeoutExpired:
            head.kill()
            head.wait()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.ray
def test_a_submitted_job_runs_from_the_uploaded_folder(workplace: Workplace, job_server: JobServer) -> None:
    # Only what the job needs: the test must not depend on files that --working-dir does not bring along.
    upload = workplace.folder / "upload"
    for package in ("hpd_core", "pipelines"):
        shutil.copytree(ROOT / package, upload / package, ignore=shutil.ignore_patterns("__pycache__"))
    workplace.write_parquet("a.parquet", products(6))
    shutil.copytree(workplace.catalog, upload / "catalog")
    config = workplace.write_config(input={"path": "catalog", "id": "id", "fields": ["title"]})
    shutil.copy(config, upload / "job.yaml")

    submit = [str(Path(sys.executable).parent / "ray"), "job", "submit", "--address", job_server.address]
    submit += ["--working-dir", str(upload), "--", sys.executable, "pipelines/extract.py", "--config", "job.yaml"]
    answer = subprocess.run(
        [*submit, "--json"],
        capture_output=True,
        text=True,
        timeout=1200,
        env=job_server.environment,
        cwd=workplace.folder,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    (totals,) = [json.loads(line) for line in answer.stdout.splitlines() if line.startswith('{"run_id"')]
    assert (totals["products"], totals["exit_code"]) == (6, 0)
    rows = read_table(workplace.folder / "out", "products")
    assert [row["source_file"] for row in rows] == ["catalog/a.parquet"] * 6
