"""The contributors' pages: what they name is there, and their steps do what they say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from docs import draw_rooms, draw_tree_decoding
from hpd_core.attention import dispatch
from hpd_core.config import EngineConfig
from hpd_core.layout import EVERYBODY, PUBLIC, visible
from tests.core import families
from tests.core.attention.attention_problems import Shape, check, problem
from tests.core.conftest import poison  # noqa: F401 (a fixture)
from tests.core.helpers import assert_equals_oracle, decode, random_case, random_endings, random_ids
from tests.core.test_exactness import test_family_equals_oracle as check_family
from tests.tables import table

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[1]
GUIDES = ROOT / "docs" / "contribute"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FOLLOWED = "<!-- followed by tests/test_guides.py -->\n"


@table("picture", [draw_rooms, draw_tree_decoding])
def test_pictures_show_what_is_there(picture: Any) -> None:
    drawn = picture.PICTURE.read_text(encoding="utf-8")
    assert drawn == picture.draw(), f"python -m {picture.__name__} draws it anew"


def followed(guide: str, start: str) -> str:
    """The code of a guide that is marked to be followed here, and begins like this."""
    parts = (GUIDES / guide).read_text(encoding="utf-8").split(_FOLLOWED)[1:]
    found = [match[2] for part in parts if (match := _FENCE.match(part)) and match[2].startswith(start)]
    assert len(found) == 1
    return found[0]


@table("layout", ["tree", "stacked"])
@pytest.mark.usefixtures("poison")
def test_a_model_family_is_added(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    added = eval(f"{{{followed('add-a-model-family.md', chr(34))}}}", vars(families))
    for name, make in added.items():
        assert name not in families.FAMILIES
        monkeypatch.setitem(families._CONFIGS, name, make)
        check_family(name, layout)


@cache
def loop_attention() -> Any:
    names = {"torch": torch, "visible": visible, "PUBLIC": PUBLIC, "EVERYBODY": EVERYBODY}
    exec(followed("add-a-model-family.md", "class LoopAttention"), names)
    return names["LoopAttention"]


@table(
    "shape",
    [
        Shape([3, 0, 5], earlier=9),
        Shape([1, 1, 1, 4], earlier=20, prefix_lengths=(7, 16), window=9),
        Shape([2, 6], earlier=5, softcap=3.0, sinks=0.0, value_size=16, prefix_lengths=(4,)),
    ],
)
def test_a_way_to_attend_is_written(shape: Shape) -> None:
    item = problem(np.random.default_rng(2), shape, is_native=False)
    check(item, item.run(loop_attention()))


@table("layout", ["tree", "stacked"])
@pytest.mark.usefixtures("poison")
def test_a_way_to_attend_is_made_known(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole decodings by it are the oracle's; it takes the place of a way that is made of matrix products."""
    monkeypatch.setattr(dispatch, "_kernel_of", lambda way: loop_attention())
    rng = np.random.default_rng(5)
    endings = random_endings(rng)
    prefixes = [random_ids(rng, 4, 6), random_ids(rng, 2, 3)]
    cases = [random_case(rng, layout, prefixes, branches=2, k_max=3) for _ in range(3)]
    prompts = decode(families.build_model("gemma2"), cases, endings, EngineConfig(attention="eager"))
    oracle = families.build_model("gemma2")
    for case, prompt in zip(cases, prompts, strict=True):
        assert_equals_oracle(oracle, case, prompt, endings)


def edited(guide: str, folder: Path) -> Path:
    """A copy of `pipelines` in the folder, with the guide's edits."""
    shutil.copytree(ROOT / "pipelines", folder / "pipelines", ignore=shutil.ignore_patterns("__pycache__"))
    text = (GUIDES / guide).read_text(encoding="utf-8")
    patch = "".join(content for language, content in _FENCE.findall(text) if language == "diff")
    git = ["git", "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn", "-"]
    # Outside of any repository, so that git takes the paths as they are.
    outside = os.environ | {"GIT_CEILING_DIRECTORIES": str(folder.parent)}
    done = subprocess.run(git, cwd=folder, input=patch, text=True, capture_output=True, env=outside, check=False)
    assert done.returncode == 0, f"{guide}: the code has changed, its edits do not fit any more: {done.stderr}"
    return folder


def run_edited(folder: Path, script: str) -> list[str]:
    """What a script prints that sees the copy; tests and engine are those of the repository."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": path}, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


_READ_ARROW = """
import pyarrow as pa
from pipelines.catalog.input_files import scan_sources
from pipelines.catalog.readers import original_rows, read_piece
from pipelines.catalog.sharding import plan_shards
from pipelines.config.catalog_input import InputConfig
from pipelines.config.operation import ShardConfig

titles, more = [None, "Shoe 1", "Shoe 2", "Shoe 3"], {"tags": ["a", "b"]}
rows = [{"sku": n, "kind": "Shoes", "title": title, "more": more} for n, title in enumerate(titles)]
table = pa.Table.from_pylist(rows)
with pa.ipc.new_file("catalog.arrow", table.schema) as file:
    file.write_table(table, max_chunksize=3)
config = InputConfig(path="catalog.arrow", id="sku", category="kind", fields=["title", "more.tags"])
(file,) = scan_sources(config).files
shards = plan_shards([file], ShardConfig(max_rows=2, ramp=()), 10, 1)
print(file.format, file.num_rows, len(shards))
for shard in shards:
    for piece in shard.pieces:
        for row in read_piece(*file.rows, piece, config.columns):
            print(row.number, row.values["sku"], row.values["title"], row.values["more"]["tags"])
print(original_rows(*file.rows, shards[0].pieces[0], [1]))
"""


def test_a_reader_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPD_CACHE", str(tmp_path / "cache"))
    assert run_edited(edited("add-a-reader.md", tmp_path), _READ_ARROW) == [
        "arrow 4 2",
        "0 0 None ['a', 'b']",
        "1 1 Shoe 1 ['a', 'b']",
        "2 2 Shoe 2 ['a', 'b']",
        "3 3 Shoe 3 ['a', 'b']",
        '{1: \'{"sku": "1", "kind": "Shoes", "title": "Shoe 1", "more": {"tags": ["a", "b"]}}\'}',
    ]


_EXPORT = """
from pathlib import Path
from tests.pipelines.exporting.made_runs import bag, exported, write_normalised_run, write_shop_run

exported(write_normalised_run(Path("new"), [bag("b")]), "--to", "opencart", "--out", "new.csv")
print(Path("new.csv").read_text())
Path("own.csv").write_text("product_id,title,Brand\\nb,Bag,\\n")
run = write_shop_run(Path("run"), Path("own.csv"), "csv", "product_id", [bag("b", row=0)])
exported(run, "--to", "opencart", "--out", "filled.csv", "--columns", "Color=")
print(Path("filled.csv").read_text())
"""


def test_a_shop_is_added(tmp_path: Path) -> None:
    assert run_edited(edited("add-a-shop.md", tmp_path), _EXPORT) == [
        "product_id;Brand;Color;Width;Lined;Notes",
        "b;Acme;Black|Rose gold;35.56 cm;yes;",
        "",
        "product_id,title,Brand,Width,Lined",
        "b,Bag,Acme,35.56 cm,yes",
        "",
    ]
