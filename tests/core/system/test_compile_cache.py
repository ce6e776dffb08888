"""Where kernels for GPUs are kept, and what the log says of them; Triton is stood in for."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from hpd_core.system.user_cache import prepare_compile_cache


@pytest.fixture
def knobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    triton, knobs = ModuleType("triton"), ModuleType("triton.knobs")
    knobs.compilation = SimpleNamespace(listener=None)  # type: ignore[attr-defined]
    triton.knobs = knobs  # type: ignore[attr-defined]
    for name, module in (("triton", triton), ("triton.knobs", knobs)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("HPD_CACHE", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", "")  # so that what is set there is undone
    monkeypatch.delenv("TRITON_CACHE_DIR")
    return knobs


def test_kernels_are_kept_in_the_users_cache_and_compiling_is_told_once_a_model(
    knobs: ModuleType, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hpd_core")
    for _ in range(2):
        prepare_compile_cache()
        assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path / "triton")
        caplog.clear()
        for cache_hit in (True, False, True, False):
            knobs.compilation.listener(src=None, metadata={}, metadata_group={}, times=None, cache_hit=cache_hit)
        [record] = caplog.records
        assert record.getMessage().endswith(f"they are kept in {tmp_path / 'triton'}")
    prepare_compile_cache()
    caplog.clear()
    knobs.compilation.listener(src=None, metadata={}, metadata_group={}, times=None, cache_hit=True)
    assert not caplog.records, "a second run finds them"


def test_where_nothing_can_be_kept_it_is_said(
    knobs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("HPD_CACHE", str(tmp_path / "a file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    prepare_compile_cache()
    assert Path(os.environ["TRITON_CACHE_DIR"]).parent == tmp_path
    assert "every process compiles them; set HPD_CACHE" in caplog.text


def test_a_folder_that_the_user_names_stays_his(knobs: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", "/somewhere/else")
    prepare_compile_cache()
    assert os.environ["TRITON_CACHE_DIR"] == "/somewhere/else"
