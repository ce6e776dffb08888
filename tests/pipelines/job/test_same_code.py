"""What counts as another version of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.job import same_code


def test_what_decides_answers_counts_and_what_editors_leave_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(same_code, "_ROOT", tmp_path)
    digest = same_code.code_digest.__wrapped__
    package = tmp_path / "pipelines"
    (package / ".ipynb_checkpoints").mkdir(parents=True)
    (package / "a.py").write_text("1")
    (package / "units.yaml").write_text("cm: 1")
    first = digest()
    (package / ".#a.py").symlink_to("nowhere")
    (package / "._a.py").write_text("x")
    (package / ".ipynb_checkpoints" / "a.py").write_text("x")
    (package / "a.pyc").write_text("x")
    assert digest() == first
    for name, text in (("units.yaml", "cm: 2"), ("a.py", "2"), ("b.py", "")):
        (package / name).write_text(text)
        assert digest() != first
        first = digest()
