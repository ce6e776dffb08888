"""`hpd teach` as a person has it: its page is answered, its questions too; stopped and called again it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipelines.store.folders import Folder
from tests.pipelines.commands import ROOT
from tests.pipelines.conftest import Workplace
from tests.pipelines.reviewing.served import Server
from tests.pipelines.training.trainings import COLOURS, Training

BATCH = 24


@contextmanager
def teaching(config: Path, out: Path) -> Iterator[subprocess.Popen[str]]:
    options = ["--config", str(config), "--out", str(out), "--rows", "60", "--batch", str(BATCH), "--port", "0"]
    command = [sys.executable, "-m", "pipelines.cli", "teach", *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def review_all(process: subprocess.Popen[str]) -> None:
    """Says what is right of every answer that the page asks about, and ends the page by Ctrl-C."""
    assert process.stdout is not None
    address = next(line.split()[-1] for line in process.stdout if line.startswith("Review at http"))
    server = Server(process, address)
    while (asked := server.next("Ann")) is not None:
        text = json.dumps(asked["fields"])
        right = [colour for colour in COLOURS if colour in text]
        server.say("Ann", asked["key"], "correct" if right else "absent", *right)
    os.killpg(process.pid, signal.SIGINT)


def test_a_catalog_is_taught(workplace: Workplace) -> None:
    lines = [Training.line(number) for number in range(80)]
    rows = [{"id": line["product_id"], "category": "Shoes", "title": line["input"]["title"]} for line in lines]
    workplace.write_jsonl("catalog.jsonl", rows)
    (workplace.folder / "schemas.yaml").write_text("categories: {Shoes: [Colour]}\n")
    input_settings = {"path": str(workplace.catalog), "id": "id", "category": "category", "fields": ["title"]}
    engine = {**workplace.document()["engine"], "layout": "tree"}
    config, out = workplace.write_config(input=input_settings, engine=engine), workplace.folder / "taught"

    with teaching(config, out) as process:
        review_all(process)
        said, _ = process.communicate("n\n", timeout=300)
    assert f"{BATCH} products are labelled" in said
    assert process.returncode == 1, "labelled, and not yet trained"

    with teaching(config, out) as process:
        review_all(process)  # nothing is left to ask
        said, _ = process.communicate("y\nn\n", timeout=300)
    assert process.returncode == 0, said
    taught, judged = (
        {json.loads(line)["input"]["title"] for line in (out / f"round-1/gold.{part}.jsonl").read_text().splitlines()}
        for part in ("train", "test")
    )
    assert taught
    assert judged
    assert not taught & judged
    assert f"{len(judged)} products" in said
    assert "[by a person" not in said, "the model is judged, not the reviewer"
    adapter = out / "round-1/trained/model"
    assert f"hpd extract --config {out}/job.yaml --set 'adapter=\"{adapter}\"'" in said
    assert json.loads(Folder(str(out / "round-1/after")).read("manifest.json"))["config"]["adapter"] == str(adapter)

    with teaching(config, out) as process:
        said, _ = process.communicate("n\n", timeout=300)
    assert "Review at" not in said, "all that was done is there"
    assert "finished already" in said
