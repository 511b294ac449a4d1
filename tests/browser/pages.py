"""A web site with pages in memory. The API allows one of its two origins."""

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
  const job = %s, state = { seen: [], done: [], refused: 0 };
  const show = (event) => state.seen.push(event);
  const done = (status) => state.done.push(status);
  const refused = () => state.refused++;
</script>
<script>%s</script>
<script>%s</script>
"""
"""What the code of the guide uses: a job of the API, and three functions."""

FAULTS = """
  let count = 0;
  window.WebSocket = class extends WebSocket {
    constructor(url) {
      super(url);
      const number = ++count;
      this.addEventListener("message", ({ data, isTrusted }) => {
        if (!isTrusted) return;
        if (number === 1 && JSON.parse(data).type === "events") this.deliver(data), this.close();
        if (number === 2) this.deliver('{"type": "events", "events": [{"sequence": 1000}]}');
      });
    }
    deliver(data) {
      this.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
"""
"""Runs before the code of the guide: the first WebSocket repeats events and closes, the second skips some."""


@dataclass
class Web:
    """The pages of one server. The API allows `origin`, and not `other_origin`, which has the same pages."""

    port: int
    pages: dict[str, str] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def other_origin(self) -> str:
        return f"http://localhost:{self.port}"

    def put(self, page: str) -> str:
        """Add a page. Returns its path."""
        path = f"/{len(self.pages)}.html"
        self.pages[path] = page
        return path


def page(links: Mapping[str, str], snippet: str, *, before: str = "") -> str:
    """A page that runs a snippet of the guide."""
    job: dict[str, Any] = {"links": dict(links)}
    return PAGE % (json.dumps(job), before, snippet)


def snippets() -> list[str]:
    """The blocks of JavaScript in the guide."""
    return re.findall(r"^```js\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def snippet(word: str) -> str:
    """The only block that contains this word."""
    (found,) = [block for block in snippets() if word in block]
    return found


def with_wrong_signature(link: str) -> str:
    """The link with one character of its signature changed."""
    wrong = re.sub(r"\.(.)([A-Za-z0-9_-]{31})(?=/|&|$)", lambda m: f".{'BA'[m[1] == 'B']}{m[2]}", link)
    assert wrong != link
    return wrong


def requests(page: Page, url: str) -> list[Request]:
    """The HTTP requests of the page to this URL."""
    return [request for request in page.requests() if request.url == url]


def console_messages(page: Page) -> list[str]:
    """The messages of the page and the browser on the console, and uncaught errors."""
    messages = [message.text for message in page.console_messages(filter="all")]
    return messages + [str(error) for error in page.page_errors(filter="all")]


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
            """Not needed."""

    return Handler
