"""A web site of one's own: pages in memory, served by a name that the API knows and by one that it does not."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from playwright.sync_api import Page, Request

from local.receiver import HOST
from local.toolchain import ROOT

GUIDE = ROOT / "docs" / "waiting.md"
EXAMPLE = ROOT / "examples" / "follow.html"

PAGE = """<!doctype html>
<meta charset="utf-8"><title>A page that follows a job</title><link rel="icon" href="data:,">
<script>
  const job = %s, told = { seen: [], done: [], refused: 0 };
  const show = (event) => told.seen.push(event);
  const done = (status) => told.done.push(status);
  const refused = () => told.refused++;
</script>
<script>%s</script>
<script>%s</script>
"""
"""What the guide takes for granted: a job as the API gives it, and three functions that are told of it."""

FAULTS = """
  let count = 0;
  window.WebSocket = class extends WebSocket {
    constructor(url) {
      super(url);
      const number = ++count;
      this.addEventListener("message", ({ data, isTrusted }) => {
        if (!isTrusted) return;
        if (number === 1 && JSON.parse(data).type === "events") this.tell(data), this.close();
        if (number === 2) this.tell('{"type": "events", "events": [{"sequence": 1000}]}');
      });
    }
    tell(data) {
      this.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
"""
"""Before the guide's script: the first connection repeats its first events and is cut, the second skips some."""


@dataclass
class Web:
    """The pages of one server. `origin` is what the API is told of; `foreign` shows the same pages."""

    port: int
    pages: dict[str, str] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def foreign(self) -> str:
        return f"http://localhost:{self.port}"

    def put(self, page: str) -> str:
        """The path at which this page is from now on."""
        path = f"/{len(self.pages)}.html"
        self.pages[path] = page
        return path


def page(links: Mapping[str, str], snippet: str, *, before: str = "") -> str:
    """A page in which a snippet of the guide runs as it is printed."""
    job: dict[str, Any] = {"links": dict(links)}
    return PAGE % (json.dumps(job), before, snippet)


def snippets() -> list[str]:
    """The JavaScript of the guide, block by block."""
    return re.findall(r"^```js\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def snippet(word: str) -> str:
    """The one block with this in it."""
    (found,) = [block for block in snippets() if word in block]
    return found


def changed(link: str) -> str:
    """The link with one character of its signature changed: no job's."""
    wrong = re.sub(r"\.(.)([A-Za-z0-9_-]{31})(?=/|&|$)", lambda m: f".{'BA'[m[1] == 'B']}{m[2]}", link)
    assert wrong != link
    return wrong


def requests(page: Page, url: str) -> list[Request]:
    """All that the page has sent to this URL over HTTP."""
    return [request for request in page.requests() if request.url == url]


def complaints(page: Page) -> list[str]:
    """The console: what the page and the browser wrote there, and what nobody caught."""
    said = [message.text for message in page.console_messages(filter="all")]
    return said + [str(error) for error in page.page_errors(filter="all")]


@contextlib.contextmanager
def serving() -> Iterator[Web]:
    server = ThreadingHTTPServer((HOST, 0), BaseHTTPRequestHandler)
    web = Web(server.server_port)
    server.RequestHandlerClass = _handler(web)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(web: Web) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = web.pages.get(self.path.partition("?")[0])
            body = (found or "There is no such page.").encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """The browser reports what it fetched."""

    return Handler
