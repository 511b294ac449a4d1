"""Loopback servers that misbehave, and a certificate authority for them."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
import trustme

from core.webhooks.transport.connection_pool import ConnectionPool

Handler = Callable[[socket.socket], None]


class Server:
    """Accepts on 127.0.0.1, passes connections to `handler`, in turn or concurrently, and records requests."""

    def __init__(self, handler: Handler, context: ssl.SSLContext | None = None, *, at_once: bool = False) -> None:
        self.handler = handler
        self._at_once = at_once
        self.requests: list[bytes] = []
        self.connections = 0
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            if self._at_once:
                threading.Thread(target=self._handle, args=(connection,), daemon=True).start()
            else:
                self._handle(connection)

    def _handle(self, connection: socket.socket) -> None:
        # A client that hangs up is what many tests are about.
        with connection, suppress(OSError):
            connection.settimeout(5)
            if not self._context:
                self.handler(connection)
                return
            with self._context.wrap_socket(connection, server_side=True) as secured:
                self.handler(secured)

    def read_request(self, connection: socket.socket) -> bytes:
        received = b""
        while b"\r\n\r\n" not in received:
            piece = connection.recv(65536)
            if not piece:
                return received
            received += piece
        head, _, body = received.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        while len(body) < int(fields.get(b"content-length", 0)):
            body += connection.recv(65536)
        request = head + b"\r\n\r\n" + body
        self.requests.append(request)
        return request

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)


class Serve:
    """The `serve` fixture."""

    def __init__(self) -> None:
        self._servers: list[Server] = []

    def raw(self, handler: Handler, context: ssl.SSLContext | None = None, *, at_once: bool = False) -> Server:
        """A server whose handler owns the connection from its first byte."""
        self._servers.append(Server(handler, context, at_once=at_once))
        return self._servers[-1]

    def keeping(
        self, respond: Callable[[socket.socket, bytes], object], context: ssl.SSLContext | None = None
    ) -> Server:
        """A server that takes request after request on each connection, and many connections at once.

        `respond` gets the request; if it returns True the server hangs up.
        """

        def handler(connection: socket.socket) -> None:
            while request := server.read_request(connection):
                if respond(connection, request) is True:
                    return

        server = self.raw(handler, context, at_once=True)
        return server

    def after_request(
        self, respond: Callable[[socket.socket], None], context: ssl.SSLContext | None = None
    ) -> Server:
        """A server that reads and records the request, then passes the connection to `respond`."""

        def handler(connection: socket.socket) -> None:
            server.read_request(connection)
            respond(connection)

        server = self.raw(handler, context)
        return server

    def answer(self, answer: bytes, context: ssl.SSLContext | None = None) -> Server:
        """A server that records the request and answers these bytes."""
        return self.after_request(lambda connection: connection.sendall(answer), context)

    def close(self) -> None:
        for server in self._servers:
            server.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers = Serve()
    yield servers
    servers.close()


@pytest.fixture
def connections() -> Iterator[ConnectionPool]:
    kept = ConnectionPool()
    yield kept
    kept.close()


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    """A client context that verifies, and trusts the test authority."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context
