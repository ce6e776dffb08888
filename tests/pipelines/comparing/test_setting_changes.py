"""What differs between two runs besides their answers: settings, engine and schemas."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from hpd_core import Attribute
from pipelines.comparing.comparison import compare_runs
from tests.pipelines.comparing.comparisons import of
from tests.pipelines.comparing.made_runs import ABSENT, Row, write_run


def test_settings_that_differ(tmp_path: Path) -> None:
    rows = [Row("p0", {"Brand": "Acme"})]
    a = write_run(tmp_path / "a", rows, config={"model": "m", "engine": {"layout": "tree", "stack_size": 6}})
    b = write_run(
        tmp_path / "b",
        rows,
        config={"model": "m", "engine": {"layout": "stacked", "stack_size": 6}, "adapter": "x"},
        engine={"layout": "stacked", "adapter_revision": "r2", "versions": {"torch": "2"}},
    )
    found = compare_runs(a, b).settings
    assert [dataclasses.astuple(each) for each in found.config] == [
        ("engine.layout", "tree", "stacked"),
        ("adapter", None, "x"),
    ]
    assert [each.key for each in found.engine] == ["adapter_revision", "versions"]


def test_attributes_that_one_run_alone_was_asked_for(tmp_path: Path) -> None:
    before = [Attribute(name="Brand"), Attribute(name="Weight", type="number", unit="g"), Attribute(name="Old")]
    after = [Attribute(name="Brand"), Attribute(name="Weight", type="number", unit="kg"), Attribute(name="New")]
    a = write_run(tmp_path / "a", [Row("p0", {"Brand": "Acme", "Weight": "1", "Old": "x"})], schemas={"Coffee": before})
    b = write_run(
        tmp_path / "b",
        [Row("p0", {"Brand": "Acme", "Weight": "2", "New": ABSENT})],
        schemas={"Coffee": after, "Tea": ["Brand"]},
    )
    comparison = compare_runs(a, b)
    assert [(each.attribute, each.change) for each in comparison.settings.schemas or ()] == [
        ("Weight", "unit: g -> kg"),
        ("Old", "removed"),
        ("New", "added"),
        (None, "added, 1 attributes"),
    ]
    assert (comparison.same_text.num_answers, comparison.same_text.num_same) == (2, 1)
    assert (of(comparison, "Old").only_a, of(comparison, "Old").only_b) == (1, 0)
    assert (of(comparison, "New").only_a, of(comparison, "New").only_b) == (0, 1)
    assert of(comparison, "Old").agreement.share is None


def test_runs_of_before_schemas_were_kept(tmp_path: Path) -> None:
    a, b = (write_run(tmp_path / name, [Row("p0", {"Brand": "Acme"})]) for name in "ab")
    (tmp_path / "a" / "_schemas.json").unlink()
    comparison = compare_runs(a, b)
    assert comparison.settings.schemas is None
    assert "Schemas are not compared" in comparison.notes[0]
