"""Chromium without a window, by https://chromedevtools.github.io/devtools-protocol/ over a pipe.

The pipe needs no package, no port and no driver of the same version, and the browser ends when the pipe does:
whatever becomes of the tests, none stays behind.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",  # root has none, and it opens our own pages alone
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",  # a container's is too small
    "--no-proxy-server",
    "--remote-debugging-pipe",
)
ANSWER_SECONDS, END_SECONDS = 30.0, 10.0
PIXELS = {"width": 760, "height": 900, "deviceScaleFactor": 2, "mobile": False}
_AT_3_AND_4 = 'exec "$@" 3</dev/fd/{} 4>/dev/fd/{}'


class BrowserFailed(AssertionError):
    """There is no Chromium, or it ended, or it did not do what it was asked to; the message says why."""


@dataclass
class Chromium:
    """A running browser. `notes`: what it reported of each page without being asked, oldest first."""

    process: subprocess.Popen[bytes]
    to: int
    back: int
    notes: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self._ids = itertools.count(1)
        self._unread = bytearray()

    def call(self, method: str, session: str | None = None, /, **params: Any) -> dict[str, Any]:
        """The result of a method of the protocol; notes that come before it are kept."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        with contextlib.suppress(BrokenPipeError):  # then there is no answer either
            os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_SECONDS
        while (answer := self._read(deadline)).get("id") != number:
            if "method" in answer:
                self.notes[answer.get("sessionId", "")].append(answer)
        if "error" in answer:
            raise BrowserFailed(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def page(self) -> Page:
        """An empty page that shares nothing with any other: no cache, no connection, no storage."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable", session)
        self.call("Page.setLifecycleEventsEnabled", session, enabled=True)
        self.call("Emulation.setDeviceMetricsOverride", session, **PIXELS)
        return Page(self, session, context)

    def _read(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._unread:
            if not select.select([self.back], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise BrowserFailed(f"no answer in {ANSWER_SECONDS:.0f} s")
            received = os.read(self.back, 1 << 20)
            if not received:
                raise BrowserFailed(f"the browser has ended: {self.process.wait(END_SECONDS)}")
            self._unread += received
        message, _, self._unread = self._unread.partition(b"\0")
        note: dict[str, Any] = json.loads(message)
        return note


@dataclass(frozen=True)
class Page:
    """One tab."""

    browser: Chromium
    session: str
    context: str

    def open(self, url: str) -> None:
        """Go there, and wait until the page's scripts have run."""
        going = self.browser.call("Page.navigate", self.session, url=url)
        if "errorText" in going:
            raise BrowserFailed(f"{url}: {going['errorText']}")
        deadline = time.monotonic() + ANSWER_SECONDS
        loaded = {"name": "load", "loaderId": going["loaderId"]}
        while not any(loaded.items() <= note.items() for note in self.notes("Page.lifecycleEvent")):
            if time.monotonic() > deadline:
                raise BrowserFailed(f"{url}: not loaded in {ANSWER_SECONDS:.0f} s")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited if it is a promise."""
        answer = self.browser.call(
            "Runtime.evaluate", self.session, expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise BrowserFailed(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def notes(self, method: str) -> list[dict[str, Any]]:
        """The parameters of what the browser has reported under this name."""
        self.evaluate("0")  # what was reported before is read with the answer
        return [note["params"] for note in self.browser.notes[self.session] if note["method"] == method]

    def requests(self, url: str) -> list[dict[str, Any]]:
        """All that was sent to this URL over HTTP, with `method` and `headers`: preflights too."""
        headers = {note["requestId"]: note["headers"] for note in self.notes("Network.requestWillBeSentExtraInfo")}
        sent = [note for note in self.notes("Network.requestWillBeSent") if note["request"]["url"] == url]
        return [note["request"] | {"headers": headers.get(note["requestId"], {})} for note in sent]

    def sockets(self) -> list[str]:
        """The URLs of all WebSockets that were opened, or tried."""
        return [note["url"] for note in self.notes("Network.webSocketCreated")]

    def complaints(self) -> list[str]:
        """The console: errors and warnings of the page and of the browser, and what nobody caught."""
        said = [entry["entry"]["text"] for entry in self.notes("Log.entryAdded")]
        said += [str(call["args"]) for call in self.notes("Runtime.consoleAPICalled")]
        return said + [str(thrown["exceptionDetails"]) for thrown in self.notes("Runtime.exceptionThrown")]

    def screenshot(self, file: Path) -> None:
        png = self.browser.call("Page.captureScreenshot", self.session, format="png")["data"]
        file.write_bytes(b64decode(png))

    def close(self) -> None:
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)


@contextlib.contextmanager
def running(profile: Path) -> Iterator[Chromium]:
    """A browser for the length of a `with` block, with this empty directory for all that it keeps."""
    browser = _start(profile)
    try:
        yield browser
    finally:
        os.close(browser.to)
        try:
            browser.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            browser.process.kill()
            browser.process.wait(END_SECONDS)
        finally:
            os.close(browser.back)


def _start(profile: Path) -> Chromium:
    """It reads from descriptor 3 and writes to 4, wherever ours happen to be."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        raise BrowserFailed("there is no Chromium. On Debian and Ubuntu: apt install chromium")
    command = [program, *FLAGS, f"--user-data-dir={profile / 'data'}", "about:blank"]
    theirs_in, to = os.pipe()
    back, theirs_out = os.pipe()
    with (profile / "stderr.log").open("wb") as log:
        process = subprocess.Popen(
            ["sh", "-c", _AT_3_AND_4.format(theirs_in, theirs_out), "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={"PATH": os.environ["PATH"], "HOME": str(profile), "LANG": "C.UTF-8"},
            pass_fds=[theirs_in, theirs_out],
        )
    os.close(theirs_in)
    os.close(theirs_out)
    return Chromium(process, to, back)
