"""core.webhooks.transport.client, against servers on the loopback interface that misbehave."""

from __future__ import annotations

import gzip
import itertools
import logging
import os
import socket
import ssl
import struct
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any
from unittest.mock import patch

import pytest
import trustme
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import DeliveryError, Refused
from core.webhooks.transport import client
from core.webhooks.transport import connection_pool as kept
from core.webhooks.transport.client import KEPT_BYTES, Resolver, Response, post, system_resolver
from core.webhooks.transport.connection_pool import AGE_SECONDS, ConnectionPool
from core.webhooks.transport.guard import Policy
from core.webhooks.transport.signing import make_secret, sign, verify

from ..conftest import Serve, Server

pytestmark = pytest.mark.enable_socket

POLICY = Policy(allow_http=True, allow_private_cidrs=(ip_network("127.0.0.0/8"),))
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
WIRE_BYTES = 256 * 1024
DEADLINE = 0.2
MARGIN = 1.5  # a busy machine; every slow server here would take 4 seconds or more


def loopback(host: str) -> list[str]:
    return ["127.0.0.1"]


def send(
    server: Server,
    *,
    scheme: str = "http",
    host: str = "hooks.example.com",
    path: str = "/hook",
    body: bytes = b"{}",
    headers: dict[str, str] | None = None,
    policy: Policy = POLICY,
    deadline: float = 5,
    resolve: Resolver = loopback,
    context: ssl.SSLContext | None = None,
    connections: ConnectionPool | None = None,
    key: Hashable = ("owner", "wh_1", 1),
) -> Response:
    return post(
        f"{scheme}://{host}:{server.port}{path}",
        body=body,
        headers=headers or {},
        policy=policy,
        deadline_seconds=deadline,
        resolve=resolve,
        ssl_context=context,
        connections=connections,
        reuse_key=key,
    )


@contextmanager
def failing(error_class: str, *, match: str | None = None, within: float = 5) -> Iterator[None]:
    """The block raises DeliveryError of this class, in time. Its message has no path and no text of the server."""
    begun = time.monotonic()
    with pytest.raises(DeliveryError, match=match) as failure:
        yield
    assert time.monotonic() - begun < within
    assert failure.value.error_class == error_class
    assert "/hook" not in str(failure.value)
    assert "STRANGER" not in str(failure.value)


def drip(pieces: Callable[[], Iterator[bytes]], seconds: float = 0.02) -> Callable[[socket.socket], None]:
    def respond(connection: socket.socket) -> None:
        for piece in pieces():
            connection.sendall(piece)
            time.sleep(seconds)

    return respond


def reset(connection: socket.socket) -> None:
    """Close with a TCP reset, after the peer had time to read."""
    time.sleep(0.05)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def hang(connection: socket.socket) -> None:
    """Wait until the client closes the connection."""
    while connection.recv(65536):
        pass


def certified(authority: trustme.CA, *names: str, expired: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    now = datetime.now(UTC)
    end = now - timedelta(days=1) if expired else now + timedelta(days=1)
    authority.issue_cert(*names, not_before=now - timedelta(days=9), not_after=end).configure_cert(context)
    return context


@dataclass(frozen=True)
class Wire:
    """The options of `send` and the context of the server."""

    options: dict[str, Any]
    context: ssl.SSLContext | None


@pytest.fixture(params=["http", "https"])
def wire(request: pytest.FixtureRequest, authority: trustme.CA, trusting: ssl.SSLContext) -> Wire:
    context = certified(authority, "hooks.example.com") if request.param == "https" else None
    return Wire({"scheme": request.param, "context": trusting}, context)


# Requests


def test_request_on_the_wire(serve: Serve) -> None:
    """The receiver gets one HTTP/1.1 POST with the URL's host, the caller's headers and the exact body."""
    server = serve.answer(OK)
    body = '{"text":"😱 é \u2028"}'.encode()
    send(server, path="/a/../b?c=%2F", body=body, headers={"Content-Type": "application/json", "User-Agent": "R"})
    head, _, received = server.requests[0].partition(b"\r\n\r\n")
    request_line, *fields = head.decode().split("\r\n")
    assert request_line == "POST /a/../b?c=%2F HTTP/1.1"
    assert received == body
    assert sorted(fields) == sorted(
        [
            f"host: hooks.example.com:{server.port}",
            f"content-length: {len(body)}",
            "content-type: application/json",
            "user-agent: R",
            "accept-encoding: identity",
            "connection: close",
        ]
    )


@pytest.mark.parametrize("body", [b"", b"\xff\xfe\x00", '{"b":1,"a":"é"}'.encode(), b"x" * 300_000])
def test_signature_verifies_over_received_bytes(serve: Serve, body: bytes) -> None:
    """A signature verifies over the raw bytes that the receiver reads."""
    server, secret = serve.answer(OK), make_secret()
    send(server, body=body, headers=sign(secret, event_id="evt_1", timestamp=1_800_000_000, body=body))
    head, _, received = server.requests[0].partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    verify(secret, headers, received, now=1_800_000_000)


def test_caller_cannot_set_framing_headers(serve: Serve) -> None:
    """A caller's header changes neither the host nor the length of the message."""
    server = serve.answer(OK)
    evil = {
        "Host": "evil",
        "CONTENT-LENGTH": "1",
        "Transfer-Encoding": "chunked",
        "Connection": "keep-alive",
    }
    evil |= {"Keep-Alive": "timeout=99", "Proxy-Connection": "keep-alive"}
    send(server, body=b"four", headers={**evil, "Expect": "100-continue", "Accept-Encoding": "gzip"})
    head = server.requests[0].lower()
    assert b"host: hooks.example.com:" in head
    assert b"content-length: 4\r\n" in head
    assert b"connection: close" in head
    assert not any(word in head for word in (b"evil", b"chunked", b"keep-alive", b"expect", b"gzip"))


@pytest.mark.parametrize(
    "headers", [{"X-A": "1\r\nX-B: 2"}, {"X-A\r\nX-B": "2"}, {"X-A": "é😱"}, {"": "x"}, {"X-A": "1\n"}]
)
def test_header_injection(serve: Serve, headers: dict[str, str]) -> None:
    """A header with a line break, or with characters that HTTP does not allow, is not sent."""
    server = serve.answer(OK)
    with failing("protocol"):
        send(server, headers=headers)
    assert server.requests == []


def test_proxies_of_the_environment_are_ignored(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxy settings in the environment have no effect."""
    proxy, server = serve.answer(OK), serve.answer(OK)
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    assert send(server).status == 200
    assert proxy.connections == 0


def test_tcp_nodelay(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """TCP sends the body before the head is acknowledged."""
    opened, real = [], socket.create_connection

    def create_connection(address: tuple[str, int], timeout: float) -> socket.socket:
        opened.append(real(address, timeout))
        return opened[-1]

    def respond(connection: socket.socket) -> None:
        delays = not opened[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        connection.sendall(b"HTTP/1.1 %d x\r\n\r\n" % (500 if delays else 200))

    monkeypatch.setattr(client.socket, "create_connection", create_connection)
    assert send(serve.after_request(respond)).status == 200


# Responses


@pytest.mark.parametrize("status", [200, 204, 304, 400, 410, 429, 500, 999])
def test_every_status_is_returned(serve: Serve, status: int) -> None:
    """Every status is returned, without an exception and without a retry."""
    server = serve.answer(b"HTTP/1.1 %d x\r\nContent-Length: 0\r\n\r\n" % status)
    answer = send(server)
    assert (answer.status, answer.headers, answer.body, answer.truncated) == (status, {}, b"", False)
    assert server.connections == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("form", ["http://127.0.0.1:{port}/", "//127.0.0.1:{port}/x", "/elsewhere"])
def test_redirects_are_not_followed(serve: Serve, status: int, form: str) -> None:
    """A redirect is returned, and its target gets no request."""
    other = serve.answer(OK)
    location = form.format(port=other.port)
    server = serve.answer(f"HTTP/1.1 {status} x\r\nLocation: {location}\r\n\r\n".encode())
    answer = send(server)
    assert (answer.status, answer.headers) == (status, {"location": location})
    assert (server.connections, other.connections) == (1, 0)


@pytest.mark.parametrize(
    "status", [b"100 Continue", b"102 Processing", b"103 Early Hints\r\nLink: </a>", b"199 x"]
)
def test_interim_responses_are_skipped(serve: Serve, status: bytes) -> None:
    """Any number of 1xx responses before the final one are skipped."""
    answer = send(serve.answer((b"HTTP/1.1 %b\r\n\r\n" % status) * 3 + OK))
    assert (answer.status, answer.body) == (200, b"ok")


def test_switching_protocols_is_returned(serve: Serve) -> None:
    """A 101 is returned and nothing after it is read, because it is no longer HTTP."""
    assert send(serve.answer(b"HTTP/1.1 101 x\r\nUpgrade: x\r\n\r\n" + OK)).status == 101


@pytest.mark.parametrize("status", [204, 304])
def test_responses_without_body(serve: Serve, status: int) -> None:
    """After a status without a body, the client does not wait for one, whatever the headers say."""

    def respond(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 %d x\r\nTransfer-Encoding: chunked\r\n\r\n" % status)
        hang(connection)

    begun = time.monotonic()
    answer = send(serve.after_request(respond))
    assert time.monotonic() - begun < 2
    assert (answer.status, answer.body, answer.truncated) == (status, b"", False)


def test_kept_headers(serve: Serve) -> None:
    """Only four headers are kept, each cut to 256 printable characters."""
    head = b"HTTP/1.1 200 OK\r\nRetry-After: 120\r\nContent-Type: a\x00b\xff" + b"x" * 300
    answer = send(serve.answer(head + b"\r\nSet-Cookie: s=1\r\nX-Other: 1\r\nContent-Length: 0\r\n\r\n"))
    assert answer.headers == {"retry-after": "120", "content-type": "a?bÿ" + "x" * 252}


def test_shown_headers(serve: Serve) -> None:
    """`head` has the first 30 headers as sent, cut to 256 printable characters, without cookie values."""
    lines = [
        b"X-Request-Id: a\xff\x01",
        b"SET-COOKIE: session=STRANGER",
        b"Set-Cookie: b=STRANGER",
        b"X-L: " + b"x" * 300,
    ]
    lines += [b"X-%d: 1" % n for n in range(40)]
    head = send(serve.answer(b"HTTP/1.1 200 OK\r\n" + b"\r\n".join(lines) + b"\r\n\r\n")).head
    assert head[:4] == (
        ("X-Request-Id", "aÿ?"),
        ("SET-COOKIE", "(hidden)"),
        ("Set-Cookie", "(hidden)"),
        ("X-L", "x" * 256),
    )
    assert len(head) == 30


@pytest.mark.parametrize("body", [b"\xff\xfe", b"a\x00b", gzip.compress(b"hi", mtime=0), b"not gzip"])
def test_bodies_are_kept_raw(serve: Serve, body: bytes) -> None:
    """A body is kept byte for byte, whatever its content encoding."""
    head = b"HTTP/1.1 500 x\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer = send(serve.answer(head + body))
    assert (answer.body, answer.truncated) == (body, False)


@pytest.mark.parametrize("framing", ["counted", "chunked", "closed"])
@pytest.mark.parametrize(
    ("size", "truncated"), [(0, False), (KEPT_BYTES, False), (KEPT_BYTES + 1, True), (10**7, True)]
)
def test_body_is_bounded(serve: Serve, framing: str, size: int, truncated: bool) -> None:
    """16 KiB of a body are kept, for each way of framing, and a longer body uses no more memory."""
    body = os.urandom(size)
    head = {
        "counted": b"Content-Length: %d\r\n\r\n%b" % (size, body),
        "chunked": b"Transfer-Encoding: chunked\r\n\r\n"
        + (b"%x\r\n%b\r\n" % (size, body) if size else b"")
        + b"0\r\n\r\n",
        "closed": b"\r\n" + body,
    }
    server = serve.answer(b"HTTP/1.1 200 OK\r\n" + head[framing])
    tracemalloc.start()
    answer = send(server)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (answer.body, answer.truncated) == (body[:KEPT_BYTES], truncated)
    assert peak < 1_000_000


def test_compression_bomb(serve: Serve) -> None:
    """A compressed body is not decompressed."""
    bomb = gzip.compress(bytes(50_000_000))
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    answer = send(serve.answer(head + bomb))
    assert (answer.body, answer.truncated) == (bomb[:KEPT_BYTES], True)
    assert answer.headers == {"content-encoding": "gzip"}


@pytest.mark.parametrize(
    "chunk", [b"1\r\nx\r\n", b"1000\r\n" + b"x" * 4096 + b"\r\n", b"1;" + b"e" * 5000 + b"\r\nx\r\n"]
)
def test_endless_chunks(serve: Serve, chunk: bytes) -> None:
    """An endless chunked response is read up to a limit that includes the framing."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    pieces = lambda: itertools.chain([head], itertools.repeat(chunk * 20))  # noqa: E731
    answer = send(serve.after_request(drip(pieces, 0)))
    assert answer.status == 200
    assert answer.truncated
    assert set(answer.body) == set(b"x")
    assert len(answer.body) <= min(KEPT_BYTES, WIRE_BYTES // len(chunk) * chunk.count(b"x"))


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\npart",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\npart",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\nnonsense",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart",
    ],
)
@pytest.mark.parametrize("ending", [reset, lambda connection: None])
def test_body_that_breaks_off(serve: Serve, answer: bytes, ending: Callable[[socket.socket], None]) -> None:
    """After a reset or an end within the body, the status and the received part are returned."""

    def respond(connection: socket.socket) -> None:
        connection.sendall(answer)
        ending(connection)

    found = send(serve.after_request(respond))
    assert (found.status, found.body, found.truncated) == (200, b"part", True)


@pytest.mark.parametrize(
    "answer", [OK, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"]
)
def test_returns_after_a_complete_response(serve: Serve, answer: bytes) -> None:
    """The client does not wait for the server to close the connection after a complete response."""

    def respond(connection: socket.socket) -> None:
        connection.sendall(answer)
        hang(connection)

    begun = time.monotonic()
    found = send(serve.after_request(respond))
    assert time.monotonic() - begun < 2
    assert (found.body, found.truncated) == (b"ok", False)


@pytest.mark.parametrize("error", [BrokenPipeError(), ConnectionResetError(), ssl.SSLEOFError(8, "x")])
def test_response_before_the_request_is_read(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """A response that comes before the server has read the request is returned."""
    real = client._Wire.transmit

    def transmit(wire: client._Wire) -> None:
        real(wire)
        raise error

    def refuse(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 413 x\r\nContent-Length: 0\r\n\r\n")

    monkeypatch.setattr(client._Wire, "transmit", transmit)
    assert send(serve.raw(refuse)).status == 413


# Malformed responses


@pytest.mark.parametrize(
    "answer",
    [
        *(
            b"",
            b"\r\n",
            b"STRANGER\r\n\r\n",
            b"SSH-2.0-STRANGER\r\n",
            b"HTTP/1.1\r\n\r\n",
            b"HTTP/1.1 abc x\r\n\r\n",
        ),
        *(
            b"HTTP/1.1 -20 x\r\n\r\n",
            b"HTTP/1.1 99 x\r\n\r\n",
            b"HTTP/1.1 20000 x\r\n\r\n",
            b"HTTP/3.0 200 x\r\n\r\n",
        ),
        *(b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nA: STRANGER", b"\x16\x03\x01\x00\x05"),
        *(b"<html>STRANGER" * 10_000, b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000),
        *(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n", b"HTTP/1.1 100 x\r\n\r\n" * 20_000 + OK),
        b"HTTP/1.1 200 OK\r\n" + (b"A: " + b"x" * 60_000 + b"\r\n") * 50 + b"\r\n",
    ],
)
def test_garbage(serve: Serve, answer: bytes) -> None:
    """A malformed, incomplete or too long HTTP/1 head is a protocol error."""
    with failing("protocol"):
        send(serve.answer(answer))


def test_reset_before_the_status(serve: Serve) -> None:
    """A reset before the response is a protocol error."""
    with failing("protocol"):
        send(serve.after_request(reset))


def test_malformed_headers_are_not_logged(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """The head is read up to a malformed line, and neither the line nor the URL is logged."""
    caplog.set_level(logging.DEBUG)
    assert send(serve.answer(b"HTTP/1.1 200 OK\r\nbroken line\r\nA: b\r\n\r\n"), path="/T0KEN").status == 200
    assert caplog.text == ""


pieces = st.sampled_from(
    [
        *(
            b"HTTP/1.1 ",
            b"200 OK\r\n",
            b"HTTP/1.1 200 OK\r\n",
            b"\r\n",
            b"\r\n\r\n",
            b"\n",
            b":",
            b"0",
            b"-1",
            b"ffffffffff",
        ),
        *(
            b"Transfer-Encoding: chunked\r\n",
            b"Content-Length: ",
            b"Content-Length: 5\r\n",
            b"Retry-After: \xff\r\n",
        ),
        *(
            b"Content-Type: =?utf-8?q?=ff?=\r\n",
            b" folded\r\n",
            b"5\r\nhello\r\n",
            b"0\r\n\r\n",
            b"-5\r\n",
            b"\x00",
        ),
    ]
)
answers = st.binary(max_size=200) | st.lists(pieces | st.binary(max_size=5), max_size=12).map(b"".join)
prefixes = st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 500 \r\nTransfer-Encoding: chunked\r\n\r\n"])


@pytest.fixture
def scripted(serve: Serve) -> Server:
    """A server whose handler a test replaces between connections."""
    return serve.answer(b"")


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(prefix=prefixes, rest=answers)
def test_any_response(scripted: Server, prefix: bytes, rest: bytes) -> None:
    """Any bytes from a server give a Response within its limits or a DeliveryError."""

    def handler(connection: socket.socket) -> None:
        scripted.read_request(connection)
        connection.sendall(prefix + rest)

    scripted.handler = handler
    try:
        answer = send(scripted)
    except DeliveryError as failure:
        assert failure.error_class == "protocol"  # noqa: PT017
    else:
        assert 100 <= answer.status <= 999
        assert len(answer.body) <= len(rest)
        assert all(text.isprintable() for text in answer.headers.values())


# The deadline


def dripped_status() -> Iterator[bytes]:
    return iter([bytes([byte]) for byte in b"HTTP/1.1 200 OK\r\nX-A: " + b"x" * 1000])


def dripped_headers() -> Iterator[bytes]:
    return itertools.chain([b"HTTP/1.1 200 OK\r\n"], (b"X-%d: 1\r\n" % n for n in range(1000)))


def dripped_continues() -> Iterator[bytes]:
    return itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n", 1000)


@pytest.mark.parametrize("respond", [hang, drip(dripped_status), drip(dripped_headers), drip(dripped_continues)])
def test_slow_head(serve: Serve, wire: Wire, respond: Callable[[socket.socket], None]) -> None:
    """A server that sends its status line or headers slowly, or not at all, is a timeout."""
    server = serve.after_request(respond, wire.context)
    with failing("timeout", within=DEADLINE + MARGIN):
        send(server, deadline=DEADLINE, **wire.options)


@pytest.mark.parametrize("framing", [b"Content-Length: 1000", b"X-Length: none", b"Transfer-Encoding: chunked"])
def test_slow_body(serve: Serve, wire: Wire, framing: bytes) -> None:
    """A slow body ends at the deadline, and the status and the received part are returned."""
    piece = b"1\r\nx\r\n" if b"chunked" in framing else b"x"
    pieces = lambda: itertools.chain([b"HTTP/1.1 200 OK\r\n%b\r\n\r\n" % framing], itertools.repeat(piece, 500))  # noqa: E731
    server = serve.after_request(drip(pieces), wire.context)
    begun = time.monotonic()
    answer = send(server, deadline=DEADLINE, **wire.options)
    assert DEADLINE * 0.9 < time.monotonic() - begun < DEADLINE + MARGIN
    assert (answer.status, answer.truncated) == (200, True)
    assert 1 < len(answer.body) < 20


def test_server_that_does_not_read(serve: Serve, wire: Wire) -> None:
    """A server that accepts the connection and does not read is a timeout."""
    gone = threading.Event()
    server = serve.raw(lambda connection: gone.wait(5) and None, wire.context)
    with failing("timeout", within=DEADLINE + MARGIN):
        send(server, body=bytes(20_000_000), deadline=DEADLINE, **wire.options)
    gone.set()


def test_server_that_reads_slowly(serve: Serve, wire: Wire) -> None:
    """A server that reads the request byte by byte does not extend the deadline."""
    gone = threading.Event()

    def sip(connection: socket.socket) -> None:
        while not gone.wait(0.04):
            connection.recv(20_000)

    server = serve.raw(sip, wire.context)
    with failing("timeout", within=DEADLINE + MARGIN):
        send(server, body=bytes(20_000_000), deadline=DEADLINE, **wire.options)
    gone.set()


@pytest.mark.parametrize(
    "handler", [hang, drip(lambda: itertools.chain([b"\x16\x03\x03\x40\x00\x02"], itertools.repeat(b"\x00", 200)))]
)
def test_slow_tls(serve: Serve, trusting: ssl.SSLContext, handler: Callable[[socket.socket], None]) -> None:
    """A handshake that is slow or never comes is a timeout."""
    with failing("timeout", within=DEADLINE + MARGIN):
        send(serve.raw(handler), scheme="https", deadline=DEADLINE, context=trusting)


def test_slow_dns(serve: Serve) -> None:
    """A DNS lookup that hangs is a timeout."""
    release = threading.Event()
    server = serve.answer(OK)

    def resolve(host: str) -> list[str]:
        release.wait(5)
        return ["127.0.0.1"]

    with failing("timeout", within=DEADLINE + MARGIN):
        send(server, resolve=resolve, deadline=DEADLINE)
    release.set()
    assert server.connections == 0


def test_slow_steps_share_the_deadline(serve: Serve, authority: trustme.CA, trusting: ssl.SSLContext) -> None:
    """All steps together have one deadline."""
    context, gone = certified(authority, "hooks.example.com"), threading.Event()

    def resolve(host: str) -> list[str]:
        time.sleep(0.1)
        return ["127.0.0.1"]

    def slowly(connection: socket.socket) -> None:
        time.sleep(0.7)
        with context.wrap_socket(connection, server_side=True):
            gone.wait(5)

    with failing("timeout", within=1.4):
        send(
            serve.raw(slowly),
            scheme="https",
            body=bytes(20_000_000),
            resolve=resolve,
            deadline=1,
            context=trusting,
        )
    gone.set()


@pytest.mark.skipif(sys.platform != "linux", reason="fills an accept queue, which Linux meets with silence")
def test_unreachable_address() -> None:
    """An address that drops packets is a timeout."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(8)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        with failing("timeout", within=DEADLINE + MARGIN):
            post(f"http://127.0.0.1:{port}/", body=b"", headers={}, policy=POLICY, deadline_seconds=DEADLINE)
        for each in waiting:
            each.close()


@pytest.mark.parametrize("seconds", [0, -1, 1e-9])
def test_no_time_left(serve: Serve, seconds: float) -> None:
    """A deadline in the past is a timeout."""
    with failing("timeout"):
        send(serve.answer(OK), deadline=seconds)


# Names and addresses


@pytest.mark.parametrize(
    "found",
    [
        *(["10.0.0.1"], ["127.0.0.1"], ["169.254.169.254"], ["8.8.8.8", "10.0.0.1"], ["10.0.0.1", "8.8.8.8"]),
        *(["8.8.8.8", "::1"], ["8.8.8.8", "::ffff:8.8.8.8"], ["8.8.8.8", "64:ff9b::a9fe:a9fe"], ["fd00:ec2::254"]),
        *(
            ["8.8.8.8"] * 9 + ["0.0.0.0"],
            ["fe80::1%eth0"],
            ["2606:4700::1111%1"],
            ["nonsense"],
            ["8.8.8.8", ""],
            ["0x7f.1"],
        ),
    ],
)
def test_every_address_must_be_allowed(monkeypatch: pytest.MonkeyPatch, found: list[str]) -> None:
    """One private, embedded or malformed address of a name refuses the name, without any connection."""
    monkeypatch.setattr(client.socket, "create_connection", lambda *_, **__: pytest.fail("connected"))
    with failing("blocked"):
        post(
            "https://hooks.example.com/hook",
            body=b"",
            headers={},
            policy=Policy(),
            deadline_seconds=5,
            resolve=lambda host: found,
        )


def test_name_is_looked_up_once(serve: Serve) -> None:
    """The client connects to the checked address, even if the DNS record changes after the lookup."""
    server, asked = serve.answer(OK), []

    def rebinding(host: str) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.9"]

    assert send(server, resolve=rebinding).status == 200
    assert asked == ["hooks.example.com"]


def test_literal_is_not_looked_up(serve: Serve) -> None:
    """A URL with an address needs no resolver."""
    assert send(serve.answer(OK), host="127.0.0.1", resolve=lambda host: pytest.fail("asked")).status == 200


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses to which connections are made; all but 127.0.0.1 refuse them."""
    addresses, real = [], socket.create_connection

    def create_connection(address: tuple[str, int], timeout: float) -> socket.socket:
        addresses.append(address[0])
        if address[0] != "127.0.0.1":
            raise ConnectionRefusedError
        return real(address, timeout)

    monkeypatch.setattr(client.socket, "create_connection", create_connection)
    return addresses


def test_next_address_is_tried(serve: Serve, connected: list[str]) -> None:
    """If an address refuses the connection, the next one of the same lookup is tried, each once."""
    found = ["127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.1"]
    assert send(serve.answer(OK), resolve=lambda host: found).status == 200
    assert connected == ["127.0.0.2", "127.0.0.3", "127.0.0.1"]


def test_at_most_four_addresses_are_tried(serve: Serve, connected: list[str]) -> None:
    """Of a name with many addresses at most four are tried, so it cannot scan a network."""
    with failing("connect"):
        send(serve.answer(OK), resolve=lambda host: [f"127.0.0.{n}" for n in (2, 3, 4, 5, 1)])
    assert connected == ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"]


@pytest.mark.parametrize("error", [socket.gaierror(-2, "x"), UnicodeError("x"), RuntimeError("x"), OSError("x")])
def test_lookup_fails(serve: Serve, error: Exception) -> None:
    """Any exception of a resolver is a DNS error."""

    def resolve(host: str) -> list[str]:
        raise error

    with failing("dns"):
        send(serve.answer(OK), resolve=resolve)


def test_name_without_address(serve: Serve) -> None:
    """A name without addresses is a DNS error."""
    with failing("dns"):
        send(serve.answer(OK), resolve=lambda host: [])


def test_system_resolver() -> None:
    """The system resolver returns addresses as text."""
    assert "127.0.0.1" in system_resolver("localhost")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "hooks.example.com"])
def test_runtime_api_is_forbidden(serve: Serve, host: str) -> None:
    """The Lambda runtime API gets no request although loopback is allowed."""
    server = serve.answer(OK)
    policy = replace(POLICY, forbidden=frozenset({("127.0.0.1", server.port)}))
    with failing("blocked"):
        send(server, host=host, policy=policy)
    assert server.connections == 0


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "https://[::1]/",
        "http://a.example/",
        "https://user@a.example/",
        "x",
        "https://0x7f.1/",
    ],
)
def test_url_is_checked_again(url: str) -> None:
    """A stored URL that the guard refuses is a blocked attempt with the guard's message."""
    with pytest.raises(Refused) as refusal:
        client.check_url(url, Policy())
    with pytest.raises(DeliveryError) as failure:
        post(url, body=b"", headers={}, policy=Policy(), deadline_seconds=1, resolve=loopback)
    assert failure.value.error_class == "blocked"
    assert str(failure.value) == str(refusal.value)


places = st.sampled_from(
    [
        *("8.8.8.8", "2606:4700::1111", "10.0.0.1", "127.0.0.1", "127.9.9.9", "::1", "fd12::1", "100.64.0.1"),
        *("169.254.169.254", "169.254.170.2", "169.254.170.23", "fd00:ec2::254", "fd00:ec2::23", "0.0.0.0", "::"),
        *("::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "::127.0.0.1", "fe80::1"),
        *(
            "100.100.100.200",
            "168.63.129.16",
            "224.0.0.1",
            "2606:4700::5efe:7f00:1",
            "192.0.0.192",
            "fd20:ce::254",
        ),
    ]
) | st.ip_addresses().map(str)
names = st.sampled_from(
    [
        *("hooks.example.com", "localhost", "receiver", "metadata.google.internal", "db.internal", "A.example."),
        *(
            "bücher.example",
            "0x7f.1",
            "2130706433",
            "127.1",
            "0177.0.0.1",
            "１２７.0.0.1",
            "a_b.example",
            "%31.example",
        ),
    ]
)
shaped = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["http://", "https://", "HTTP://", "http:/", "ftp://", "//", "http:\\\\"]),
        st.sampled_from(["", "", "", "u@", "u:p@", "@", "8.8.8.8#@"]),
        names | places.map(lambda text: f"[{text}]" if ":" in text else text) | places | st.text(max_size=9),
        st.sampled_from(["", "", ":80", ":443", ":8443", ":9001", ":22", ":0", ":65536", ":x", ":"]),
        st.sampled_from(["", "/", "/hook?x=1", "\\@127.0.0.1/", "#@10.0.0.1", "?@10.0.0.1", "/\r\nHost: x", "/é"]),
    ),
)
resolved = st.lists(places | st.sampled_from(["", "x", "fe80::1%eth0", "8.8.8.8%1", "127.1"]), max_size=6)
opened = st.lists(
    st.sampled_from(["0.0.0.0/0", "::/0", "127.0.0.0/8", "::1/128", "10.0.0.0/8", "169.254.0.0/16", "fd00::/8"])
    | st.builds(
        lambda address, bits: ip_interface((address, bits)).network, st.ip_addresses(), st.integers(0, 32)
    ).map(str),
    max_size=3,
)
CLOSED = [
    ip_network(text)
    for text in (
        *(
            "169.254.0.0/16",
            "fd00:ec2::/32",
            "fd20:ce::/32",
            "100.100.100.200/32",
            "168.63.129.16/32",
            "0.0.0.0/8",
        ),
        *("192.0.0.192/32", "224.0.0.0/4", "ff00::/8", "fe80::/10"),
        *("::ffff:0:0/96", "::/128", "64:ff9b::/96", "2002::/16", "2001::/32"),
    )
]


@settings(max_examples=1000, deadline=None)
@given(url=shaped | st.text(), found=resolved | st.just(OSError()), cidrs=opened, allow_http=st.booleans())
def test_any_url_and_any_address(url: str, found: list[str] | OSError, cidrs: list[str], allow_http: bool) -> None:
    """Any URL is refused, or connects only to allowed addresses, whatever its name resolves to."""
    connected: list[tuple[str, int]] = []

    def create_connection(host_and_port: tuple[str, int], timeout: float) -> None:
        connected.append(host_and_port)
        raise ConnectionRefusedError

    def resolve(host: str) -> list[str]:
        if isinstance(found, OSError):
            raise found
        return found

    policy = Policy.of(allow_http=allow_http, allow_private_cidrs=cidrs, runtime_api="127.0.0.1:9001")
    with (
        patch.object(client.socket, "create_connection", create_connection),
        pytest.raises(DeliveryError) as failure,
    ):
        post(url, body=b"", headers={}, policy=policy, deadline_seconds=5, resolve=resolve)
    assert failure.value.error_class in (("connect",) if connected else ("blocked", "dns"))
    for text, port in connected:
        address = ip_address(text)
        private = any(address in network for network in policy.allow_private_cidrs)
        assert not any(address in network for network in CLOSED)
        assert not (address.is_loopback and port == 9001)
        assert private or (address.is_global and port in (80, 443, 8080, 8443))


@given(url=st.text() | st.text().map("http://127.0.0.1:1/".__add__))
def test_any_url(url: str) -> None:
    """Any text as a URL raises only DeliveryError."""
    with pytest.raises(DeliveryError):
        post(url, body=b"", headers={}, policy=POLICY, deadline_seconds=1, resolve=lambda host: [])


# TLS


def test_name_in_sni_host_and_certificate(serve: Serve, authority: trustme.CA, trusting: ssl.SSLContext) -> None:
    """It connects to the address, and uses the URL's name in SNI and Host and to verify the certificate."""
    context, names = certified(authority, "hooks.example.com"), []
    context.sni_callback = lambda _, name, __: names.append(name)
    server = serve.answer(OK, context)
    assert send(server, scheme="https", context=trusting).body == b"ok"
    assert names == ["hooks.example.com"]
    assert f"host: hooks.example.com:{server.port}".encode() in server.requests[0]


def test_certificate_for_an_address(serve: Serve, authority: trustme.CA, trusting: ssl.SSLContext) -> None:
    """A URL with an address verifies against a certificate for that address."""
    server = serve.answer(OK, certified(authority, "127.0.0.1"))
    assert send(server, scheme="https", host="127.0.0.1", context=trusting).status == 200


@pytest.mark.parametrize(
    ("names", "expired", "trusted", "reason"),
    [
        (("other.example.com",), False, True, "not valid for 'hooks.example.com'"),
        (("127.0.0.1",), False, True, "not valid for 'hooks.example.com'"),
        (("*.com",), False, True, "not valid for 'hooks.example.com'"),
        (("hooks.example.com",), True, True, "expired"),
        (("hooks.example.com",), False, False, "unable to get local issuer"),
    ],
)
def test_bad_certificates(
    serve: Serve, authority: trustme.CA, names: tuple[str, ...], expired: bool, trusted: bool, reason: str
) -> None:
    """A certificate that is for another name, expired or untrusted ends the attempt before the request is sent."""
    client_context = ssl.create_default_context()
    (authority if trusted else trustme.CA()).configure_trust(client_context)
    server = serve.answer(OK, certified(authority, *names, expired=expired))
    with failing("tls", match=reason):
        send(server, scheme="https", context=client_context)
    assert server.requests == []


def test_client_certificate_wanted(serve: Serve, authority: trustme.CA, trusting: ssl.SSLContext) -> None:
    """A server that requires a client certificate is a TLS error, also if it reports it after the handshake."""
    context = certified(authority, "hooks.example.com")
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    with failing("tls", match="CERTIFICATE_REQUIRED"):
        send(serve.answer(OK, context), scheme="https", context=trusting)


def test_default_context(serve: Serve, authority: trustme.CA) -> None:
    """The default context verifies names and chains, and uses TLS 1.2 or newer."""
    with failing("tls"):
        send(serve.answer(OK, certified(authority, "hooks.example.com")), scheme="https")
    context = client._default_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("answer", [OK, b"\x15\x03\x01\x00\x02\x02\x28", b"STRANGER" * 100, b""])
def test_server_without_tls(serve: Serve, trusting: ssl.SSLContext, answer: bytes) -> None:
    """An https URL of a server without TLS is a TLS error."""

    def respond(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answer)

    with failing("tls"):
        send(serve.raw(respond), scheme="https", context=trusting)


def test_nobody_listens() -> None:
    """A port without a listener is a connect error."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with failing("connect"):
        post(f"http://127.0.0.1:{port}/hook", body=b"", headers={}, policy=POLICY, deadline_seconds=5)


# Pooled connections


def answering(answer: bytes, *, hang_up: bool = False) -> Callable[[socket.socket, bytes], bool]:
    def respond(connection: socket.socket, _: bytes) -> bool:
        connection.sendall(answer)
        return hang_up

    return respond


def echo(connection: socket.socket, request: bytes) -> None:
    body = request.partition(b"\r\n\r\n")[2]
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


def twice(server: Server, connections: ConnectionPool, **options: Any) -> list[Response]:
    return [send(server, connections=connections, **options) for _ in range(2)]


def test_connection_is_reused(serve: Serve, connections: ConnectionPool) -> None:
    """Calls with one key share a connection, and do not send `Connection: close`."""
    server = serve.keeping(echo)
    bodies = [send(server, body=b"%d" % n, connections=connections).body for n in range(5)]
    assert bodies == [b"0", b"1", b"2", b"3", b"4"]
    assert server.connections == 1
    assert not any(b"connection:" in request for request in server.requests)


def test_no_key_no_reuse(serve: Serve, connections: ConnectionPool) -> None:
    """Without a key each attempt has a connection of its own and sends `Connection: close`."""
    server = serve.keeping(answering(OK, hang_up=True))
    twice(server, connections, key=None)
    assert server.connections == 2
    assert all(b"\r\nconnection: close" in request for request in server.requests)


@pytest.mark.parametrize("key", [("owner", "wh_1", 2), ("owner", "wh_2", 1), ("other", "wh_1", 1)])
def test_another_key_has_another_connection(serve: Serve, connections: ConnectionPool, key: Hashable) -> None:
    """A connection is not reused for another version of its endpoint, another endpoint or another owner."""
    server = serve.keeping(echo)
    for each in (("owner", "wh_1", 1), key, key):
        send(server, connections=connections, key=each)
    assert server.connections == 2


def test_another_host_has_another_connection(serve: Serve, connections: ConnectionPool) -> None:
    """A connection is only reused for the same host and port."""
    servers = [serve.keeping(echo), serve.keeping(echo)]
    for server in servers:
        for host in ("a.example", "b.example", "a.example"):
            assert send(server, host=host, connections=connections).status == 200
    assert [server.connections for server in servers] == [2, 2]


def test_other_scheme_has_another_connection(
    serve: Serve, authority: trustme.CA, trusting: ssl.SSLContext, connections: ConnectionPool
) -> None:
    """A connection without TLS is not reused for https."""
    server = serve.keeping(echo)
    send(server, context=trusting, connections=connections)
    with failing("timeout"):
        send(server, scheme="https", context=trusting, connections=connections, deadline=DEADLINE)
    assert server.connections == 2


def test_pooled_address_is_checked_again(serve: Serve, connections: ConnectionPool) -> None:
    """If the policy no longer allows the address, the pooled connection is closed and nothing is sent."""
    server = serve.keeping(echo)
    send(server, connections=connections)
    with failing("blocked"):
        send(server, connections=connections, policy=Policy(allow_http=True))
    with failing("blocked"):
        forbidden = frozenset({("127.0.0.1", server.port)})
        send(server, connections=connections, policy=replace(POLICY, forbidden=forbidden))
    assert len(server.requests) == 1
    assert connections.take((("owner", "wh_1", 1), "http", "hooks.example.com", server.port, None)) is None


def test_url_is_checked_at_each_use(serve: Serve, connections: ConnectionPool) -> None:
    """A pooled connection does not bypass the check of the URL."""
    server = serve.keeping(echo)
    send(server, connections=connections)
    with failing("blocked"):
        send(server, host="user@hooks.example.com", connections=connections)
    assert len(server.requests) == 1


def test_pooled_connection_needs_no_lookup(serve: Serve, connections: ConnectionPool) -> None:
    """The name is looked up when a connection is opened, and not when it is reused."""
    asked: list[str] = []

    def resolve(host: str) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    twice(serve.keeping(echo), connections, resolve=resolve)
    assert asked == ["hooks.example.com"]


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        *(OK, OK.replace(b"200 OK", b"500 x"), b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        *(b"HTTP/1.1 204 x\r\n\r\n", b"HTTP/1.1 304 x\r\nContent-Length: 9\r\n\r\n"),
        *(CHUNKED + b"\r\n2\r\nok\r\n0\r\n\r\n", CHUNKED + b"\r\n2;a=b\r\nok\r\n0\r\nTrailer: x\r\n\r\n"),
        *(
            CHUNKED + b"Connection: keep-alive\r\n\r\n0\r\n\r\n",
            CHUNKED + b"\r\n" + b"1\r\nx\r\n" * 999 + b"0\r\n\r\n",
        ),
        *(b"HTTP/1.1 100 x\r\n\r\n" + OK, b"HTTP/1.1 103 x\r\nLink: a\r\n\r\n" * 2 + OK),
        b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n" + b"x" * 60_000,
    ],
)
def test_responses_that_keep_the_connection(serve: Serve, connections: ConnectionPool, answer: bytes) -> None:
    """A connection is kept if the response was read to the end that its head states."""
    server = serve.keeping(answering(answer))
    first, second = twice(server, connections)
    assert first == second
    assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        # closed by a header or by the version
        *(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), OK.replace(b"1.1", b"1.0")),
        OK.replace(b"\r\n\r\n", b"\r\nConnection: keep-alive\r\nConnection: x, Close\r\n\r\n"),
        OK.replace(b"1.1", b"1.0").replace(b"\r\n\r\n", b"\r\nConnection: keep-alive\r\n\r\n"),
        # more than was announced
        *(OK + b"x", OK + OK, CHUNKED + b"\r\n0\r\n\r\nx", b"HTTP/1.1 204 x\r\nContent-Length: 2\r\n\r\nok"),
        *(b"HTTP/1.1 304 x\r\n\r\nok", b"HTTP/1.1 101 x\r\n\r\n" + OK, b"HTTP/1.1 101 x\r\n\r\n"),
        # its end is ambiguous
        *(
            OK.replace(b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\n"),
            CHUNKED + b"Content-Length: 2\r\n\r\n0\r\n\r\n",
        ),
        CHUNKED.replace(b"chunked", b"gzip, chunked") + b"Content-Length: 2\r\n\r\nok",
        CHUNKED + b"Transfer-Encoding: gzip\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        *(
            OK.replace(b": 2", b": +2"),
            OK.replace(b": 2", b": 0_2"),
            OK.replace(b"\r\nContent", b"\r\nbroken\r\nContent"),
        ),
        OK.replace(b"\r\nContent-Length: 2", b"\r\nContent-Length: 2\r\nbroken\r\nConnection: close"),
        CHUNKED.replace(b": chunked", b" : chunked") + b"Content-Length: 2\r\n\r\nok",
        # malformed chunks
        *(CHUNKED + b"\r\n2\r\nok\r\nzz\r\n", CHUNKED + b"\r\n-1\r\n"),
        # over a limit
        b"HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n" + b"x" * 70_000,
        CHUNKED + b"\r\n%x\r\n%b\r\n0\r\n\r\n" % (70_000, b"x" * 70_000),
        CHUNKED + b"\r\n" + b"1;%b\r\nx\r\n" % (b"e" * 5000) * 60 + b"0\r\n\r\n",
    ],
)
def test_responses_that_close_the_connection(serve: Serve, connections: ConnectionPool, answer: bytes) -> None:
    """A connection is closed if the end of the response is ambiguous."""
    server = serve.keeping(answering(answer))
    with patch.object(connections, "keep", wraps=connections.keep) as keep:
        first, second = twice(server, connections, deadline=0.3)
    assert not keep.called
    assert server.connections == 2
    assert (first.status, first.head) == (second.status, second.head)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\n\r\nok", CHUNKED + b"\r\n2\r\nok\r\n0\r\n"])
def test_body_that_ends_with_the_connection(serve: Serve, connections: ConnectionPool, answer: bytes) -> None:
    """A connection that ended while the response was read is not kept."""
    server = serve.keeping(answering(answer, hang_up=True))
    with patch.object(connections, "keep", lambda *_: pytest.fail("kept")):
        assert [answer.body for answer in twice(server, connections)] == [b"ok", b"ok"]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(prefix=prefixes, rest=answers)
def test_responses_are_not_mixed_up(serve: Serve, prefix: bytes, rest: bytes) -> None:
    """Whatever bytes answer a request, the next request gets its own response."""

    def respond(connection: socket.socket, request: bytes) -> None:
        echo(connection, request) if request.endswith(b"second") else connection.sendall(prefix + rest)

    server, connections = serve.keeping(respond), ConnectionPool()
    with closing(connections):
        with suppress(DeliveryError):
            send(server, body=b"first", connections=connections, deadline=0.03)
        assert send(server, body=b"second", connections=connections).body == b"second"


def test_unrequested_bytes(serve: Serve, wire: Wire, connections: ConnectionPool) -> None:
    """Bytes that a server sends on an idle connection are not taken for a response."""

    def respond(connection: socket.socket, request: bytes) -> None:
        echo(connection, request)
        time.sleep(0.05)
        connection.sendall(OK)
        sent.set()

    sent = threading.Event()
    server = serve.keeping(respond, wire.context)
    options = {"connections": connections, **wire.options}
    assert send(server, body=b"first", **options).body == b"first"
    sent.wait(5)
    time.sleep(0.05)
    assert send(server, body=b"second", **options).body == b"second"
    assert server.connections == 2


def test_server_that_closes_idle_connections(serve: Serve, wire: Wire, connections: ConnectionPool) -> None:
    """A connection that was closed while idle is detected before anything is sent on it."""
    server = serve.keeping(answering(OK, hang_up=True), wire.context)
    for _ in range(3):
        send(server, connections=connections, **wire.options)
        time.sleep(0.05)
    assert (server.connections, len(server.requests)) == (3, 3)


def hanging_up(nth: int, ending: Callable[[socket.socket], None] = lambda connection: None) -> Any:
    """Answers all requests except number `nth`, at which it closes the connection."""
    count = itertools.count(1)

    def respond(connection: socket.socket, request: bytes) -> bool:
        if next(count) == nth:
            ending(connection)
            return True
        echo(connection, request)
        return False

    return respond


@pytest.mark.parametrize("ending", [lambda connection: None, reset])
def test_dead_connection_is_replaced(
    serve: Serve, wire: Wire, connections: ConnectionPool, ending: Callable[[socket.socket], None]
) -> None:
    """If a pooled connection ends before the response, the same request is sent on a new connection."""
    server = serve.keeping(hanging_up(2, ending), wire.context)
    options = {"connections": connections, **wire.options}
    assert [send(server, body=body, **options).body for body in (b"first", b"second")] == [b"first", b"second"]
    assert server.connections == 2
    assert server.requests[1] == server.requests[2]


@pytest.mark.parametrize("ending", [lambda connection: None, reset])
def test_new_connection_is_not_replaced(
    serve: Serve, connections: ConnectionPool, ending: Callable[[socket.socket], None]
) -> None:
    """A new connection that ends without a response has failed, also if it replaced another one."""

    def respond(connection: socket.socket, request: bytes) -> bool:
        if request.endswith(b"first"):
            echo(connection, request)
            return False
        ending(connection)
        return True

    server = serve.keeping(respond)
    with failing("protocol"):
        send(server, connections=connections)
    assert server.connections == 1
    send(server, body=b"first", connections=connections)
    with failing("protocol"):
        send(server, connections=connections)
    assert server.connections == 3


def test_incomplete_response_is_not_requested_again(serve: Serve, connections: ConnectionPool) -> None:
    """After one byte of a response the request is not sent again, because the server has read it."""
    server = serve.keeping(hanging_up(2, lambda connection: connection.sendall(b"H")))
    send(server, connections=connections)
    with failing("protocol"):
        send(server, connections=connections)
    assert (server.connections, len(server.requests)) == (1, 2)


@pytest.mark.parametrize("respond", [hang, drip(dripped_status), drip(dripped_headers), drip(dripped_continues)])
def test_slow_head_on_a_pooled_connection(
    serve: Serve, wire: Wire, connections: ConnectionPool, respond: Callable[[socket.socket], None]
) -> None:
    """The deadline applies to a pooled connection, which is then closed and not replaced."""
    server = serve.keeping(hanging_up(2, respond), wire.context)
    options = {"connections": connections, **wire.options}
    send(server, **options)
    with failing("timeout", within=DEADLINE + MARGIN):
        send(server, deadline=DEADLINE, **options)
    assert (server.connections, len(server.requests)) == (1, 2)
    send(server, **options)
    assert server.connections == 2


def test_slow_body_on_a_pooled_connection(serve: Serve, connections: ConnectionPool) -> None:
    """A body that is cut at the deadline closes its connection."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"
    server = serve.keeping(hanging_up(2, drip(lambda: itertools.chain([head], itertools.repeat(b"x", 99)))))
    send(server, connections=connections)
    begun = time.monotonic()
    assert send(server, connections=connections, deadline=DEADLINE).truncated
    assert time.monotonic() - begun < DEADLINE + MARGIN
    send(server, connections=connections)
    assert server.connections == 2


def test_replacement_has_the_same_deadline(serve: Serve, connections: ConnectionPool) -> None:
    """A replaced connection shares the deadline of the first one."""
    count = itertools.count(1)

    def respond(connection: socket.socket, request: bytes) -> bool:
        match next(count):
            case 1:
                echo(connection, request)
            case 2:
                time.sleep(0.5)
                return True
            case _:
                hang(connection)
        return False

    server = serve.keeping(respond)
    send(server, connections=connections)
    begun = time.monotonic()
    with failing("timeout"):
        send(server, connections=connections, deadline=0.8)
    assert 0.7 < time.monotonic() - begun < 1.2
    assert server.connections == 2


def test_request_that_cannot_be_sent_whole(serve: Serve, connections: ConnectionPool) -> None:
    """A connection that did not take the whole request is not kept, whatever the response is."""

    def refuse(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 413 x\r\nContent-Length: 0\r\n\r\n")
        connection.shutdown(socket.SHUT_RD)

    server = serve.raw(refuse, at_once=True)
    with suppress(DeliveryError):  # the reset may come before the answer is read
        send(server, body=bytes(9_000_000), connections=connections)
    key = (("owner", "wh_1", 1), "http", "hooks.example.com", server.port, None)
    assert connections.take(key) is None


@pytest.mark.parametrize("headers", [{"X-A": "1\r\nX-B: 2"}, {"X-A": "é😱"}])
def test_header_injection_on_a_pooled_connection(
    serve: Serve, connections: ConnectionPool, headers: dict[str, str]
) -> None:
    """A malformed header is refused before anything is sent, and opens no new connection."""
    server = serve.keeping(echo)
    send(server, connections=connections)
    with failing("protocol"):
        send(server, connections=connections, headers=headers)
    assert (server.connections, len(server.requests)) == (1, 1)


def test_old_connection(serve: Serve, connections: ConnectionPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection in constant use is replaced after five minutes, so that its name is looked up again."""
    server, now = serve.keeping(echo), [0.0]
    real = time.monotonic
    monkeypatch.setattr(kept.time, "monotonic", lambda: real() + now[0])
    while now[0] <= AGE_SECONDS + 20:
        send(server, connections=connections)
        now[0] += 20
    assert server.connections == 2


def test_tls_connection_is_reused(
    serve: Serve, authority: trustme.CA, trusting: ssl.SSLContext, connections: ConnectionPool
) -> None:
    """One handshake serves many requests, and a connection with another context is not reused."""
    context, names = certified(authority, "hooks.example.com"), []
    context.sni_callback = lambda _, name, __: names.append(name)
    server = serve.keeping(echo, context)
    for _ in range(3):
        assert send(server, scheme="https", body=b"x", context=trusting, connections=connections).body == b"x"
    assert (server.connections, names) == (1, ["hooks.example.com"])
    with failing("tls"):
        send(server, scheme="https", connections=connections)


def test_threads_never_share_a_connection(serve: Serve, wire: Wire, connections: ConnectionPool) -> None:
    """Of many threads with one key, each gets the response to its own request, over few connections."""

    def respond(connection: socket.socket, request: bytes) -> None:
        time.sleep(0.002)
        echo(connection, request)

    server = serve.keeping(respond, wire.context)
    bodies = [b"%d" % n for n in range(200)]

    def attempt(body: bytes) -> bytes:
        return send(server, body=body, connections=connections, **wire.options).body

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(attempt, bodies)) == bodies
    assert server.connections <= 8
