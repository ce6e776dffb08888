"""The engine without a model: it behaves like one, and nobody can take its answers for a model's."""

from __future__ import annotations

from pathlib import Path

from hpd_core import NullEngine


def test_it_says_that_its_answers_are_made_up(tiny_model_dir: Path) -> None:
    with NullEngine.from_pretrained(str(tiny_model_dir)) as engine:
        found = engine.describe()
    assert found["decoding"] == found["layout"] == "made-up"
    assert found["model_id"].startswith("made-up")
    assert found["model_revision"] is None
    assert "made up" in found["notes"][0]
