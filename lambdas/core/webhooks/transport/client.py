"""The one HTTP client that calls addresses other people chose.

It does one thing: a POST to an address that the guard allowed, with one deadline for everything. It follows
no redirect, retries nothing that was answered, reads no proxy settings, decodes nothing, and reads a bounded
answer. It stands on `http.client` and `ssl` because none of that can then be switched on, and because urllib3
logs the whole URL, token included, when an answer's headers are malformed.
"""

from __future__ import annotations

import errno
import io
import re
import socket
import ssl
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from http.client import HTTPConnection, HTTPException, HTTPResponse
from ipaddress import ip_address
from typing import Any

from core.errors import DeliveryError, ErrorClass, Refused
from core.webhooks.transport.addresses import Address
from core.webhooks.transport.connection_pool import ConnectionPool, PooledConnection
from core.webhooks.transport.guard import Policy, Target, check_address, check_url

Resolver = Callable[[str], Sequence[str]]

KEPT_BYTES = 16 * 1024
_READ_BYTES = 64 * 1024
# Head, body and chunk framing together: a head of 100 lines alone could else take 6 MB.
_WIRE_BYTES = 256 * 1024
_MAX_CONNECTS = 4
_KEPT_HEADERS = ("content-type", "content-encoding", "location", "retry-after")
_SHOWN_HEADERS = 30
_HEADER_CHARS = 256
_HIDDEN_HEADERS = frozenset({"set-cookie", "set-cookie2", "authorization", "proxy-authorization"})
_DROPPED_HEADERS = frozenset(
    {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "expect", "te", "trailer", "upgrade"}
)
_BODILESS = frozenset({101, 204, 304})  # whatever their headers announce (RFC 9112, 6.3)
_DIGITS = re.compile(r"[0-9]+")

# A lookup cannot be interrupted, so those that hang are left behind; this is how many there can be.
_LOOKUPS = ThreadPoolExecutor(max_workers=128, thread_name_prefix="webhook-dns")


@dataclass(frozen=True, kw_only=True)
class Response:
    """An answer. `headers` holds a few, by lower-case name; `body` the first 16 KiB as sent, not decoded.

    `truncated`: the body was longer, or broke off, or the deadline came while it was being read. `head` is for
    people: the first 30 headers as (name, value) in the order sent, cut to 256 characters, cookies hidden.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    truncated: bool
    head: tuple[tuple[str, str], ...] = ()


def system_resolver(host: str) -> list[str]:
    """Every address of `host` that this machine's resolver knows. May block for as long as that takes."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(sockaddr[0]) for *_, sockaddr in found]


def post(
    url: str,
    *,
    body: bytes,
    headers: Mapping[str, str],
    policy: Policy,
    deadline_seconds: float,
    resolve: Resolver = system_resolver,
    ssl_context: ssl.SSLContext | None = None,
    connections: ConnectionPool | None = None,
    reuse_key: Hashable | None = None,
) -> Response:
    """POST `body` and return the answer, whatever its status; redirects are answers like any other.

    Everything (lookup, connecting, TLS, sending, reading) ends within `deadline_seconds`. Once the status
    is known the attempt has its answer, and what goes wrong in the body only truncates it. Headers that
    frame the message (Host, Content-Length, Connection, …) are set here whatever `headers` says.

    With `connections` and a `reuse_key` the connection is kept for the next call with an equal key and the
    same scheme, host, port and `ssl_context`; else it is closed. A key names the one who may reuse it and
    what it was vetted for: owner, endpoint and the endpoint's version. The URL and the kept address are
    judged anew by `policy` at each call; the name is not looked up again.

    At least once: where a kept connection ends before a byte of the answer has come, the same request is
    sent once more on a new one, although the server may have acted on it before it hung up. A new connection
    is never tried twice.

    Raises DeliveryError and nothing else: `blocked` when the guard refuses the URL or any address of its
    name, `dns`, `connect`, `tls`, `protocol` when that step fails, `timeout` when the deadline passes.
    """
    deadline = _Deadline(deadline_seconds)
    with _blocking():
        target = check_url(url, policy)
    pool = connections if reuse_key is not None else None
    key = (reuse_key, target.scheme, target.host, target.port, ssl_context)
    exchange = partial(_exchange, target=target, body=body, headers=headers, deadline=deadline, pool=pool, key=key)
    kept = _take(pool, key, target, policy)
    if kept:
        with suppress(_Hung):
            return exchange(kept)
    return exchange(_open(target, policy, resolve=resolve, context=ssl_context, deadline=deadline))


class _Hung(DeliveryError):
    """The connection ended before a byte of the answer came."""


class _Deadline:
    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds left, above zero. TimeoutError if there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


@contextmanager
def _blocking() -> Iterator[None]:
    try:
        yield
    except DeliveryError:
        raise
    except Refused as refusal:
        raise DeliveryError("blocked", str(refusal)) from refusal


@contextmanager
def _failing_as(error_class: ErrorClass, target: Target) -> Iterator[None]:
    """Turn what a step raises into a DeliveryError. Messages hold no text that the other side sent."""
    try:
        yield
    except TimeoutError:
        message = f"{target.authority} took longer than the deadline allows."
        raise DeliveryError("timeout", message) from None
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", None) or error.reason or "connection cut"
        raise DeliveryError("tls", f"TLS with {target.authority} failed: {reason}.") from None
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise DeliveryError(error_class, f"{target.authority}: {reason}.") from None


def _take(pool: ConnectionPool | None, key: Hashable, target: Target, policy: Policy) -> PooledConnection | None:
    """A kept connection, if it leads to where `policy` still lets this target lead."""
    connection = pool.take(key) if pool is not None else None
    if connection is None:
        return None
    try:
        check_address(connection.address, target, policy)
    except Refused:
        connection.close()
        return None
    return connection


def _open(
    target: Target, policy: Policy, *, resolve: Resolver, context: ssl.SSLContext | None, deadline: _Deadline
) -> PooledConnection:
    with _blocking():
        addresses = _vetted(target, policy, resolve=resolve, deadline=deadline)
    sock, address = _connect(target, addresses, deadline)
    stream = _encrypted(sock, target, context, deadline) if target.tls else sock
    return PooledConnection(stream=stream, address=address)


def _vetted(target: Target, policy: Policy, *, resolve: Resolver, deadline: _Deadline) -> list[Address]:
    """The addresses to try. One bad answer among good ones refuses all: it is how rebinding starts."""
    if target.address:
        return [target.address]
    addresses = [_parsed(text, target) for text in _look_up(target, resolve, deadline)]
    if not addresses:
        raise DeliveryError("dns", f"{target.host} has no address.")
    for address in addresses:
        check_address(address, target, policy)
    return list(dict.fromkeys(addresses))[:_MAX_CONNECTS]


def _parsed(text: str, target: Target) -> Address:
    try:
        if "%" not in text:
            return ip_address(text)
    except ValueError:
        pass
    raise Refused(f"{target.host} leads to something that is no plain address.")


def _look_up(target: Target, resolve: Resolver, deadline: _Deadline) -> Sequence[str]:
    lookup: Future[Sequence[str]] = _LOOKUPS.submit(resolve, target.host)
    try:
        return lookup.result(deadline.left())
    except TimeoutError:
        lookup.cancel()
        raise DeliveryError("timeout", f"Looking up {target.host} took longer than the deadline allows.") from None
    except Exception:
        # A resolver is a plain callable: whatever it raises, the name has no address.
        raise DeliveryError("dns", f"{target.host} could not be found.") from None


def _connect(target: Target, addresses: Sequence[Address], deadline: _Deadline) -> tuple[socket.socket, Address]:
    """A connection to the first address that answers; each gets an even share of the time left."""
    failure: OSError = TimeoutError()
    with _failing_as("connect", target):
        for tried, address in enumerate(addresses):
            share = deadline.left() / (len(addresses) - tried)
            try:
                sock = socket.create_connection((str(address), target.port), timeout=share)
            except OSError as error:
                failure = error
            else:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return sock, address
        raise failure


def _encrypted(
    sock: socket.socket, target: Target, context: ssl.SSLContext | None, deadline: _Deadline
) -> ssl.SSLSocket:
    """TLS over `sock`, with the name of the URL in SNI and in the certificate, not the address dialled."""
    with sock, _failing_as("tls", target):
        sock.settimeout(deadline.left())
        return (context or _default_context()).wrap_socket(sock, server_hostname=target.host)


@cache
def _default_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


class _Wire(io.RawIOBase):
    """What `http.client` needs of a socket for one exchange, with every wait cut to what is left of the deadline.

    A socket's own timeout starts anew at each byte, so a server could drip its answer for hours.
    """

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock = sock
        self._deadline = deadline
        self._budget = _WIRE_BYTES
        self._outgoing = bytearray()
        self._reader = _Reader(self)
        self._resting = False
        self.in_body = False
        self.cut = False
        self.ended = False
        self.heard = False

    def sendall(self, data: bytes) -> None:
        """Only gathers: head and body leave together in `transmit`, in one packet if they fit."""
        self._outgoing += data

    def transmit(self) -> None:
        waiting = memoryview(self._outgoing)
        with self._noting_the_end():
            while waiting:
                self._sock.settimeout(self._deadline.left())
                waiting = waiting[self._sock.send(waiting) :]

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        return self._reader

    def close(self) -> None:
        """`http.client` closes before the body is read; `_exchange` owns the connection."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """In the head any failure is raised; in the body it becomes the end, so that what came is kept."""
        if self._resting:
            return 0
        try:
            return self._receive(memoryview(buffer))
        except OSError:
            if not self.in_body:
                raise
            self.cut = True
            return 0

    def is_drained(self) -> bool:
        """Whether the connection is whole and nothing was read beyond the answer. The last thing to ask."""
        self._resting = True
        return not (self.cut or self.ended or self._reader.peek(1))

    def _receive(self, buffer: memoryview) -> int:
        if self._budget <= 0:
            raise OSError(errno.EMSGSIZE, "the answer is too long")
        with self._noting_the_end():
            self._sock.settimeout(self._deadline.left())
            received = self._sock.recv_into(buffer[: self._budget])
        self.ended = self.ended or not received
        self.heard = self.heard or bool(received)
        if not received and not self.in_body:
            raise ConnectionError(errno.ECONNRESET, "the answer ended before its headers did")
        self._budget -= received
        return received

    @contextmanager
    def _noting_the_end(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise
        except OSError:
            self.ended = True
            raise


class _Reader(io.BufferedReader):
    def close(self) -> None:
        """`http.client` closes it after each answer, 100 Continue and what was read ahead included."""


def _exchange(
    connection: PooledConnection,
    *,
    target: Target,
    body: bytes,
    headers: Mapping[str, str],
    deadline: _Deadline,
    pool: ConnectionPool | None,
    key: Hashable,
) -> Response:
    """One request and its answer. Afterwards the connection is closed, or kept in `pool` if that is safe."""
    with ExitStack() as at_the_end:
        at_the_end.callback(connection.close)
        wire = _Wire(connection.stream, deadline)
        fields = _request_headers(target, body, headers, keep=pool is not None)
        answer = _ask(wire, target, body=body, headers=fields)
        wire.in_body = True
        content = b"" if answer.status in _BODILESS else _read_body(answer, wire)
        if pool is not None and _ends_cleanly(answer) and wire.is_drained():
            at_the_end.pop_all()
            pool.keep(key, connection)
    return Response(
        status=answer.status,
        headers=_kept_headers(answer),
        body=content[:KEPT_BYTES],
        truncated=wire.cut or len(content) > KEPT_BYTES or bool(answer.length),
        head=_shown_headers(answer),
    )


def _ask(wire: _Wire, target: Target, *, body: bytes, headers: Mapping[str, str]) -> HTTPResponse:
    """Send the request and read the answer's head. Raises DeliveryError; _Hung if nothing came before the end."""
    try:
        with _failing_as("protocol", target):
            connection = HTTPConnection(target.host, target.port)
            connection.sock = wire
            connection.request("POST", target.path, body, headers)
            # A server may answer and hang up before it has read everything: the answer is there to be read.
            with suppress(BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
                wire.transmit()
            return _read_head(wire)
    except DeliveryError as failure:
        if wire.ended and not wire.heard:
            raise _Hung(failure.error_class, str(failure)) from None
        raise


def _read_head(wire: _Wire) -> HTTPResponse:
    """The final answer's. `http.client` takes any 1xx but 100 for it, and the one that follows for the next."""
    while True:
        answer = HTTPResponse(wire, method="POST")  # type: ignore[arg-type]
        answer.begin()
        if answer.status >= 200 or answer.status == 101:
            return answer


def _request_headers(target: Target, body: bytes, headers: Mapping[str, str], *, keep: bool) -> dict[str, str]:
    given = {name.lower(): value for name, value in headers.items()}
    own = {
        "host": target.authority,
        "content-length": str(len(body)),
        "accept-encoding": "identity",
    }
    closing = {} if keep else {"connection": "close"}
    return {name: value for name, value in given.items() if name not in _DROPPED_HEADERS} | own | closing


def _read_body(answer: HTTPResponse, wire: _Wire) -> bytes:
    content = bytearray()
    try:
        # `read` would lose a chunk that breaks off.
        while piece := answer.read1(_READ_BYTES - len(content)):
            content += piece
    except (HTTPException, ValueError):
        wire.cut = True
    return bytes(content)


def _ends_cleanly(answer: HTTPResponse) -> bool:
    """Whether the answer was read to an end that its head states in one way only, and leaves the connection open.

    RFC 9112, 6.3 and 9.3. `http.client` forgives much: it looks at the first header of a name, at a length
    beside chunks, and at a head up to its first broken line.
    """
    options = ",".join(answer.headers.get_all("connection", [])).lower()
    if answer.version != 11 or answer.will_close or "close" in options or answer.headers.defects:
        return False
    lengths, codings = (
        answer.headers.get_all("content-length", []),
        answer.headers.get_all("transfer-encoding", []),
    )
    if codings:
        return len(codings) == 1 and not lengths and answer.chunked and answer.isclosed()
    if answer.status in (204, 304):
        return True
    return len(lengths) == 1 and bool(_DIGITS.fullmatch(lengths[0])) and answer.length == 0


def _kept_headers(answer: HTTPResponse) -> dict[str, str]:
    found = ((name, answer.headers.get(name)) for name in _KEPT_HEADERS)
    return {name: _printable(str(value)) for name, value in found if value is not None}


def _shown_headers(answer: HTTPResponse) -> tuple[tuple[str, str], ...]:
    fields = answer.headers.items()[:_SHOWN_HEADERS]
    return tuple(
        (_printable(name), "(hidden)" if name.strip().lower() in _HIDDEN_HEADERS else _printable(str(value)))
        for name, value in fields
    )


def _printable(text: str) -> str:
    text = text[:_HEADER_CHARS]
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)
