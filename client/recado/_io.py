"""Network IO of the two clients: blocking and asyncio.

Everything else is written once, as coroutines on `IO`. `BlockingIO` never suspends; see `_coroutines`.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import util
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import httpx2

from recado._coroutines import run
from recado.errors import ConnectionFailed, MissingExtra, RecadoError

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection as AsyncConnection
    from websockets.sync.client import ClientConnection as BlockingConnection

T = TypeVar("T")
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
    """Raises ConnectionFailed, and nothing else, for network failures."""

    async def send(self, request: Request) -> Response: ...

    async def sleep(self, seconds: float) -> None: ...

    async def gather(self, functions: Sequence[CoroutineFunction[T]], *, concurrency: int) -> list[T]:
        """The results in order. The first error cancels the others and is raised."""

    def clock(self) -> float: ...

    def sse(self, request: Request) -> AbstractAsyncContextManager[SseResponse]: ...

    def socket(self, url: str) -> AbstractAsyncContextManager[WebSocket]: ...


# ── blocking ─────────────────────────────────────────────────────────────────────────────────────────────


class BlockingIO:
    def __init__(self, http: httpx2.Client | None = None) -> None:
        self._http = http or httpx2.Client()

    async def send(self, request: Request) -> Response:
        body = _until_cancelled(request.body()) if callable(request.body) else request.body
        with _http_errors():
            response = self._http.request(content=body, **_httpx_arguments(request))
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
            self._http.stream(**_httpx_arguments(request)) as response,
        ):
            yield _BlockingSseResponse(response)

    @contextlib.asynccontextmanager
    async def socket(self, url: str) -> AsyncIterator[WebSocket]:
        from websockets.sync.client import connect

        with (
            _websocket_errors(),
            connect(url, **_WEBSOCKET_OPTIONS) as connection,
        ):
            yield _BlockingWebSocket(connection)

    def close(self) -> None:
        self._http.close()


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
        for event in httpx2.EventSource(self._source):
            yield event


class _BlockingWebSocket:
    def __init__(self, connection: BlockingConnection) -> None:
        self._connection = connection

    async def receive(self, seconds: float) -> str | None:
        try:
            return _text(self._connection.recv(timeout=seconds))
        except TimeoutError:
            return None

    async def send(self, text: str) -> None:
        self._connection.send(text)


# ── asyncio ──────────────────────────────────────────────────────────────────────────────────────────────


class AsyncIO:
    def __init__(self, http: httpx2.AsyncClient | None = None) -> None:
        self._http = http or httpx2.AsyncClient()

    async def send(self, request: Request) -> Response:
        body = _async_chunks(request.body()) if callable(request.body) else request.body
        with _http_errors():
            response = await self._http.request(content=body, **_httpx_arguments(request))
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
            async with self._http.stream(**_httpx_arguments(request)) as response:
                yield _AsyncSseResponse(response)

    @contextlib.asynccontextmanager
    async def socket(self, url: str) -> AsyncIterator[WebSocket]:
        from websockets.asyncio.client import connect

        with _websocket_errors():
            async with connect(url, **_WEBSOCKET_OPTIONS) as connection:
                yield _AsyncWebSocket(connection)

    async def close(self) -> None:
        await self._http.aclose()


class _AsyncSseResponse:
    def __init__(self, response: httpx2.Response) -> None:
        self.response = Response(response.status_code, response.headers)
        self._source = response

    async def events(self) -> AsyncGenerator[httpx2.ServerSentEvent, None]:
        async for event in httpx2.EventSource(self._source):
            yield event


class _AsyncWebSocket:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def receive(self, seconds: float) -> str | None:
        try:
            async with asyncio.timeout(seconds):
                return _text(await self._connection.recv())
        except TimeoutError:
            return None

    async def send(self, text: str) -> None:
        await self._connection.send(text)


async def _async_chunks(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


# ── shared ───────────────────────────────────────────────────────────────────────────────────────────────


def _httpx_arguments(request: Request) -> dict[str, Any]:
    """All arguments but the body, for both httpx2 clients."""
    return {
        "method": request.method,
        "url": request.url,
        "headers": request.headers,
        "timeout": httpx2.Timeout(request.timeout, connect=min(CONNECT_TIMEOUT_SECONDS, request.timeout)),
        "follow_redirects": False,
    }


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
