"""The real command, serving in a process of its own, and a reviewer without a browser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.pipelines.commands import ROOT


@dataclass
class Server:
    """A running server; `address` ends with its secret and a slash."""

    process: subprocess.Popen[str]
    address: str

    def ask(
        self, path: str, question: Mapping[str, Any] | bytes, **headers: str
    ) -> tuple[int, dict[str, Any], Mapping[str, str]]:
        """Status, answer and headers."""
        data = question if isinstance(question, bytes) else json.dumps(question).encode()
        request = urllib.request.Request(
            f"{self.address}{path}", data, {"Content-Type": "application/json", **headers}, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return reply.status, json.loads(reply.read()), dict(reply.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read()), dict(error.headers)

    def next(self, reviewer: str, **wish: str) -> dict[str, Any] | None:
        """What the reviewer is asked."""
        status, reply, _ = self.ask("next", {"reviewer": reviewer, **wish})
        assert status == 200, reply
        answer: dict[str, Any] | None = reply["answer"]
        return answer

    def say(self, reviewer: str, key: Mapping[str, Any], verdict: str, *items: str, id: str = "") -> dict[str, Any]:
        """Says it of the text that is shown now; the answer says whether it was taken."""
        question = {"id": id or uuid.uuid4().hex, "reviewer": reviewer, "key": key, "verdict": verdict, "items": items}
        shown = self.ask("answer", {"reviewer": reviewer, "key": key})[1].get("answer") or {"input_hash": ""}
        return self.ask("say", question | {"input_hash": shown["input_hash"]})[1]


@contextmanager
def serving(run: Path | str, *arguments: str, port: int = 0, **environment: str) -> Iterator[Server]:
    """Starts `hpd review`; it is killed in the end, as by `kill -9`."""
    command = [sys.executable, "-m", "pipelines.cli", "review", str(run), "--port", str(port), *arguments]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1", **environment}
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("Review at http"), line
        yield Server(process, line.split()[-1])
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
