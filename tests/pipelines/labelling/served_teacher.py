"""Real endpoints for label.py: `transformers serve` with a model that was taught to answer, and a server between that
makes trouble on demand (it passes requests on, or answers them itself).
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch

from tests.pipelines.ports import free_ports
from tests.tiny_model import answering_model, build_tokenizer

# Short, for a tokenizer of 400 tokens makes many of any text.
INSTRUCTION = "JSON:\n{attributes}\n{documents}"
# In the form that plain autoregressive decoding reads, too.
TAUGHT = {
    "Shoes": '{\n"Brand": "Velor",\n"Colour": "red",\n"Sizes": null\n}',
    "Coffee": '{\n"Brand": "Velor",\n"Weight": null\n}',
}


def teach_tiny_model(folder: Path, questions: dict[str, list[str]]) -> Path:
    """Trains a tiny model until it answers each category's questions with the text in TAUGHT; a few seconds."""
    tokenizer = build_tokenizer()
    torch.manual_seed(0)
    model = answering_model(tokenizer, initializer_range=0.02).train()
    examples = []
    for texts in zip(*questions.values(), strict=True):
        for category, text in zip(questions, texts, strict=True):
            message = [{"role": "user", "content": text}]
            prompt = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
            ids = tokenizer(prompt)["input_ids"]
            answer = tokenizer(TAUGHT[category] + "<|im_end|>")["input_ids"]
            examples.append((ids + answer, [-100] * len(ids) + answer))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so small a model gains nothing from more, and a busy machine loses much
    losses = [1.0] * len(examples)
    for step in range(600):
        chosen = step % len(examples)
        ids, wanted = examples[chosen]
        loss = model(input_ids=torch.tensor([ids]), labels=torch.tensor([wanted])).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses[chosen] = loss.item()
        if max(losses) < 0.02:
            break
    torch.set_num_threads(threads)
    assert max(losses) < 0.1, f"the teacher did not learn: {max(losses):.3f} after {step + 1} steps"
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@contextmanager
def transformers_serve(log: Path) -> Iterator[str]:
    """`transformers serve`, any local model by its path; gives the base URL."""
    [port] = free_ports(1)
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", "--device", "cpu", "--port", str(port)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        try:
            _wait_for(f"http://localhost:{port}/health", server, log)
            yield f"http://localhost:{port}/v1"
        finally:
            server.terminate()
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"transformers serve did not start:\n{log.read_text()[-3000:]}")


@dataclass
class Reply:
    """An HTTP answer. `body` that is text is the content of a completion, bytes are sent as they are."""

    body: str | bytes | dict[str, Any] = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    trickle: float = 0.0
    finish: str = "stop"
    usage: bool = True
    hang_up: bool = False


Behaviour = Callable[[dict[str, Any], int], "Reply | None"]


class TroubleMaker:
    """Counts requests and answers as `behaviour(request, number)` says; None passes the request on to `upstream`."""

    def __init__(self, behaviour: Behaviour, upstream: str | None = None, models_status: int = 200) -> None:
        self.behaviour, self.upstream, self.models_status = behaviour, upstream, models_status
        self.requests: list[dict[str, Any]] = []
        self.authorizations: list[str | None] = []
        self.most_at_once = self._now = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = {"object": "list", "data": []} if outer.models_status == 200 else {"error": {"message": "no"}}
                self.answer(outer.models_status, json.dumps(body).encode(), {})

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer._lock:
                    outer.authorizations.append(self.headers.get("Authorization"))
                    outer.requests.append(request)
                    number = len(outer.requests)
                    outer._now += 1
                    outer.most_at_once = max(outer.most_at_once, outer._now)
                try:
                    reply = outer.behaviour(request, number)
                    passed_on = outer._pass_on(request) if reply is None else None
                finally:
                    # Before the answer: with that, the client may ask the next question.
                    with outer._lock:
                        outer._now -= 1
                try:
                    if passed_on is not None:
                        self.answer(*passed_on, {})
                    elif reply is not None:
                        self.send(reply)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the client gave up, as it should

            def send(self, reply: Reply) -> None:
                if reply.hang_up:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                body = reply.body
                if isinstance(body, str) and reply.status == 200:
                    body = completion(body, reply.finish, reply.usage)
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.answer(reply.status, data, reply.headers, reply.trickle)

            def answer(self, status: int, data: bytes, headers: dict[str, str], trickle: float = 0.0) -> None:
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if trickle:
                    for byte in data:
                        self.wfile.write(bytes([byte]))
                        self.wfile.flush()
                        time.sleep(trickle)
                else:
                    self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("localhost", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.url = f"http://localhost:{self._server.server_port}/v1"

    def __enter__(self) -> TroubleMaker:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def texts(self) -> list[str]:
        """The last message of every request."""
        return [request["messages"][-1]["content"] for request in self.requests]

    def _pass_on(self, request: dict[str, Any]) -> tuple[int, bytes]:
        assert self.upstream is not None
        message = urllib.request.Request(
            f"{self.upstream}/chat/completions", json.dumps(request).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(message, timeout=600) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()


def completion(content: str, finish: str = "stop", usage: bool = True) -> dict[str, Any]:
    message = {"role": "assistant", "content": content}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        **({"usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}} if usage else {}),
    }


def right_answer(request: dict[str, Any], _: int = 0) -> Reply:
    """What a good teacher writes about the products of conftest.py."""
    is_coffee = "- Weight" in request["messages"][0]["content"]
    values = {"Brand": "Velor", "Weight": None} if is_coffee else {"Brand": "Velor", "Colour": "red", "Sizes": None}
    return Reply(json.dumps(values))
