"""Network IO of the two clients: blocking and asyncio.

Everything else is written once, as coroutines on `IO`. `BlockingIO` never suspends; see `_coroutines`.

Connections belong to one process and, with asyncio, to one event loop. After a fork both processes have the same
sockets: one would receive the responses of the other. So the child makes connections of its own. It leaves the
inherited ones as they are, because closing them would end those of the parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import threading
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, ExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import util
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import httpx2

from recado._coroutines import run
from recado._urls import is_plain
from recado.errors import ClientUnusable, ConnectionFailed, MissingExtra, RecadoError

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection as AsyncConnection
    from websockets.sync.client import ClientConnection as BlockingConnection

T = TypeVar("T")
C = TypeVar("C")
CoroutineFunction = Callable[[], Coroutine[Any, Any, T]]
CONNECT_TIMEOUT_SECONDS = 10.0
MAX_MESSAGE_BYTES = 1 << 20
# Pings are messages of the API: API Gateway does not count ping frames as activity.
_WEBSOCKET_OPTIONS: dict[str, Any] = {
    "open_timeout": CONNECT_TIMEOUT_SECONDS,
    "close_timeout": 1,
    "ping_interval": None,
    "max_size": MAX_MESSAGE_BYTES,
}
# Plain connections stay on this machine. A proxy of the environment would carry them elsewhere.
_WITHOUT_PROXY: Mapping[str, None] = {"http://": None}
HAS_WEBSOCKETS = util.find_spec("websockets") is not None


def require_websockets() -> None:
    """Raises MissingExtra if the `websockets` package is not installed."""
    if not HAS_WEBSOCKETS:
        raise MissingExtra("WebSockets need the websockets package. Run: pip install 'recado[live]'")


@dataclass(frozen=True, slots=True)
class Request:
    """`body`: bytes, or a function that returns the chunks to send. `timeout`: seconds without a byte."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Callable[[], Iterable[bytes]] | None = None
    timeout: float = 30.0


@dataclass(frozen=True, slots=True)
class Response:
    """The names of `headers` are case-insensitive."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class SseResponse(Protocol):
    """A response of server-sent events. `response` is without its body."""

    @property
    def response(self) -> Response: ...

    def events(self) -> AsyncGenerator[httpx2.ServerSentEvent, None]: ...


class WebSocket(Protocol):
    async def receive(self, seconds: float) -> str | None:
        """The next message, or None if none was received within that time."""

    async def send(self, text: str) -> None: ...


class IO(Protocol):
    """Raises ConnectionFailed, and nothing else, for network failures.

    Raises InsecureUrl, before anything is sent, for URLs that are not encrypted and lead to another machine, and
    ClientUnusable after `close`.
    """

    async def send(self, request: Request) -> Response: ...

    async def sleep(self, seconds: float) -> None: ...

    async def gather(self, functions: Sequence[CoroutineFunction[T]], *, concurrency: int) -> list[T]:
        """The results in order. The first error cancels the others and is raised."""

    def clock(self) -> float: ...

    def sse(self, request: Request) -> AbstractAsyncContextManager[SseResponse]: ...

    def socket(self, url: str) -> AbstractAsyncContextManager[WebSocket]: ...


Place = tuple[int, asyncio.AbstractEventLoop | None]
"""Where a connection can be used: in one process and, with asyncio, in one event loop."""


def _blocking_place() -> Place:
    return os.getpid(), None


def _async_place() -> Place:
    return os.getpid(), asyncio.get_running_loop()


def _check_place(opened: Place, now: Place) -> None:
    """Raises ConnectionFailed in another place than the one where the connection was opened."""
    if opened != now:
        raise ConnectionFailed("The connection belongs to another process or event loop.")


class _HttpClients(Generic[C]):
    """One httpx2 client for each place. `given`: the caller's own, which can be used in the first place only."""

    def __init__(self, make: Callable[[], C], given: C | None) -> None:
        self._make, self._given = make, given
        self._by_place: dict[Place, C] = {}
        self._is_closed = False

    def get(self, place: Place) -> C:
        self.check_open()
        return self._by_place.get(place) or self._add(place)

    def check_open(self) -> None:
        if self._is_closed:
            raise ClientUnusable("The client is closed. Create a new one.")

    def close(self, place: Place) -> C | None:
        """Refuse all further calls. Returns the httpx2 client that has to be closed: not the caller's own."""
        self._is_closed = True
        client = self._by_place.pop(place, None)
        return client if self._given is None else None

    def _add(self, place: Place) -> C:
        """Without a lock, which another thread might hold during a fork. `setdefault` is atomic."""
        if self._given is not None and self._by_place:
            raise ClientUnusable(
                "The http that you passed was used in another process or event loop, which cannot share its "
                "connections. Create a new client with an http of its own."
            )
        for _, loop in list(self._by_place):
            if loop and loop.is_closed():
                self._by_place.pop((os.getpid(), loop), None)
        return self._by_place.setdefault(place, self._make() if self._given is None else self._given)


_left_open: list[ExitStack | AsyncExitStack] = []
"""Connections of other places. They are kept, because they are closed also when they are collected."""


@contextlib.contextmanager
def _closed_in_its_place(connection: AbstractContextManager[T]) -> Iterator[T]:
    """Opens the connection, and closes it unless the process has forked meanwhile."""
    place, stack = _blocking_place(), ExitStack()
    try:
        yield stack.enter_context(connection)
    finally:
        if _blocking_place() == place:
            stack.close()
        else:
            _left_open.append(stack)


@contextlib.asynccontextmanager
async def _async_closed_in_its_place(connection: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    place, stack = _async_place(), AsyncExitStack()
    try:
        yield await stack.enter_async_context(connection)
    finally:
        if _async_place() == place:
            await stack.aclose()
        else:
            _left_open.append(stack)


# ── blocking ─────────────────────────────────────────────────────────────────────────────────────────────


class BlockingIO:
    def __init__(self, http: httpx2.Client | None = None) -> None:
        self._clients = _HttpClients(lambda: httpx2.Client(mounts=_WITHOUT_PROXY), http)
        self._http()

    async def send(self, request: Request) -> Response:
        body = _until_cancelled(request.body()) if callable(request.body) else request.body
        with _http_errors():
            response = self._http().request(content=body, **_httpx_arguments(request))
        return Response(response.status_code, response.headers, response.content)

    async def sleep(self, seconds: float) -> None:
        if cancel := _cancel_event.get():
            cancel.wait(seconds)
            _raise_if_cancelled()
        else:
            time.sleep(seconds)

    async def gather(self, functions: Sequence[CoroutineFunction[T]], *, concurrency: int) -> list[T]:
        """In threads. A cancelled thread ends at its next chunk or sleep."""
        cancel = threading.Event()
        with ThreadPoolExecutor(concurrency) as pool:
            futures = [pool.submit(_run_cancellable, cancel, function) for function in functions]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                cancel.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return [future.result() for future in futures]

    def clock(self) -> float:
        return time.monotonic()

    @contextlib.asynccontextmanager
    async def sse(self, request: Request) -> AsyncIterator[SseResponse]:
        with (
            _http_errors(),
            _closed_in_its_place(self._http().stream(**_httpx_arguments(request))) as response,
        ):
            yield _BlockingSseResponse(response)

    @contextlib.asynccontextmanager
    async def socket(self, url: str) -> AsyncIterator[WebSocket]:
        from websockets.sync.client import connect

        self._clients.check_open()
        with (
            _websocket_errors(),
            _closed_in_its_place(connect(url, **_websocket_options(url))) as connection,
        ):
            yield _BlockingWebSocket(connection)

    def close(self) -> None:
        if client := self._clients.close(_blocking_place()):
            client.close()

    def _http(self) -> httpx2.Client:
        return self._clients.get(_blocking_place())


class _Cancelled(Exception):
    """Another thread of the same `gather` failed. Corresponds to asyncio.CancelledError."""


_cancel_event: ContextVar[threading.Event | None] = ContextVar("cancel_event", default=None)


def _run_cancellable(cancel: threading.Event, function: CoroutineFunction[T]) -> T:
    _cancel_event.set(cancel)
    return run(function())


def _raise_if_cancelled() -> None:
    cancel = _cancel_event.get()
    if cancel and cancel.is_set():
        raise _Cancelled


def _until_cancelled(chunks: Iterable[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        _raise_if_cancelled()
        yield chunk


class _BlockingSseResponse:
    def __init__(self, response: httpx2.Response) -> None:
        self.response = Response(response.status_code, response.headers)
        self._source = response

    async def events(self) -> AsyncGenerator[httpx2.ServerSentEvent, None]:
        place = _blocking_place()
        for event in httpx2.EventSource(self._source):
            yield event
            _check_place(place, _blocking_place())


class _BlockingWebSocket:
    def __init__(self, connection: BlockingConnection) -> None:
        self._connection, self._place = connection, _blocking_place()

    async def receive(self, seconds: float) -> str | None:
        _check_place(self._place, _blocking_place())
        try:
            return _text(self._connection.recv(timeout=seconds))
        except TimeoutError:
            return None

    async def send(self, text: str) -> None:
        _check_place(self._place, _blocking_place())
        self._connection.send(text)


# ── asyncio ──────────────────────────────────────────────────────────────────────────────────────────────


class AsyncIO:
    def __init__(self, http: httpx2.AsyncClient | None = None) -> None:
        # Loading the certificates takes a while, so all event loops share them.
        tls = httpx2.create_ssl_context() if http is None else True
        self._clients = _HttpClients(lambda: httpx2.AsyncClient(verify=tls, mounts=_WITHOUT_PROXY), http)

    async def send(self, request: Request) -> Response:
        body = _async_chunks(request.body()) if callable(request.body) else request.body
        with _http_errors():
            response = await self._http().request(content=body, **_httpx_arguments(request))
        return Response(response.status_code, response.headers, response.content)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def gather(self, functions: Sequence[CoroutineFunction[T]], *, concurrency: int) -> list[T]:
        semaphore = asyncio.Semaphore(concurrency)

        async def limited(function: CoroutineFunction[T]) -> T:
            async with semaphore:
                return await function()

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(limited(function)) for function in functions]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    def clock(self) -> float:
        return time.monotonic()

    @contextlib.asynccontextmanager
    async def sse(self, request: Request) -> AsyncIterator[SseResponse]:
        with _http_errors():
            async with _async_closed_in_its_place(self._http().stream(**_httpx_arguments(request))) as response:
                yield _AsyncSseResponse(response)

    @contextlib.asynccontextmanager
    async def socket(self, url: str) -> AsyncIterator[WebSocket]:
        from websockets.asyncio.client import connect

        self._clients.check_open()
        with _websocket_errors():
            async with _async_closed_in_its_place(connect(url, **_websocket_options(url))) as connection:
                yield _AsyncWebSocket(connection)

    async def close(self) -> None:
        if client := self._clients.close(_async_place()):
            await client.aclose()

    def _http(self) -> httpx2.AsyncClient:
        return self._clients.get(_async_place())


class _AsyncSseResponse:
    def __init__(self, response: httpx2.Response) -> None:
        self.response = Response(response.status_code, response.headers)
        self._source = response

    async def events(self) -> AsyncGenerator[httpx2.ServerSentEvent, None]:
        place = _async_place()
        async for event in httpx2.EventSource(self._source):
            yield event
            _check_place(place, _async_place())


class _AsyncWebSocket:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection, self._place = connection, _async_place()

    async def receive(self, seconds: float) -> str | None:
        _check_place(self._place, _async_place())
        try:
            async with asyncio.timeout(seconds):
                return _text(await self._connection.recv())
        except TimeoutError:
            return None

    async def send(self, text: str) -> None:
        _check_place(self._place, _async_place())
        await self._connection.send(text)


async def _async_chunks(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


# ── shared ───────────────────────────────────────────────────────────────────────────────────────────────


def _httpx_arguments(request: Request) -> dict[str, Any]:
    """All arguments but the body, for both httpx2 clients. Raises InsecureUrl."""
    is_plain(request.url)
    return {
        "method": request.method,
        "url": request.url,
        "headers": request.headers,
        "timeout": httpx2.Timeout(request.timeout, connect=min(CONNECT_TIMEOUT_SECONDS, request.timeout)),
        "follow_redirects": False,
    }


def _websocket_options(url: str) -> dict[str, Any]:
    """Raises InsecureUrl."""
    return _WEBSOCKET_OPTIONS | ({"proxy": None} if is_plain(url) else {})


@contextlib.contextmanager
def _http_errors() -> Iterator[None]:
    """Messages do not contain the URL: presigned URLs and links contain tokens."""
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
        raise ConnectionFailed(f"The connection could not be opened: {_reason(error)}", sent=False) from error
    except httpx2.RequestError as error:
        raise ConnectionFailed(f"The connection failed: {_reason(error)}") from error


@contextlib.contextmanager
def _websocket_errors() -> Iterator[None]:
    from websockets.exceptions import WebSocketException

    try:
        yield
    except RecadoError:
        raise  # WaitTimeout is a TimeoutError, hence an OSError
    except (WebSocketException, OSError, ssl.SSLError) as error:
        raise ConnectionFailed(f"The WebSocket failed: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _text(message: str | bytes) -> str:
    return message if isinstance(message, str) else message.decode(errors="replace")
