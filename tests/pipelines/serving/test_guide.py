"""What docs/serve.md shows is done, in its order, against a server: curl, Python, instructor, a teacher."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.generate_clients import PYTHON
from tests.pipelines.commands import ROOT
from tests.pipelines.conftest import Workplace, products
from tests.pipelines.labelling.labellings import Labelling
from tests.pipelines.serving.served import MODEL, Served

pytestmark = pytest.mark.docs

PAGE = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")


def blocks(language: str, server: Served) -> list[str]:
    """The page's code, pointed at the server."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found
    return [each.replace("http://127.0.0.1:8000/v1", server.address) for each in found]


def test_curl_gets_an_invoice(real_server: Served) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    (command,) = blocks("bash", real_server)
    done = subprocess.run([*shlex.split(command), "--silent"], capture_output=True, timeout=60, check=True)
    answer = json.loads(done.stdout)
    assert json.loads(answer["choices"][0]["message"]["content"]).keys() == {"number", "buyer", "total", "paid"}
    shown = re.search(r'^"hpd": \{"fields": \[(\{.*?\}), \.\.\.\]', PAGE, re.MULTILINE | re.DOTALL)
    assert shown is not None
    assert answer["hpd"]["fields"][0].keys() == json.loads(shown[1]).keys()


@pytest.mark.full
def test_the_python_of_the_page_runs(real_server: Served, tmp_path: Path) -> None:
    """All of it where `make clients` was run, else without instructor. 10 s."""
    parts = blocks("python", real_server)
    assert sum("import instructor" in part for part in parts) == 1
    if not PYTHON.exists():
        parts = [part for part in parts if "import instructor" not in part]
    script = tmp_path / "page.py"
    script.write_text("\n".join(parts), encoding="utf-8")
    python = PYTHON if PYTHON.exists() else sys.executable
    done = subprocess.run([python, script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for name in ("number", "buyer", "total", "paid"):
        assert name in done.stdout


def test_it_is_a_teacher(server: Served, workplace: Workplace) -> None:
    """As on the page: the schema is sent once the server has asked for it."""
    workplace.write_jsonl("a.jsonl", products(6))
    shown = re.search(r"teacher='(\{kind: openai.*?\})'", PAGE)
    assert shown is not None
    labelling = Labelling(workplace)
    settings = {"model": MODEL, "answer_attempts": 1}
    result = labelling.ask(server.address, teacher=settings)
    assert all(f"{key}: {value}" in shown[1] for key, value in {**settings, "model": "smollm2"}.items())
    assert result.exit_code == 0, result.output
    manifest = labelling.manifest()
    assert manifest["status"] == "finished"
    assert manifest["labelled"] + manifest["rejected"] == 6
    assert manifest["labelled"] > 0
