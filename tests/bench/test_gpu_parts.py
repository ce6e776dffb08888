"""Parts of a GPU measurement: counted tests, and parts on a pretended GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import transformers

from bench.gpu import plan
from bench.gpu.card import exactness
from bench.gpu.loaded import Loaded, model_shape
from bench.gpu.parts import run_part
from bench.gpu.plan import GpuSettings, PartError
from bench.random_model import random_model
from tests.core.pretended_gpu import pretended_gpu
from tests.tiny_model import build_tokenizer

_SOME = """
import pytest, time
@pytest.mark.parametrize('n', range(4))
def test_right(n): pass
@pytest.mark.skip(reason='no such card')
def test_elsewhere(): pass
"""


@pytest.mark.parametrize(
    ("files", "seconds", "counts", "problem"),
    [
        ({"test_some.py": _SOME}, 60, (4, 0, 1), None),
        ({"test_some.py": _SOME + "def test_wrong(): assert 1 == 2\n"}, 60, (4, 1, 1), "1 failed"),
        ({"test_some.py": _SOME, "test_broken.py": "import hpd_core.nowhere\n"}, 60, (4, 1, 1), "1 failed"),
        (
            {"test_some.py": "def test_slow(): __import__('time').sleep(99)\n"},
            11,
            (0, 0, 0),
            "not all were done in time",
        ),
        (
            {"test_some.py": "import pytest\npytest.skip('no card', allow_module_level=True)\n"},
            60,
            (0, 0, 0),
            "pytest's exit code is 5; none has passed",
        ),
    ],
)
def test_what_is_no_proof_of_exactness(
    files: dict[str, str], seconds: float, counts: tuple[int, ...], problem: str | None, tmp_path: Path
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text("import hypothesis\nhypothesis.settings.register_profile('quick')\n")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    rows, said = [], ""
    try:
        for row in exactness(seconds, GpuSettings("cuda", False, 4, "none", None, str(tmp_path)), print, str(tmp_path)):
            rows.append((row["passed"], row["failed"], row["skipped"]))
    except PartError as error:
        said = str(error)
    assert rows == [counts]
    assert said.startswith(problem) if problem else not said, said


@pytest.fixture
def on_a_pretended_gpu(tmp_path: Path) -> Iterator[Loaded]:
    tokenizer = build_tokenizer()
    model = random_model(model_shape("0.6b", True), tokenizer, "cpu")
    transformers.AutoModelForCausalLM.from_config(model.config)  # see `pretended_gpu`
    settings = GpuSettings("cuda", True, 6, "none", None, str(tmp_path))
    with pretended_gpu():
        yield Loaded(model.to("cuda"), tokenizer, "0.6b", settings, lambda _: None)


@pytest.mark.parametrize("name", ["0.6b:tree", "0.6b:floor", "0.6b:small-steps", "0.6b:single"])
def test_on_a_gpu_parts_keep_to_it(name: str, on_a_pretended_gpu: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor of the host is mixed with one of the device."""
    monkeypatch.setattr("bench.gpu.parts._SINGLE_RECORDS", 2)
    monkeypatch.setattr("bench.gpu.parts.SIZES", (1, 32))
    monkeypatch.setattr("bench.gpu.parts._STEPS", 4)
    found = list(run_part(on_a_pretended_gpu, plan.parse(name)))
    assert found
    assert {row["device"] for row in found} == {"pretended GPU"}
    if name == "0.6b:small-steps":
        assert [row["tokens"] for row in found] == [1, 32]
