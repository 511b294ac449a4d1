"""The HTTP client for URLs that callers choose.

It only sends a POST to an address that the guard allows, with one deadline for all steps. It follows no redirects,
does not retry after a response, reads no proxy settings, decodes no content encoding, and limits the size of the
response. It uses `http.client` and `ssl`, which have none of these features. urllib3 also logs the whole URL, with
tokens, if the headers of a response are malformed.
"""

from __future__ import annotations

import errno
import io
import re
import socket
import ssl
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
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
from core.webhooks.transport.lookups import Lookups

Resolver = Callable[[str], Sequence[str]]

KEPT_BYTES = 16 * 1024
_READ_BYTES = 64 * 1024
# Head, body and chunk framing together. A head of 100 lines can be 6 MB.
_WIRE_BYTES = 256 * 1024
_MAX_CONNECTS = 4
_KEPT_HEADERS = ("content-type", "content-encoding", "location", "retry-after")
_SHOWN_HEADERS = 30
_HEADER_CHARS = 256
_HIDDEN_HEADERS = frozenset({"set-cookie", "set-cookie2", "authorization", "proxy-authorization"})
_DROPPED_HEADERS = frozenset(
    {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "expect", "te", "trailer", "upgrade"}
)
_BODILESS = frozenset({101, 204, 304})  # whatever their headers say (RFC 9112, 6.3)
_DIGITS = re.compile(r"[0-9]+")

_LOOKUPS = Lookups()


@dataclass(frozen=True, kw_only=True)
class Response:
    """A response. `headers` has four headers by lower-case name; `body` the first 16 KiB as sent, not decoded.

    `truncated`: the body was longer, incomplete, or not finished at the deadline. `head` is for the log of
    attempts: the first 30 headers in the order sent, cut to 256 characters, cookies hidden.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    truncated: bool
    head: tuple[tuple[str, str], ...] = ()


def system_resolver(host: str) -> list[str]:
    """All addresses of `host` from the system's resolver. It can block for any time."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(sockaddr[0]) for *_, sockaddr in found]


def post(
    url: str,
    *,
    body: bytes,
    headers: Mapping[str, str],
    policy: Policy,
    deadline_seconds: float,
    owner: str = "",
    resolve: Resolver = system_resolver,
    ssl_context: ssl.SSLContext | None = None,
    connections: ConnectionPool | None = None,
    reuse_key: Hashable | None = None,
) -> Response:
    """POST `body` and return the response, whatever its status. Redirects are not followed.

    All steps (DNS, connection, TLS, request, response) end within `deadline_seconds`. After the status is known,
    an error in the body only truncates it. Framing headers (Host, Content-Length, Connection, …) are always set
    here, whatever `headers` has.

    With `connections` and a `reuse_key` the connection is kept for the next call with an equal key and the same
    scheme, host, port and `ssl_context`; otherwise it is closed. The key consists of owner, endpoint and version
    of the endpoint. Each call checks the URL and the address of the pooled connection against `policy` again; the
    name is not looked up again.

    Requests are sent at least once: if a pooled connection ends before the first byte of the response, the same
    request is sent on a new connection, although the server may have processed it. This is done only once.

    Raises DeliveryError: `blocked` if the guard refuses the URL or an address of its name, `dns`, `connect`, `tls`
    or `protocol` if that step fails, `timeout` at the deadline. Raises LookupsBusy, without a request, if too many
    lookups of this `owner`, or of all, are running.
    """
    deadline = _Deadline(deadline_seconds)
    with _blocking():
        target = check_url(url, policy)
    pool = connections if reuse_key is not None else None
    key = (reuse_key, target.scheme, target.host, target.port, ssl_context)
    exchange = partial(_exchange, target=target, body=body, headers=headers, deadline=deadline, pool=pool, key=key)
    pooled = _take(pool, key, target, policy)
    if pooled:
        with suppress(_ClosedBeforeResponse):
            return exchange(pooled)
    lookup = partial(_look_up, target, resolve, deadline, owner)
    return exchange(_open(target, policy, lookup=lookup, context=ssl_context, deadline=deadline))


class _ClosedBeforeResponse(DeliveryError):
    """The connection ended before the first byte of the response."""


class _Deadline:
    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds left, more than zero. TimeoutError if there are none."""
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
    """Convert an exception of a step to DeliveryError. Its message contains no text of the server."""
    try:
        yield
    except TimeoutError:
        message = f"{target.authority} did not respond before the deadline."
        raise DeliveryError("timeout", message) from None
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", None) or error.reason or "connection cut"
        raise DeliveryError("tls", f"TLS with {target.authority} failed: {reason}.") from None
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise DeliveryError(error_class, f"{target.authority}: {reason}.") from None


def _take(pool: ConnectionPool | None, key: Hashable, target: Target, policy: Policy) -> PooledConnection | None:
    """A pooled connection whose address `policy` still allows, or None."""
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
    target: Target,
    policy: Policy,
    *,
    lookup: Callable[[], Sequence[str]],
    context: ssl.SSLContext | None,
    deadline: _Deadline,
) -> PooledConnection:
    with _blocking():
        addresses = _checked_addresses(target, policy, lookup)
    sock, address = _connect(target, addresses, deadline)
    stream = _encrypted(sock, target, context, deadline) if target.tls else sock
    return PooledConnection(stream=stream, address=address)


def _checked_addresses(target: Target, policy: Policy, lookup: Callable[[], Sequence[str]]) -> list[Address]:
    """The addresses to try. One refused address refuses the whole name, against DNS rebinding."""
    if target.address:
        return [target.address]
    addresses = [_parsed(text, target) for text in lookup()]
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
    raise Refused(f"{target.host} resolves to a malformed address.")


def _look_up(target: Target, resolve: Resolver, deadline: _Deadline, owner: str) -> Sequence[str]:
    lookup = _LOOKUPS.start(owner, partial(resolve, target.host))
    try:
        return lookup.result(deadline.left())
    except TimeoutError:
        message = f"The DNS lookup of {target.host} did not end before the deadline."
        raise DeliveryError("timeout", message) from None
    except Exception:
        # Any exception of a resolver means that there is no address.
        raise DeliveryError("dns", f"{target.host} could not be resolved.") from None


def _connect(target: Target, addresses: Sequence[Address], deadline: _Deadline) -> tuple[socket.socket, Address]:
    """A connection to the first address that accepts it. Each gets an equal share of the time left."""
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
    """TLS over `sock`, with the name of the URL, not the address, in SNI and for the certificate."""
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
    """The socket for one request and response of `http.client`, with a timeout of the rest of the deadline.

    The timeout of a socket starts again at each byte, so a slow server could extend the deadline.
    """

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock = sock
        self._deadline = deadline
        self._budget = _WIRE_BYTES
        self._outgoing = bytearray()
        self._reader = _Reader(self)
        self._is_finished = False
        self.in_body = False
        self.cut = False
        self.ended = False
        self.has_received = False

    def sendall(self, data: bytes) -> None:
        """Only buffers. `transmit` sends head and body together, in one packet if possible."""
        self._outgoing += data

    def transmit(self) -> None:
        rest = memoryview(self._outgoing)
        with self._recording_the_end():
            while rest:
                self._sock.settimeout(self._deadline.left())
                rest = rest[self._sock.send(rest) :]

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        return self._reader

    def close(self) -> None:
        """Nothing: `http.client` calls it before the body is read. `_exchange` closes the connection."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """In the head an error is raised. In the body it is the end, so that the received part is kept."""
        if self._is_finished:
            return 0
        try:
            return self._receive(memoryview(buffer))
        except OSError:
            if not self.in_body:
                raise
            self.cut = True
            return 0

    def is_reusable(self) -> bool:
        """Whether the connection is open, and nothing after the response was read. Nothing is read afterwards."""
        self._is_finished = True
        return not (self.cut or self.ended or self._reader.peek(1))

    def _receive(self, buffer: memoryview) -> int:
        if self._budget <= 0:
            raise OSError(errno.EMSGSIZE, "the response is too long")
        with self._recording_the_end():
            self._sock.settimeout(self._deadline.left())
            received = self._sock.recv_into(buffer[: self._budget])
        self.ended = self.ended or not received
        self.has_received = self.has_received or bool(received)
        if not received and not self.in_body:
            raise ConnectionError(errno.ECONNRESET, "the response ended within its headers")
        self._budget -= received
        return received

    @contextmanager
    def _recording_the_end(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise
        except OSError:
            self.ended = True
            raise


class _Reader(io.BufferedReader):
    def close(self) -> None:
        """Nothing: `http.client` calls it after each response, also after 100 Continue, with data read ahead."""


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
    """One request and its response. Then the connection is closed, or kept in `pool` if that is safe."""
    with ExitStack() as cleanup:
        cleanup.callback(connection.close)
        wire = _Wire(connection.stream, deadline)
        fields = _request_headers(target, body, headers, keep=pool is not None)
        response = _send_request(wire, target, body=body, headers=fields)
        wire.in_body = True
        content = b"" if response.status in _BODILESS else _read_body(response, wire)
        if pool is not None and _ends_cleanly(response) and wire.is_reusable():
            cleanup.pop_all()
            pool.keep(key, connection)
    return Response(
        status=response.status,
        headers=_kept_headers(response),
        body=content[:KEPT_BYTES],
        truncated=wire.cut or len(content) > KEPT_BYTES or bool(response.length),
        head=_shown_headers(response),
    )


def _send_request(wire: _Wire, target: Target, *, body: bytes, headers: Mapping[str, str]) -> HTTPResponse:
    """Send the request and read the head of the response.

    Raises DeliveryError: _ClosedBeforeResponse if there is no response.
    """
    try:
        with _failing_as("protocol", target):
            connection = HTTPConnection(target.host, target.port)
            connection.sock = wire
            connection.request("POST", target.path, body, headers)
            # A server can respond and close the connection before it has read everything.
            with suppress(BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
                wire.transmit()
            return _read_head(wire)
    except DeliveryError as failure:
        if wire.ended and not wire.has_received:
            raise _ClosedBeforeResponse(failure.error_class, str(failure)) from None
        raise


def _read_head(wire: _Wire) -> HTTPResponse:
    """The head of the final response. `http.client` takes each 1xx, except 100, for the final one."""
    while True:
        response = HTTPResponse(wire, method="POST")  # type: ignore[arg-type]
        response.begin()
        if response.status >= 200 or response.status == 101:
            return response


def _request_headers(target: Target, body: bytes, headers: Mapping[str, str], *, keep: bool) -> dict[str, str]:
    given = {name.lower(): value for name, value in headers.items()}
    own = {
        "host": target.authority,
        "content-length": str(len(body)),
        "accept-encoding": "identity",
    }
    closing = {} if keep else {"connection": "close"}
    return {name: value for name, value in given.items() if name not in _DROPPED_HEADERS} | own | closing


def _read_body(response: HTTPResponse, wire: _Wire) -> bytes:
    content = bytearray()
    try:
        # `read` would lose an incomplete chunk.
        while piece := response.read1(_READ_BYTES - len(content)):
            content += piece
    except (HTTPException, ValueError):
        wire.cut = True
    return bytes(content)


def _ends_cleanly(response: HTTPResponse) -> bool:
    """Whether the response was read to an unambiguous end, and keeps the connection open (RFC 9112, 6.3, 9.3).

    `http.client` is lax: it reads only the first header of a name, accepts a length together with chunks, and
    reads the head up to its first malformed line.
    """
    options = ",".join(response.headers.get_all("connection", [])).lower()
    if response.version != 11 or response.will_close or "close" in options or response.headers.defects:
        return False
    lengths, codings = (
        response.headers.get_all("content-length", []),
        response.headers.get_all("transfer-encoding", []),
    )
    if codings:
        return len(codings) == 1 and not lengths and response.chunked and response.isclosed()
    if response.status in (204, 304):
        return True
    return len(lengths) == 1 and bool(_DIGITS.fullmatch(lengths[0])) and response.length == 0


def _kept_headers(response: HTTPResponse) -> dict[str, str]:
    found = ((name, response.headers.get(name)) for name in _KEPT_HEADERS)
    return {name: _printable(str(value)) for name, value in found if value is not None}


def _shown_headers(response: HTTPResponse) -> tuple[tuple[str, str], ...]:
    fields = response.headers.items()[:_SHOWN_HEADERS]
    return tuple(
        (_printable(name), "(hidden)" if name.strip().lower() in _HIDDEN_HEADERS else _printable(str(value)))
        for name, value in fields
    )


def _printable(text: str) -> str:
    text = text[:_HEADER_CHARS]
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)
