"""Other people's servers: real HTTP on loopback, answering what a test says, and noting all that comes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from local.receiver import HOST, Received


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, with headers and a body of which one byte is sent every `drip` seconds."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    drip: float = 0.0


@dataclass(frozen=True, slots=True)
class Visit:
    """A request that came, what it was answered, and by which connection (the client's port) it came."""

    received: Received
    status: int
    path: str
    connection: int

    @property
    def id(self) -> str:
        return self.received.headers["webhook-id"]


React = Callable[[Received], Answer | int]


@dataclass
class Site:
    """A server at `url`. It holds its port from the start, but refuses connections until it is `open`."""

    react: React
    visits: list[Visit] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._server = ThreadingHTTPServer((HOST, 0), _handler(self), bind_and_activate=False)
        self._server.server_bind()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/webhooks"

    def open(self) -> None:
        self._server.server_activate()
        self._thread.start()

    def close(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def of(self, event_id: str) -> list[Visit]:
        return [visit for visit in self.visits if visit.id == event_id]


@contextlib.contextmanager
def site(react: React = lambda _: 204, *, is_open: bool = True) -> Iterator[Site]:
    """A server for the length of a `with` block, answering 204 unless told otherwise."""
    server = Site(react)
    if is_open:
        server.open()
    try:
        yield server
    finally:
        server.close()


def _handler(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            received = Received(body, {name.lower(): value for name, value in self.headers.items()})
            reaction = site.react(received)
            answer = Answer(reaction) if isinstance(reaction, int) else reaction
            site.visits.append(Visit(received, answer.status, self.path, self.client_address[1]))
            with contextlib.suppress(ConnectionError):  # a sender that was killed reads no answer
                self._send(answer)

        def do_GET(self) -> None:
            """Whoever follows a redirect comes with a GET."""
            self.do_POST()

        def _send(self, answer: Answer) -> None:
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if answer.status != 204:
                self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            for byte in answer.body if answer.drip else ():
                self.wfile.write(bytes([byte]))
                time.sleep(answer.drip)
            if not answer.drip:
                self.wfile.write(answer.body)

        def log_message(self, *_: object) -> None:
            """What came is in `visits`."""

    return Handler
