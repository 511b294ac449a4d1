"""core.webhooks.client, against servers on loopback that misbehave."""

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network

import pytest
import trustme
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import DeliveryError, Refused
from core.webhooks import client
from core.webhooks.client import KEPT_BYTES, Resolver, Response, post, system_resolver
from core.webhooks.guard import Policy
from core.webhooks.signing import make_secret, sign, verify

from .conftest import Serve, Server

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
) -> Response:
    return post(
        f"{scheme}://{host}:{server.port}{path}",
        body=body,
        headers=headers or {},
        policy=policy,
        deadline_seconds=deadline,
        resolve=resolve,
        ssl_context=context,
    )


@contextmanager
def failing(error_class: str, *, match: str | None = None, within: float = 5) -> Iterator[None]:
    """The block raises DeliveryError of this class, in time, and names no path or other side's text."""
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
    """Close so that the peer sees a reset, after giving it time to read."""
    time.sleep(0.05)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def hang(connection: socket.socket) -> None:
    """Wait for the client to go away."""
    while connection.recv(65536):
        pass


# What is sent


def test_request_on_the_wire(serve: Serve) -> None:
    """The receiver gets one HTTP/1.1 POST with the URL's own host, the caller's headers and exact body."""
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
def test_signature_holds_on_the_wire(serve: Serve, body: bytes) -> None:
    """The signature made before sending verifies over the raw bytes that a receiver reads."""
    server, secret = serve.answer(OK), make_secret()
    send(server, body=body, headers=sign(secret, event_id="evt_1", timestamp=1_800_000_000, body=body))
    head, _, received = server.requests[0].partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    verify(secret, headers, received, now=1_800_000_000)


def test_framing_headers_are_the_clients(serve: Serve) -> None:
    """A caller's header can change neither the host nor where the message ends."""
    server = serve.answer(OK)
    evil = {"Host": "evil", "CONTENT-LENGTH": "1", "Transfer-Encoding": "chunked", "Connection": "keep-alive"}
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
    """A header that would break out of its line, or that HTTP cannot carry, is not sent."""
    server = serve.answer(OK)
    with failing("protocol"):
        send(server, headers=headers)
    assert server.requests == []


def test_proxies_of_the_environment_are_ignored(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxy settings in the environment send nothing elsewhere."""
    proxy, server = serve.answer(OK), serve.answer(OK)
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    assert send(server).status == 200
    assert proxy.connections == 0


def test_small_writes_are_not_held_back(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """TCP sends the body without waiting for the head to be acknowledged."""
    opened, real = [], socket.create_connection

    def create_connection(address: tuple[str, int], timeout: float) -> socket.socket:
        opened.append(real(address, timeout))
        return opened[-1]

    def respond(connection: socket.socket) -> None:
        delays = not opened[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        connection.sendall(b"HTTP/1.1 %d x\r\n\r\n" % (500 if delays else 200))

    monkeypatch.setattr(client.socket, "create_connection", create_connection)
    assert send(serve.after_request(respond)).status == 200


def test_each_attempt_has_its_own_connection(serve: Serve) -> None:
    """No connection is kept: what the guard allowed for one attempt is not used by the next."""
    server = serve.answer(OK)
    assert [send(server).status for _ in range(3)] == [200, 200, 200]
    assert server.connections == 3


# Answers


@pytest.mark.parametrize("status", [200, 204, 304, 400, 410, 429, 500, 999])
def test_every_status_is_an_answer(serve: Serve, status: int) -> None:
    """Whatever the status, it is returned and nothing is raised or retried."""
    server = serve.answer(b"HTTP/1.1 %d x\r\nContent-Length: 0\r\n\r\n" % status)
    assert send(server) == Response(status=status, headers={}, body=b"", truncated=False)
    assert server.connections == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("form", ["http://127.0.0.1:{port}/", "//127.0.0.1:{port}/x", "/elsewhere"])
def test_redirects_are_not_followed(serve: Serve, status: int, form: str) -> None:
    """A redirect is returned as it is, and its target receives nothing."""
    other = serve.answer(OK)
    location = form.format(port=other.port)
    server = serve.answer(f"HTTP/1.1 {status} x\r\nLocation: {location}\r\n\r\n".encode())
    answer = send(server)
    assert (answer.status, answer.headers) == (status, {"location": location})
    assert (server.connections, other.connections) == (1, 0)


def test_continue_is_skipped(serve: Serve) -> None:
    """An unasked 100 Continue comes before the answer and is not the answer."""
    assert send(serve.answer(b"HTTP/1.1 100 Continue\r\n\r\n" + OK)).body == b"ok"


def test_few_bounded_headers(serve: Serve) -> None:
    """Only the headers that help are kept, cut to 256 printable characters."""
    head = b"HTTP/1.1 200 OK\r\nRetry-After: 120\r\nContent-Type: a\x00b\xff" + b"x" * 300
    answer = send(serve.answer(head + b"\r\nSet-Cookie: s=1\r\nX-Other: 1\r\nContent-Length: 0\r\n\r\n"))
    assert answer.headers == {"retry-after": "120", "content-type": "a?bÿ" + "x" * 252}


@pytest.mark.parametrize("body", [b"\xff\xfe", b"a\x00b", gzip.compress(b"hi", mtime=0), b"not gzip"])
def test_bodies_are_kept_raw(serve: Serve, body: bytes) -> None:
    """A body is kept byte for byte, whatever its encoding claims to be."""
    head = b"HTTP/1.1 500 x\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer = send(serve.answer(head + body))
    assert (answer.body, answer.truncated) == (body, False)


@pytest.mark.parametrize("framing", ["counted", "chunked", "closed"])
@pytest.mark.parametrize(
    ("size", "truncated"), [(0, False), (KEPT_BYTES, False), (KEPT_BYTES + 1, True), (10**7, True)]
)
def test_body_is_bounded(serve: Serve, framing: str, size: int, truncated: bool) -> None:
    """16 KiB of a body are kept however it is framed, and a longer one costs no more memory."""
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
    """A bomb stays packed."""
    bomb = gzip.compress(bytes(50_000_000))
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    answer = send(serve.answer(head + bomb))
    assert (answer.body, answer.truncated) == (bomb[:KEPT_BYTES], True)
    assert answer.headers == {"content-encoding": "gzip"}


@pytest.mark.parametrize(
    "chunk", [b"1\r\nx\r\n", b"1000\r\n" + b"x" * 4096 + b"\r\n", b"1;" + b"e" * 5000 + b"\r\nx\r\n"]
)
def test_endless_chunks(serve: Serve, chunk: bytes) -> None:
    """An endless chunked answer is read up to a limit on the wire, framing included."""
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
    """A reset or an end within the body keeps the status and what came."""

    def respond(connection: socket.socket) -> None:
        connection.sendall(answer)
        ending(connection)

    found = send(serve.after_request(respond))
    assert (found.status, found.body, found.truncated) == (200, b"part", True)


@pytest.mark.parametrize(
    "answer", [OK, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"]
)
def test_whole_answer_is_not_waited_on(serve: Serve, answer: bytes) -> None:
    """A server that leaves the connection open after a whole answer keeps nobody waiting."""

    def respond(connection: socket.socket) -> None:
        connection.sendall(answer)
        hang(connection)

    begun = time.monotonic()
    found = send(serve.after_request(respond))
    assert time.monotonic() - begun < 2
    assert (found.body, found.truncated) == (b"ok", False)


@pytest.mark.parametrize("error", [BrokenPipeError(), ConnectionResetError(), ssl.SSLEOFError()])
def test_answer_before_the_request_is_read(serve: Serve, monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    """A server that refuses a request early and hangs up is heard."""
    real = client._Wire.sendall

    def sendall(wire: client._Wire, data: bytes) -> None:
        real(wire, data)
        raise error

    def refuse(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 413 x\r\nContent-Length: 0\r\n\r\n")

    monkeypatch.setattr(client._Wire, "sendall", sendall)
    assert send(serve.raw(refuse)).status == 413


# Answers that are none


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
    """What is no complete HTTP/1 head, or too long a one, is a protocol failure."""
    with failing("protocol"):
        send(serve.answer(answer))


def test_reset_before_the_status(serve: Serve) -> None:
    """A reset instead of an answer is a protocol failure."""
    with failing("protocol"):
        send(serve.after_request(reset))


def test_malformed_headers_are_not_logged(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """A head with a broken line is read as far as it goes, and neither it nor the URL gets into the log."""
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
def test_any_answer(scripted: Server, prefix: bytes, rest: bytes) -> None:
    """Any bytes a server may send give a Response within its bounds or a DeliveryError."""

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
@pytest.mark.parametrize("tls", [False, True])
def test_slow_head(
    serve: Serve,
    authority: trustme.CA,
    trusting: ssl.SSLContext,
    respond: Callable[[socket.socket], None],
    tls: bool,
) -> None:
    """A silent server, and one that drips its status line or headers, is given up at the deadline."""
    server = serve.after_request(respond, certified(authority, "hooks.example.com") if tls else None)
    with failing("timeout", within=DEADLINE + MARGIN):
        send(server, scheme="https" if tls else "http", deadline=DEADLINE, context=trusting)


@pytest.mark.parametrize("framing", [b"Content-Length: 1000", b"X-Length: none", b"Transfer-Encoding: chunked"])
@pytest.mark.parametrize("tls", [False, True])
def test_slow_body(
    serve: Serve, authority: trustme.CA, trusting: ssl.SSLContext, framing: bytes, tls: bool
) -> None:
    """A dripped body ends at the deadline; the status that was sent stands, and what came is kept."""
    piece = b"1\r\nx\r\n" if b"chunked" in framing else b"x"
    pieces = lambda: itertools.chain([b"HTTP/1.1 200 OK\r\n%b\r\n\r\n" % framing], itertools.repeat(piece, 500))  # noqa: E731
    server = serve.after_request(drip(pieces), certified(authority, "hooks.example.com") if tls else None)
    begun = time.monotonic()
    answer = send(server, scheme="https" if tls else "http", deadline=DEADLINE, context=trusting)
    assert DEADLINE * 0.9 < time.monotonic() - begun < DEADLINE + MARGIN
    assert (answer.status, answer.truncated) == (200, True)
    assert 1 < len(answer.body) < 20


@pytest.mark.parametrize("tls", [False, True])
def test_server_that_does_not_read(
    serve: Serve, authority: trustme.CA, trusting: ssl.SSLContext, tls: bool
) -> None:
    """A server that takes the connection and reads nothing is given up at the deadline."""
    gone = threading.Event()
    server = serve.raw(
        lambda connection: gone.wait(5) and None, certified(authority, "hooks.example.com") if tls else None
    )
    with failing("timeout", within=DEADLINE + MARGIN):
        send(
            server, scheme="https" if tls else "http", body=bytes(20_000_000), deadline=DEADLINE, context=trusting
        )
    gone.set()


@pytest.mark.parametrize(
    "handler", [hang, drip(lambda: itertools.chain([b"\x16\x03\x03\x40\x00\x02"], itertools.repeat(b"\x00", 200)))]
)
def test_slow_tls(serve: Serve, trusting: ssl.SSLContext, handler: Callable[[socket.socket], None]) -> None:
    """A handshake that never comes, or comes byte by byte, is given up at the deadline."""
    with failing("timeout", within=DEADLINE + MARGIN):
        send(serve.raw(handler), scheme="https", deadline=DEADLINE, context=trusting)


def test_slow_dns(serve: Serve) -> None:
    """A lookup that hangs is given up at the deadline."""
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
    """Each step gets what the steps before it left, not a time of its own."""
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
    """An address that swallows packets is given up at the deadline."""
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
    """A deadline that has passed already is a timeout like another."""
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
def test_every_answer_must_be_allowed(monkeypatch: pytest.MonkeyPatch, found: list[str]) -> None:
    """One private, disguised or unreadable address among a name's answers refuses it; nothing is dialled."""
    monkeypatch.setattr(client.socket, "create_connection", lambda *_, **__: pytest.fail("dialled"))
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
    """The address that was judged is the one connected to: a name that changes its answer gains nothing."""
    server, asked = serve.answer(OK), []

    def rebinding(host: str) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.9"]

    assert send(server, resolve=rebinding).status == 200
    assert asked == ["hooks.example.com"]


def test_literal_is_not_looked_up(serve: Serve) -> None:
    """An address in the URL needs no resolver."""
    assert send(serve.answer(OK), host="127.0.0.1", resolve=lambda host: pytest.fail("asked")).status == 200


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses dialled; all but 127.0.0.1 refuse the connection."""
    addresses, real = [], socket.create_connection

    def create_connection(address: tuple[str, int], timeout: float) -> socket.socket:
        addresses.append(address[0])
        if address[0] != "127.0.0.1":
            raise ConnectionRefusedError
        return real(address, timeout)

    monkeypatch.setattr(client.socket, "create_connection", create_connection)
    return addresses


def test_next_address_is_tried(serve: Serve, dialled: list[str]) -> None:
    """Where an address refuses the connection, the next one of the same answer is tried, each once."""
    found = ["127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.1"]
    assert send(serve.answer(OK), resolve=lambda host: found).status == 200
    assert dialled == ["127.0.0.2", "127.0.0.3", "127.0.0.1"]


def test_at_most_four_addresses_are_tried(serve: Serve, dialled: list[str]) -> None:
    """A name with many addresses is not a way to scan."""
    with failing("connect"):
        send(serve.answer(OK), resolve=lambda host: [f"127.0.0.{n}" for n in (2, 3, 4, 5, 1)])
    assert dialled == ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"]


@pytest.mark.parametrize("error", [socket.gaierror(-2, "x"), UnicodeError("x"), RuntimeError("x"), OSError("x")])
def test_lookup_fails(serve: Serve, error: Exception) -> None:
    """Whatever a resolver raises is a DNS failure."""

    def resolve(host: str) -> list[str]:
        raise error

    with failing("dns"):
        send(serve.answer(OK), resolve=resolve)


def test_name_without_address(serve: Serve) -> None:
    """A name that resolves to nothing is a DNS failure."""
    with failing("dns"):
        send(serve.answer(OK), resolve=lambda host: [])


def test_system_resolver() -> None:
    """The machine's own resolver gives addresses as text."""
    assert "127.0.0.1" in system_resolver("localhost")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "hooks.example.com"])
def test_forbidden_place(serve: Serve, host: str) -> None:
    """The runtime's own API gets nothing although loopback is open."""
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
def test_url_is_judged_again(url: str) -> None:
    """A stored URL that the guard refuses is a blocked attempt, with the refusal's own words."""
    with pytest.raises(Refused) as refusal:
        client.check_url(url, Policy())
    with pytest.raises(DeliveryError) as failure:
        post(url, body=b"", headers={}, policy=Policy(), deadline_seconds=1, resolve=loopback)
    assert failure.value.error_class == "blocked"
    assert str(failure.value) == str(refusal.value)


@given(url=st.text() | st.text().map("http://127.0.0.1:1/".__add__))
def test_any_url(url: str) -> None:
    """No text given as a URL raises anything but DeliveryError."""
    with pytest.raises(DeliveryError):
        post(url, body=b"", headers={}, policy=POLICY, deadline_seconds=1, resolve=lambda host: [])


# TLS


def certified(authority: trustme.CA, *names: str, expired: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    now = datetime.now(UTC)
    end = now - timedelta(days=1) if expired else now + timedelta(days=1)
    authority.issue_cert(*names, not_before=now - timedelta(days=9), not_after=end).configure_cert(context)
    return context


def test_name_in_sni_host_and_certificate(serve: Serve, authority: trustme.CA, trusting: ssl.SSLContext) -> None:
    """The address is dialled, and the URL's name is in SNI, in Host and in the certificate that is checked."""
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
    """Another name, an expired or an unknown certificate ends the attempt before anything is sent."""
    client_context = ssl.create_default_context()
    (authority if trusted else trustme.CA()).configure_trust(client_context)
    server = serve.answer(OK, certified(authority, *names, expired=expired))
    with failing("tls", match=reason):
        send(server, scheme="https", context=client_context)
    assert server.requests == []


def test_client_certificate_wanted(serve: Serve, authority: trustme.CA, trusting: ssl.SSLContext) -> None:
    """A server that wants a certificate of ours is a TLS failure, though it says so after the handshake."""
    context = certified(authority, "hooks.example.com")
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    with failing("tls", match="CERTIFICATE_REQUIRED"):
        send(serve.answer(OK, context), scheme="https", context=trusting)


def test_default_context(serve: Serve, authority: trustme.CA) -> None:
    """Without a context of the caller's the client verifies names and chains, and speaks TLS 1.2 or newer."""
    with failing("tls"):
        send(serve.answer(OK, certified(authority, "hooks.example.com")), scheme="https")
    context = client._default_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("answer", [OK, b"\x15\x03\x01\x00\x02\x02\x28", b"STRANGER" * 100, b""])
def test_server_without_tls(serve: Serve, trusting: ssl.SSLContext, answer: bytes) -> None:
    """An https URL whose server speaks no TLS is a TLS failure."""

    def respond(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answer)

    with failing("tls"):
        send(serve.raw(respond), scheme="https", context=trusting)


def test_nobody_listens() -> None:
    """A port where nobody listens is a connect failure."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with failing("connect"):
        post(f"http://127.0.0.1:{port}/hook", body=b"", headers={}, policy=POLICY, deadline_seconds=5)
