"""Fixtures for all tests: a tiny model folder that loads in a moment and answers with valid and invalid values."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

# Without a GPU Triton's kernels run in its interpreter. Triton looks when it is imported, which transformers does.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from tests.examples import register_profiles
from tests.tiny_model import build_tiny_model

# The models here are tiny: a second thread would mostly be waited for. (Jobs have processes of their own.)
torch.set_num_threads(1)

# What a terminal is like, and which cluster there is, is said by the tests that want one.
for name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "RAY_ADDRESS"):
    os.environ.pop(name, None)
os.environ["TERM"] = "xterm"

# Ray remembers the last cluster in its folder, and would join it. Each process of the tests has a folder of its own
# (under /tmp, whatever TMPDIR says: a socket's path has a hundred characters at most).
os.environ["RAY_TMPDIR"] = tempfile.mkdtemp(prefix="hpd-", dir="/tmp")
atexit.register(shutil.rmtree, os.environ["RAY_TMPDIR"], ignore_errors=True)

register_profiles()


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their fixture; those with a Ray of another process carry the mark themselves."""
    for item in items:
        if "shared_ray" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.ray)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which files the time went into."""
    seconds: Counter[str] = Counter()
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        if isinstance(report, pytest.TestReport) and not hasattr(report, "context"):  # of a subtest, in its test's
            seconds[report.nodeid.split("::")[0]] += report.duration
    terminalreporter.section(f"the slowest files, of {seconds.total():,.0f} s in all")
    for name, spent in seconds.most_common(10):
        terminalreporter.write_line(f"{spent:7.1f} s  {name}")


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny Llama (random weights, safetensors) and a byte-level tokenizer with a chat template."""
    return build_tiny_model(tmp_path_factory.mktemp("tiny-model"))


@pytest.fixture(scope="session")
def shared_ray() -> Iterator[None]:
    """A local Ray with two CPUs; runs of this process with `executor: ray` join it."""
    import ray

    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    yield
    ray.shutdown()
