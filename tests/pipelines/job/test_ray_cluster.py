from __future__ import annotations

import subprocess
import sys

import pytest
from ray.exceptions import RaySystemError, RayTaskError, WorkerCrashedError

from hpd_core.errors import StorageError
from pipelines.errors import ProcessesDiedError, RunError, UsageError
from pipelines.job import ray_cluster
from pipelines.job.ray_cluster import _join, explain
from tests.pipelines.commands import ROOT
from tests.tables import table


def chained(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def task_error(cause: Exception) -> RayTaskError:
    return RayTaskError("decode", "traceback", cause)


@table(
    ("error", "kind", "message"),
    [
        (task_error(UsageError("no such model")), UsageError, "no such model"),
        (chained(RuntimeError("wrapped"), task_error(RunError("gone"))), RunError, "gone"),
        (task_error(OSError(28, "No space left on device")), RunError, "No space left on device"),
        (task_error(StorageError("no network")).as_instanceof_cause(), RunError, "no network"),
        (task_error(UsageError("no such model")).as_instanceof_cause(), UsageError, "no such model"),
        (
            task_error(ModuleNotFoundError("No module named 'torch'")),
            UsageError,
            "this environment has not what the job needs (No module named 'torch'): install torch into it",
        ),
        (WorkerCrashedError(), ProcessesDiedError, "Ray stopped the run: The worker died"),
    ],
)
def test_what_a_user_can_do_something_about_is_found(error: BaseException, kind: type, message: str) -> None:
    explained = explain(error)
    assert type(explained) is kind
    assert message in str(explained)
    assert "\n" not in str(explained)


@table("module", ["pipelines", "hpd_core.layout"])
def test_a_node_of_a_cluster_may_lack_the_package_itself(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    error = RaySystemError(f"No module named {module!r}")
    assert type(explain(error)) is ProcessesDiedError, "on one machine that is a bug of ours"
    assert explain(task_error(ModuleNotFoundError(f"No module named {module!r}"))) is None
    monkeypatch.setattr(ray_cluster, "_live_nodes", lambda: [{}, {}])
    explained = explain(error)
    assert isinstance(explained, UsageError)
    assert "All nodes need the same packages: the same image" in str(explained)


_TERMINATED = """
import os, signal, time
from pipelines.console.exit_codes import run_command
from pipelines.job.ray_cluster import ray_cluster

def work():
    with ray_cluster(1):
        import ray
        print("Ray runs", flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        ray.get(ray.remote(num_cpus=1000)(time.sleep).remote(600))

import typer
typer.run(lambda: run_command(work))
"""


@pytest.mark.full
@pytest.mark.ray
def test_sigterm_ends_a_command_as_ctrl_c_does() -> None:
    """Ray's own handler prints addresses of its stack and aborts the process."""
    ended = subprocess.run([sys.executable, "-c", _TERMINATED], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert (ended.returncode, ended.stdout) == (130, "Ray runs\n"), ended.stderr
    assert ended.stderr == "Interrupted. Run the same command again to continue.\n"


def test_a_cluster_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: object) -> None:
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.60.0\n")

    monkeypatch.setattr("ray.init", init)
    with pytest.raises(UsageError, match=r"RAY_ADDRESS head:6379: Version mismatch: .* with: Ray: 2\.60\.0"):
        _join("head:6379", {})
