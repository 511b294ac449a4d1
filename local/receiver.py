"""A webhook receiver: takes signed events over HTTP, and lets an independent library judge the signatures."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it came: the body's bytes, not what a framework makes of them."""

    body: bytes
    headers: Mapping[str, str]

    @property
    def event(self) -> dict[str, Any]:
        payload: dict[str, Any] = json.loads(self.body)
        return payload


def is_genuine(received: Received, secret: str) -> bool:
    """Whether both signatures hold: Standard Webhooks, judged by its own library, and the plain `X-Signature`."""
    plain = "sha256=" + hmac.new(secret.encode(), received.body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(plain, received.headers.get("x-signature", "")):
        return False
    try:
        Webhook(secret).verify(received.body, dict(received.headers))
    except WebhookVerificationError:
        return False
    return True


def tampered(received: Received) -> Received:
    """The same with one byte changed, in the middle of the payload."""
    middle = len(received.body) // 2
    body = received.body[:middle] + bytes([received.body[middle] ^ 1]) + received.body[middle + 1 :]
    return Received(body, received.headers)


@contextlib.contextmanager
def listening(take: Callable[[Received], int], *, port: int = 0) -> Iterator[str]:
    """Serve on `port` (0: any free one) and give each request to `take`, which answers the HTTP status.

    Yields the URL to send to.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            status = take(Received(body, {name.lower(): value for name, value in self.headers.items()}))
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """What is received is shown by `take`."""

    server = ThreadingHTTPServer((HOST, port), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}/webhooks"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
