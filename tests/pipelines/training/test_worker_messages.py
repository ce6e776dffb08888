"""What workers say to the driver."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

from pipelines.errors import UsageError
from pipelines.training.worker_messages import Begins, TrainingRuns

ROOT = Path(__file__).resolve().parents[3]


def test_who_reads_a_message_imports_no_engine() -> None:
    """The queue's process does: for torch alone it took half a gigabyte, and the worker waited for it."""
    sent = pickle.dumps([Begins("reading the data"), TrainingRuns(), UsageError("no such file")])
    code = (
        f"import pickle, sys; pickle.loads({sent!r}); print([name for name in ('torch', 'ray') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
