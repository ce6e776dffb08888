from __future__ import annotations

import os
import pickle
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from ray.data._internal.util import iterate_with_retry
from ray.exceptions import RaySystemError, RayTaskError, WorkerCrashedError

from hpd_core.errors import StorageError
from pipelines.errors import ProcessesDiedError, RunError, UsageError
from pipelines.job import ray_cluster
from pipelines.job.ray_cluster import _held_back_stderr, _join, _worker_path, explain
from pipelines.job.ray_stages import told
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


@table(
    ("raised", "expected"),
    [
        (RunError("cannot read s3://bucket/a.parquet"), "cannot read s3://bucket/a.parquet"),
        (UsageError("no such model"), "no such model"),
        (StorageError("s3://bucket/x: access denied"), "s3://bucket/x: access denied"),
        (FileNotFoundError(2, "no such bucket", "s3://bucket/x"), "[Errno 2] no such bucket: 's3://bucket/x'"),
    ],
)
def test_rays_advice_is_not_for_users(raised: Exception, expected: str) -> None:
    """Ray Data writes it into the error itself, in place of a file's name, before it sends it to the driver."""

    @told
    def stage() -> None:
        raise raised

    with pytest.raises(type(raised) if not isinstance(raised, FileNotFoundError) else RunError) as caught:
        list(iterate_with_retry(lambda: (stage() for _ in range(1)), "apply UDF transform", max_attempts=1))
    assert "retried_io_errors" in str(caught.value.args)
    sent = pickle.loads(pickle.dumps(caught.value))
    assert str(explain(task_error(sent))) == expected


@table("error", [TypeError("bug"), task_error(KeyError("bug")), OSError("no number")])
def test_bugs_stay_bugs(error: BaseException) -> None:
    assert explain(error) is None


def test_with_several_nodes_an_error_names_the_one_that_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a node lacks a file that the others have, the driver's machine has it, too."""
    trace = "ray::prepare() (pid=7, ip=10.0.0.3)\n  File ..."
    error = RayTaskError("prepare", trace, UsageError("no such folder")).as_instanceof_cause()
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    for count, expected in ((1, "no such folder"), (2, "no such folder (said by node 10.0.0.3)")):
        monkeypatch.setattr("ray.nodes", lambda count=count: [{"Alive": True}] * count + [{"Alive": False}])
        assert str(explain(error)) == expected
        assert isinstance(explain(error), UsageError)


def test_workers_are_told_where_a_checkout_is_and_not_where_packages_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = Path(sysconfig.get_path("purelib")).resolve()
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert _worker_path(tmp_path) == {"PYTHONPATH": str(tmp_path)}
    assert _worker_path(installed) == {}
    behind = tmp_path / "of the Python behind a virtual environment"
    monkeypatch.setattr("site.getsitepackages", lambda: [str(installed), str(behind)])
    assert _worker_path(behind) == {}
    monkeypatch.setenv("PYTHONPATH", "mine")
    assert _worker_path(tmp_path) == {"PYTHONPATH": f"{tmp_path}{os.pathsep}mine"}
    assert _worker_path(installed) == {"PYTHONPATH": "mine"}


def test_stderr_is_held_back_and_given_out_only_with_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with _held_back_stderr():
        os.write(2, b"noise\n")
    assert capfd.readouterr().err == ""
    with pytest.raises(ValueError, match="boom"):
        _fail_with_a_reason()
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "the reason\nafter\n"


def test_a_ray_that_does_not_start_is_one_line(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object, **__: object) -> None:
        os.write(2, b"Traceback of a daemon\n")
        raise RuntimeError("The current node timed out\nduring startup.")

    monkeypatch.setattr(ray_cluster.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray_cluster.ray, "init", slow)
    with (
        pytest.raises(RunError, match=r"did not start .*\(The current node timed out during startup\.\)"),
        ray_cluster.ray_cluster(1),
    ):
        pass
    assert capfd.readouterr().err == ""


def _fail_with_a_reason() -> None:
    with _held_back_stderr():
        os.write(2, b"the reason\n")
        raise ValueError("boom")


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


@table("address", ["ray://head:10001", "http://head:8265"])
def test_an_address_of_another_kind_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match=rf"RAY_ADDRESS {address}: .* set it to auto or HEAD:6379"):
        _join(address, {})


def test_a_cluster_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: object) -> None:
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.60.0\n")

    monkeypatch.setattr("ray.init", init)
    with pytest.raises(UsageError, match=r"RAY_ADDRESS head:6379: Version mismatch: .* with: Ray: 2\.60\.0"):
        _join("head:6379", {})
