"""A receiver for a developer's machine: verifies every webhook and hands it on to be shown."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from recado.errors import VerificationError
from recado.webhooks import verify

HOST = "127.0.0.1"
MAX_BYTES = 1 << 20
SILENCE_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Received:
    """`problem`: why it was not accepted, None where it was verified. `again`: the same event came before."""

    event_id: str | None
    payload: Any
    problem: str | None
    again: bool

    @property
    def name(self) -> str:
        return str(self.payload.get("event", "?")) if isinstance(self.payload, Mapping) else "?"


class Judge:
    """Verifies requests, and remembers which events it has seen."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self.secrets = list(secrets)
        self._seen: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, headers: Mapping[str, str], body: bytes) -> Received:
        try:
            event = verify(headers, body, self.secrets)
        except VerificationError as error:
            return Received(headers.get("webhook-id"), _payload(body), f"{error.code}: {error}", again=False)
        return Received(event.id, _payload(body), None, self._remember(event.id))

    def _remember(self, event_id: str | None) -> bool:
        with self._lock:
            again = event_id in self._seen
            self._seen |= {event_id} if event_id else set()
            return again


@contextmanager
def listening(take: Callable[[Mapping[str, str], bytes], int], *, port: int) -> Iterator[str]:
    """Serve on `port` (0: any) of this machine alone; `take` answers the status. Yields the URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = SILENCE_SECONDS

        def do_POST(self) -> None:
            length = self.headers.get("content-length", "")
            if not length.isdecimal() or int(length) > MAX_BYTES:
                return self._answer(411 if not length else 413)
            headers = {name.lower(): value for name, value in self.headers.items()}
            return self._answer(take(headers, self.rfile.read(int(length))))

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("content-length", "0")
            self.close_connection = status != 204
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """What comes is shown by `take`."""

    server = ThreadingHTTPServer((HOST, port), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}/webhooks"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _payload(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
