"""An HTTP server on this machine that receives and verifies webhooks, for `recado webhooks listen`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from recado.errors import VerificationError
from recado.webhooks import verify

HOST = "127.0.0.1"
MAX_BODY_BYTES = 1 << 20
SOCKET_TIMEOUT_SECONDS = 10


@dataclass(frozen=True, slots=True)
class ReceivedWebhook:
    """`problem`: why the verification failed, None if it succeeded. `again`: the event was received before."""

    event_id: str | None
    payload: Any
    problem: str | None
    again: bool

    @property
    def name(self) -> str:
        return str(self.payload.get("event", "?")) if isinstance(self.payload, Mapping) else "?"


class WebhookVerifier:
    """Verifies requests, and detects repeated events."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self.secrets = list(secrets)
        self._event_ids: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, headers: Message, body: bytes) -> ReceivedWebhook:
        try:
            event = verify(headers.items(), body, self.secrets)
        except VerificationError as error:
            problem = f"{error.code}: {error}"
            return ReceivedWebhook(headers.get("webhook-id"), _payload(body), problem, again=False)
        return ReceivedWebhook(event.id, _payload(body), None, self._was_received(event.id))

    def _was_received(self, event_id: str | None) -> bool:
        with self._lock:
            again = event_id in self._event_ids
            self._event_ids |= {event_id} if event_id else set()
            return again


@contextmanager
def serve(handle: Callable[[Message, bytes], int], *, port: int) -> Iterator[str]:
    """Serve on `port` (0: any free one) of the loopback interface. `handle` returns the status. Yields the URL.

    It gets the headers with their repetitions, because a signature header that appears twice is refused.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = SOCKET_TIMEOUT_SECONDS

        def do_POST(self) -> None:
            length = self.headers.get("content-length", "")
            if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
                return self._respond(411 if not length else 413)
            return self._respond(handle(self.headers, self.rfile.read(int(length))))

        def _respond(self, status: int) -> None:
            self.send_response(status)
            self.send_header("content-length", "0")
            self.close_connection = status != 204
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """`handle` prints the requests."""

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
