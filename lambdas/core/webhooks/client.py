"""The one HTTP client that calls addresses other people chose.

It does one thing: a POST to an address that the guard allowed, with one deadline for everything. It follows
no redirect, retries nothing, reads no proxy settings, keeps no connection, decodes nothing, and reads a
bounded answer. It stands on `http.client` and `ssl` because none of that can then be switched on, and because
urllib3 logs the whole URL, token included, when an answer's headers are malformed.
"""

from __future__ import annotations

import errno
import io
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPResponse
from ipaddress import ip_address
from typing import Any

from core.errors import DeliveryError, ErrorClass, Refused
from core.webhooks.addresses import Address
from core.webhooks.guard import Policy, Target, check_address, check_url

Resolver = Callable[[str], Sequence[str]]

KEPT_BYTES = 16 * 1024
_READ_BYTES = 64 * 1024
# Head, body and chunk framing together: a head of 100 lines alone could else take 6 MB.
_WIRE_BYTES = 256 * 1024
_MAX_CONNECTS = 4
_KEPT_HEADERS = ("content-type", "content-encoding", "location", "retry-after")
_KEPT_HEADER_CHARS = 256
_DROPPED_HEADERS = frozenset({"transfer-encoding", "expect", "te", "trailer", "upgrade"})

# A lookup cannot be interrupted, so those that hang are left behind; this is how many there can be.
_LOOKUPS = ThreadPoolExecutor(max_workers=32, thread_name_prefix="webhook-dns")


@dataclass(frozen=True, kw_only=True)
class Response:
    """An answer. `headers` holds a few, by lower-case name; `body` the first 16 KiB as sent, not decoded.

    `truncated`: the body was longer, or broke off, or the deadline came while it was being read.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    truncated: bool


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
) -> Response:
    """POST `body` and return the answer, whatever its status; redirects are answers like any other.

    Everything (lookup, connecting, TLS, sending, reading) ends within `deadline_seconds`. Once the status
    is known the attempt has its answer, and what goes wrong in the body only truncates it. Headers that
    frame the message (Host, Content-Length, Connection, …) are set here whatever `headers` says.

    Raises DeliveryError and nothing else: `blocked` when the guard refuses the URL or any address of its
    name, `dns`, `connect`, `tls`, `protocol` when that step fails, `timeout` when the deadline passes.
    """
    deadline = _Deadline(deadline_seconds)
    try:
        target = check_url(url, policy)
        addresses = _vetted(target, policy, resolve=resolve, deadline=deadline)
    except DeliveryError:
        raise
    except Refused as refusal:
        raise DeliveryError("blocked", str(refusal)) from refusal
    sock = _connect(target, addresses, deadline)
    with _encrypted(sock, target, ssl_context, deadline) if target.tls else sock as stream:
        return _exchange(_Wire(stream, deadline), target, body=body, headers=headers)


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


def _connect(target: Target, addresses: Sequence[Address], deadline: _Deadline) -> socket.socket:
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
                return sock
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
    """What `http.client` needs of a socket, with every wait cut to what is left of the deadline.

    A socket's own timeout starts anew at each byte, so a server could drip its answer for hours.
    """

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock = sock
        self._deadline = deadline
        self._budget = _WIRE_BYTES
        self.in_body = False
        self.cut = False

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(self._deadline.left())
        self._sock.sendall(data)

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        return io.BufferedReader(self)

    def close(self) -> None:
        """`http.client` closes before the body is read; `post` owns the socket and closes it."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """In the head any failure is raised; in the body it becomes the end, so that what came is kept."""
        try:
            return self._receive(memoryview(buffer))
        except OSError:
            if not self.in_body:
                raise
            self.cut = True
            return 0

    def _receive(self, buffer: memoryview) -> int:
        if self._budget <= 0:
            raise OSError(errno.EMSGSIZE, "the answer is too long")
        self._sock.settimeout(self._deadline.left())
        received = self._sock.recv_into(buffer[: self._budget])
        if not received and not self.in_body:
            raise ConnectionError(errno.ECONNRESET, "the answer ended before its headers did")
        self._budget -= received
        return received


def _exchange(wire: _Wire, target: Target, *, body: bytes, headers: Mapping[str, str]) -> Response:
    connection = HTTPConnection(target.host, target.port)
    connection.sock = wire
    with _failing_as("protocol", target):
        # A server may answer and hang up before it has read everything: the answer is there to be read.
        with suppress(BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
            connection.request("POST", target.path, body, _request_headers(target, body, headers))
        answer = connection.getresponse()
    wire.in_body = True
    content = _read_body(answer, wire)
    return Response(
        status=answer.status,
        headers=_kept_headers(answer),
        body=content[:KEPT_BYTES],
        truncated=wire.cut or len(content) > KEPT_BYTES or bool(answer.length),
    )


def _request_headers(target: Target, body: bytes, headers: Mapping[str, str]) -> dict[str, str]:
    given = {name.lower(): value for name, value in headers.items()}
    own = {
        "host": target.authority,
        "content-length": str(len(body)),
        "accept-encoding": "identity",
        "connection": "close",
    }
    return {name: value for name, value in (given | own).items() if name not in _DROPPED_HEADERS}


def _read_body(answer: HTTPResponse, wire: _Wire) -> bytes:
    content = bytearray()
    try:
        # `read` would lose a chunk that breaks off.
        while piece := answer.read1(_READ_BYTES - len(content)):
            content += piece
    except (HTTPException, ValueError):
        wire.cut = True
    return bytes(content)


def _kept_headers(answer: HTTPResponse) -> dict[str, str]:
    found = ((name, answer.headers.get(name)) for name in _KEPT_HEADERS)
    return {name: _printable(str(value)[:_KEPT_HEADER_CHARS]) for name, value in found if value is not None}


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
