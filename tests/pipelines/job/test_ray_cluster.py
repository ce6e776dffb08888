from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest
from ray.exceptions import RayTaskError, WorkerCrashedError

from hpd_core.errors import StorageError
from pipelines.errors import ProcessesDiedError, RunError, UsageError
from pipelines.job.ray_cluster import _held_back_stderr, _worker_path, explain


def chained(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def task_error(cause: Exception) -> RayTaskError:
    return RayTaskError("decode", "traceback", cause)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (task_error(UsageError("no such model")), UsageError, "no such model"),
        (chained(RuntimeError("wrapped"), task_error(RunError("gone"))), RunError, "gone"),
        (task_error(OSError(28, "No space left on device")), RunError, "No space left on device"),
        (task_error(StorageError("no network")).as_instanceof_cause(), RunError, "no network"),
        (task_error(UsageError("no such model")).as_instanceof_cause(), UsageError, "no such model"),
        (WorkerCrashedError(), ProcessesDiedError, "Ray stopped the run: The worker died"),
    ],
)
def test_what_a_user_can_do_something_about_is_found(error: BaseException, kind: type, message: str) -> None:
    explained = explain(error)
    assert type(explained) is kind
    assert message in str(explained)
    assert "\n" not in str(explained)


@pytest.mark.parametrize("error", [TypeError("bug"), task_error(KeyError("bug")), OSError("no number")])
def test_bugs_stay_bugs(error: BaseException) -> None:
    assert explain(error) is None


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


def _fail_with_a_reason() -> None:
    with _held_back_stderr():
        os.write(2, b"the reason\n")
        raise ValueError("boom")
