"""A real, headless Chromium for the tests, driven through the DevTools protocol.

The one that PySide6-WebEngine brings along, or the machine's own (`chromium`, or what $CHROMIUM names). What a page
asks of the network and what it complains about is on record.
"""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.pipelines.ports import free_ports

_START_SECONDS = 600
_SETTLE_SECONDS = 0.3
_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40}


class NoBrowserError(Exception):
    """None that is installed starts here: a library of the system is missing, or its kind of machine is another."""


class Page:
    """One page. Every call waits for its answer.

    Attributes:
        requests: URLs that were asked for, `data:` included, the page itself not.
        complaints: errors and warnings of the console, uncaught exceptions, what the Content-Security-Policy refused.
        dialogs: texts of alert, confirm and prompt.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, session: aiohttp.ClientSession, socket: Any) -> None:
        self._loop, self._session, self._socket = loop, session, socket
        self._number = 0
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.dialogs: list[str] = []

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command of the protocol."""
        return self._loop.run_until_complete(asyncio.wait_for(self._call(method, params), 600))

    async def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        number = self._number
        await self._socket.send_json({"id": number, "method": method, "params": params})
        while True:
            message = await self._socket.receive_json()
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            await self._note(message)

    async def _note(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([each.get("value") for each in params["args"]]))
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(params["message"])
            self._number += 1
            reply = {"id": self._number, "method": "Page.handleJavaScriptDialog", "params": {"accept": True}}
            await self._socket.send_json(reply)

    def settle(self, seconds: float = _SETTLE_SECONDS) -> None:
        """Lets the page do what it has begun."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                message = self._loop.run_until_complete(asyncio.wait_for(self._socket.receive_json(), left))
            except TimeoutError:
                return
            self._loop.run_until_complete(self._note(message))

    def open(self, path: Path, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Loads a file, from the disk and with nothing on record yet."""
        for record in (self.requests, self.complaints, self.dialogs):
            record.clear()
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.resize(width, height, dark=dark)
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.until("document.readyState == 'complete' && location.protocol == 'file:'")
        self.settle()
        self.requests = [url for url in self.requests if url != path.resolve().as_uri()]

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """The window's size and the user's colour scheme."""
        mobile = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript. (The page's policy does not bind the debugger.)"""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Lets the page go on until the expression of JavaScript is true."""
        deadline = time.monotonic() + 300
        while not self.evaluate(expression):
            assert time.monotonic() < deadline, f"never true: {expression}"
            self.settle(0.05)

    def press(self, key: str) -> None:
        """A key, as a keyboard sends it."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        code = _KEYS.get(key, ord(key[0].upper()))
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path) -> None:
        """What is to be seen now, as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


def missing() -> str | None:
    """Why there is no browser here; None if there is one."""
    if _commands():
        return None
    return "no Chromium: neither PySide6-WebEngine nor chromium is installed"


@contextmanager
def open_browser() -> Iterator[Page]:
    """A browser with one empty page, until the block ends. Raises `NoBrowserError` if none starts."""
    problems = []
    for command in _commands():
        [port] = free_ports(1)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home, tempfile.TemporaryFile() as log:
            process = subprocess.Popen([each.format(port=port, home=home) for each in command], stdout=log, stderr=log)
            loop = asyncio.new_event_loop()
            try:
                page = loop.run_until_complete(_connect(loop, process, port))
                if page is not None:
                    try:
                        yield page
                        return
                    finally:
                        loop.run_until_complete(page._session.close())
                log.seek(0)
                problems.append(f"{command[0]}: {log.read().decode(errors='replace')[-500:]}")
            finally:
                process.kill()
                process.wait()
                loop.close()
    raise NoBrowserError("no Chromium starts: " + "; ".join(problems))


async def _connect(loop: asyncio.AbstractEventLoop, process: subprocess.Popen[bytes], port: int) -> Page | None:
    """The browser's page; None if the browser has ended by itself."""
    session = aiohttp.ClientSession()
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                pages = [each for each in await answer.json(content_type=None) if each["type"] == "page"]
            if pages:
                socket = await session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0)
                return Page(loop, session, socket)
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.1)
    await session.close()
    assert process.poll() is not None, f"{process.args} does not answer after {_START_SECONDS} seconds"
    return None


def _commands() -> list[list[str]]:
    commands = []
    if importlib.util.find_spec("PySide6") and importlib.util.find_spec("PySide6.QtWebEngineCore"):
        commands.append([sys.executable, str(Path(__file__).with_name("webengine.py")), "{port}"])
    named = [os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome"]
    if program := next((found for name in named if name and (found := shutil.which(name))), None):
        switches = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
        switches += ["--disable-component-update", "--disable-sync", "--disable-quic", "--hide-scrollbars"]
        own = ["--user-data-dir={home}", "--remote-debugging-port={port}", "about:blank"]
        commands.append([program, *switches, *own])
    return commands
