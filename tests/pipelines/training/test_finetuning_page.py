"""docs/fine-tune.md, followed as it is written: from a catalog and a teacher to a deployed adapter."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from pipelines.quality.gold import read_gold
from tests.pipelines.commands import ROOT
from tests.pipelines.conftest import Workplace, product
from tests.pipelines.labelling.served_teacher import TroubleMaker, right_answer

pytestmark = pytest.mark.docs


def sections() -> dict[str, str]:
    """The page's commands by section; what only shows an example's output is none."""
    page = (ROOT / "docs/fine-tune.md").read_text()
    found = {}
    for title, text in re.findall(r"^## \d\. (\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL):
        blocks = re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        found[title] = "".join(block for block in blocks if not block.startswith("$"))
    return found


class Shell:
    """A checkout's root with an environment at hand, as `source .venv/bin/activate` makes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("pipelines", "hpd_core", "configs"):
            (folder / name).symlink_to(ROOT / name)
        (folder / ".venv/bin").mkdir(parents=True)
        (folder / ".venv/bin/activate").write_text(
            f'hpd() {{ local name=$1; shift; {shlex.quote(sys.executable)} "pipelines/$name.py" "$@"; }}\n'
        )

    def run(self, commands: str) -> str:
        done = subprocess.run(
            ["bash", "-euc", commands],
            cwd=self.folder,
            env={**os.environ, "OPENAI_API_KEY": "none", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1800,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout[-4000:]}"
        return done.stdout

    def fill_in(self, name: str, **changes: Any) -> None:
        """What a person writes into a copied file."""
        path = self.folder / name
        document = yaml.safe_load(path.read_text())
        for key, value in changes.items():
            document[key] = {**document[key], **value} if isinstance(value, dict) else value
        path.write_text(yaml.safe_dump(document, sort_keys=False))


@pytest.mark.soak
def test_the_page_works(workplace: Workplace, tiny_model_dir: Path) -> None:
    shell = Shell(workplace.folder)
    commands = sections()
    assert list(commands) == ["Labels", "Check", "Train", "Judge", "Deploy"]
    assert all(commands.values())
    workplace.write_jsonl("my-catalog.jsonl", [product(n, description=f"for walks of {n} km") for n in range(60)])
    document = workplace.document()
    schemas = document["schemas"]
    # The fields stay as they were copied, those of the labelling and those of the job: the page needs them to agree.
    columns = {"path": "catalog/my-catalog.jsonl", "id": "id"}
    engine = {"dtype": "float32", "device": "cpu", "max_value_tokens": 12}
    copied = re.search(r"(?:^cp .*\n)+", commands["Labels"], re.MULTILINE)
    assert copied is not None
    activate = "source .venv/bin/activate\n"
    assert activate.strip() in commands["Labels"]
    shell.run(copied.group())
    with TroubleMaker(lambda request, _: right_answer(request)) as teacher:
        shell.fill_in("label.yaml", input=columns, schemas=schemas, teacher={"base_url": teacher.url, "model": "m"})
        shell.fill_in(
            "finetune.yaml",
            model=str(tiny_model_dir),
            datasets=[{"gold": "labels/catalog.train.jsonl", "schemas": schemas}],
            engine=engine,
            validation={"share": 0.2},
        )
        shell.fill_in("job.yaml", model=str(tiny_model_dir), input=columns, schemas=schemas, engine=engine)
        labelled = shell.run(commands["Labels"].replace(copied.group(), ""))
    assert len(teacher.requests) == 60, labelled
    train, test = (
        [product.product_id for product in read_gold(str(shell.folder / f"labels/catalog.{part}.jsonl"))]
        for part in ("train", "test")
    )
    assert sorted([*train, *test]) == sorted(f"p{number}" for number in range(60))

    assert f"{len(train)} products; taught:" in shell.run(activate + commands["Check"])
    trained = shell.run(activate + commands["Train"])
    assert "validation: F1" in trained
    assert (shell.folder / "runs/finetune/model/adapter_model.safetensors").exists()
    (settings,) = re.findall(r"--set '(input=.*)'", labelled)
    assert f"test='{settings}'\n" in commands["Judge"], "as --split prints it"
    judged = shell.run(activate + commands["Judge"])
    assert f"{len(test)} products" in judged
    shell.run(activate + commands["Deploy"])
    tables = {name: pq.read_table(shell.folder / f"runs/{name}/products") for name in ("tuned", "catalog")}
    assert sorted(tables["tuned"]["product_id"].to_pylist()) == sorted(test)
    assert tables["catalog"].num_rows == 60
    manifests = {
        name: json.loads((shell.folder / f"runs/{name}/manifest.json").read_text())
        for name in ("untuned", "tuned", "catalog")
    }
    revisions = {name: manifest.get("adapter_revision") for name, manifest in manifests.items()}
    assert revisions["untuned"] is None
    assert revisions["tuned"] == revisions["catalog"] is not None
    names = {
        name: list(yaml.safe_load((shell.folder / name).read_text())["input"]["fields"])
        for name in ("label.yaml", "job.yaml")
    }
    assert names["label.yaml"] == names["job.yaml"], "the prompt shows them"
