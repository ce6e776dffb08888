"""What a source calls alike: told apart by its codes, ids and paths, in every kind of source; or refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpd_core.text.near_names import fold_name
from pipelines.config.importing.imported import told_apart
from pipelines.config.schema_file import load_schemas
from tests.pipelines.config.imports import call, done, refused, write

AKENEO = """
    code;attributes;type;label-en_US
    color;;pim_catalog_text;Color
    size;;pim_catalog_text;Size
    f1;color;;Fam
    f2;size;;Fam
    f3;color,size;;fam
    f4;size;;Fam (f1)
"""


def test_one_of_several_called_alike_is_chosen_by_its_id(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", AKENEO)
    assert list(done(tmp_path, path, "--category", "f2").schemas) == ["Fam"]
    assert "called so, name one by its id: 'f1', 'f2', 'f3'" in refused(tmp_path, path, "--category", "Fam")


def test_two_categories_of_one_id_are_refused(tmp_path: Path) -> None:
    files = [
        write(tmp_path, f"{name}.txt", f"# Google_Product_Taxonomy_Version: 1\n1 - {name}\n")
        for name in ("Bags", "Taschen")
    ]
    assert "two categories have the id '1', 'Bags' with" in refused(tmp_path, *files)


@given(st.lists(st.tuples(st.sampled_from(["a", "A", "a (1)", "a (1 2)", "b"]), st.sampled_from(["", "1", "2"]))))
def test_no_two_names_are_alike(named: list[tuple[str, str]]) -> None:
    names = told_apart(named, fold_name)
    assert len(set(map(fold_name, names))) == len(named)
    assert all(name.startswith(each) for name, (each, _) in zip(names, named, strict=True))


def test_what_does_not_load_leaves_the_older_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = write(tmp_path, "hat.json", {"properties": {"brand": {}}}), tmp_path / "out.yaml"
    assert call(path, "--out", out).exit_code == 0
    monkeypatch.setattr("pipelines.schema.schema_text", lambda *_: "categories: {a: [x], a: [y]}")
    result = call(path, "--out", out, "--force")
    assert (result.exit_code, "written twice" in result.stderr) == (2, True)
    assert list(load_schemas(str(out))) == ["hat"]
    assert "written twice" in refused(tmp_path, path)
