"""How the clients reach the world, blocking and not.

Everything above is written once, as coroutines on `IO`. `BlockingIO` never suspends, so `run` finishes such a
coroutine in one go, in the caller's thread and without an event loop.
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

from recado.errors import ConnectionFailed, MissingExtra, RecadoError

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection as AsyncConnection
    from websockets.sync.client import ClientConnection as BlockingConnection

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T]]
CONNECT_SECONDS = 10.0
MAX_MESSAGE_BYTES = 1 << 20
# Pings are messages here: API Gateway counts no frames of the protocol itself as life.
_SOCKET_OPTIONS: dict[str, Any] = {
    "open_timeout": CONNECT_SECONDS,
    "close_timeout": 1,
    "ping_interval": None,
    "max_size": MAX_MESSAGE_BYTES,
}
HAS_WEBSOCKETS = util.find_spec("websockets") is not None


def need_websockets() -> None:
    """Raises MissingExtra where there is no library for them."""
    if not HAS_WEBSOCKETS:
        raise MissingExtra("WebSockets need one more library: pip install 'recado[live]'")


@dataclass(frozen=True, slots=True)
class Request:
    """`body`: bytes, or a function that begins to read what is to be sent. `timeout`: seconds of silence."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Callable[[], Iterable[bytes]] | None = None
    timeout: float = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """`headers` answer to names in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class Stream(Protocol):
    """An answer whose body is read while it comes."""

    @property
    def answer(self) -> Answer: ...

    def events(self) -> AsyncGenerator[httpx2.ServerSentEvent, None]: ...


class Socket(Protocol):
    async def receive(self, seconds: float) -> str | None:
        """The next message, or None if none has come in that time."""

    async def send(self, text: str) -> None: ...


class IO(Protocol):
    """Raises ConnectionFailed, and nothing else, for all that can happen between here and there."""

    async def send(self, request: Request) -> Answer: ...

    async def sleep(self, seconds: float) -> None: ...

    async def together(self, works: Sequence[Work[T]], *, at_once: int) -> list[T]:
        """What each returns, in order. The first error is raised, and ends the others before it is."""

    def clock(self) -> float: ...

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]: ...

    def socket(self, url: str) -> AbstractAsyncContextManager[Socket]: ...


# ── coroutines without a loop ────────────────────────────────────────────────────────────────────────────


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Finish a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError("a coroutine on blocking IO has suspended")


def iterate(items: AsyncIterator[T]) -> Iterator[T]:
    """The same for a generator; it is closed with the loop that reads it."""
    with contextlib.ExitStack() as stack:
        if close := getattr(items, "aclose", None):
            stack.callback(lambda: run(close()))
        while True:
            try:
                item = run(_next(items))
            except StopAsyncIteration:
                return
            yield item


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


# ── blocking ─────────────────────────────────────────────────────────────────────────────────────────────


class BlockingIO:
    def __init__(self, http: httpx2.Client | None = None) -> None:
        self._http = http or httpx2.Client()

    async def send(self, request: Request) -> Answer:
        body = _while_wanted(request.body()) if callable(request.body) else request.body
        with _http_errors():
            reply = self._http.request(content=body, **_arguments(request))
        return Answer(reply.status_code, reply.headers, reply.content)

    async def sleep(self, seconds: float) -> None:
        if over := _over.get():
            over.wait(seconds)
            _raise_if_over()
        else:
            time.sleep(seconds)

    async def together(self, works: Sequence[Work[T]], *, at_once: int) -> list[T]:
        """In threads; those that run end at their next piece or pause."""
        over = threading.Event()
        with ThreadPoolExecutor(at_once) as pool:
            begun = [pool.submit(_run_until, over, work) for work in works]
            try:
                for each in as_completed(begun):
                    each.result()
            except BaseException:
                over.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return [each.result() for each in begun]

    def clock(self) -> float:
        return time.monotonic()

    @contextlib.asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        with (
            _http_errors(),
            self._http.stream(**_arguments(request)) as reply,
        ):
            yield _BlockingStream(Answer(reply.status_code, reply.headers), reply)

    @contextlib.asynccontextmanager
    async def socket(self, url: str) -> AsyncIterator[Socket]:
        from websockets.sync.client import connect

        with (
            _socket_errors(),
            connect(url, **_SOCKET_OPTIONS) as connection,
        ):
            yield _BlockingSocket(connection)

    def close(self) -> None:
        self._http.close()


class _Over(Exception):
    """What runs beside this in another thread has failed: what asyncio calls being cancelled."""


_over: ContextVar[threading.Event | None] = ContextVar("over", default=None)


def _run_until(over: threading.Event, work: Work[T]) -> T:
    _over.set(over)
    return run(work())


def _raise_if_over() -> None:
    over = _over.get()
    if over and over.is_set():
        raise _Over


def _while_wanted(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        _raise_if_over()
        yield piece


class _BlockingStream:
    def __init__(self, answer: Answer, reply: httpx2.Response) -> None:
        self.answer = answer
        self._reply = reply

    async def events(self) -> AsyncGenerator[httpx2.ServerSentEvent, None]:
        for event in httpx2.EventSource(self._reply):
            yield event


class _BlockingSocket:
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

    async def send(self, request: Request) -> Answer:
        body = _pieces(request.body()) if callable(request.body) else request.body
        with _http_errors():
            reply = await self._http.request(content=body, **_arguments(request))
        return Answer(reply.status_code, reply.headers, reply.content)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def together(self, works: Sequence[Work[T]], *, at_once: int) -> list[T]:
        gate = asyncio.Semaphore(at_once)

        async def one(work: Work[T]) -> T:
            async with gate:
                return await work()

        try:
            async with asyncio.TaskGroup() as group:
                begun = [group.create_task(one(work)) for work in works]
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [each.result() for each in begun]

    def clock(self) -> float:
        return time.monotonic()

    @contextlib.asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        with _http_errors():
            async with self._http.stream(**_arguments(request)) as reply:
                yield _AsyncStream(Answer(reply.status_code, reply.headers), reply)

    @contextlib.asynccontextmanager
    async def socket(self, url: str) -> AsyncIterator[Socket]:
        from websockets.asyncio.client import connect

        with _socket_errors():
            async with connect(url, **_SOCKET_OPTIONS) as connection:
                yield _AsyncSocket(connection)

    async def close(self) -> None:
        await self._http.aclose()


class _AsyncStream:
    def __init__(self, answer: Answer, reply: httpx2.Response) -> None:
        self.answer = answer
        self._reply = reply

    async def events(self) -> AsyncGenerator[httpx2.ServerSentEvent, None]:
        async for event in httpx2.EventSource(self._reply):
            yield event


class _AsyncSocket:
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


async def _pieces(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────


def _arguments(request: Request) -> dict[str, Any]:
    """All but the body, as both kinds of httpx2's clients take them."""
    return {
        "method": request.method,
        "url": request.url,
        "headers": request.headers,
        "timeout": httpx2.Timeout(request.timeout, connect=min(CONNECT_SECONDS, request.timeout)),
        "follow_redirects": False,
    }


@contextlib.contextmanager
def _http_errors() -> Iterator[None]:
    """URLs stay out of the message: presigned ones and links have tokens in them."""
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
        raise ConnectionFailed(f"no connection: {_reason(error)}", sent=False) from error
    except httpx2.RequestError as error:
        raise ConnectionFailed(f"the connection broke: {_reason(error)}") from error


@contextlib.contextmanager
def _socket_errors() -> Iterator[None]:
    from websockets.exceptions import WebSocketException

    try:
        yield
    except RecadoError:
        raise  # TimeUp is an OSError, as every TimeoutError
    except (WebSocketException, OSError, ssl.SSLError) as error:
        raise ConnectionFailed(f"the WebSocket broke: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _text(message: str | bytes) -> str:
    return message if isinstance(message, str) else message.decode(errors="replace")
