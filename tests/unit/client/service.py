"""A small service that follows the contract of waiting: one job with its log, told in every way over loopback.

It runs in a thread with a loop of its own, so that blocking clients can be tested too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

JOB_ID = "job_01JTEST"
FINAL = ("indexed", "failed", "canceled")
STATUS = {"indexed": "completed", "failed": "failed", "canceled": "canceled"}


def payloads(count: int, *, ending: str = "indexed") -> list[dict[str, Any]]:
    """The log of a job, of at least two events: the first and the last."""
    verbs = ["uploaded", "started", *["progressed"] * max(0, count - 3)][: count - 1]
    return [payload(number, verb) for number, verb in enumerate([*verbs, ending], 1)]


def payload(number: int, verb: str) -> dict[str, Any]:
    facts = {"stage": "embed", "done": number, "total": 99} if verb == "progressed" else {}
    return {
        "event": f"document.{verb}",
        "event_id": f"evt_{number}",
        "job_id": JOB_ID,
        "sequence": number,
        "timestamp": f"2026-11-29T08:00:{number % 60:02}.000Z",
        **facts,
    }


@dataclass
class Service:
    """`cuts`: for each connection after how many bytes (or messages) it breaks, None for never.

    `ways`: what works. `repeats`, `skips`: what is pushed again, and what is not. `replies`: status and body of
    what has nothing to do with waiting, by `METHOD /path`.
    """

    log: list[dict[str, Any]] = field(default_factory=list)
    hold: float = 0.2
    retry_after: str | None = None
    ways: frozenset[str] = frozenset({"websocket", "sse", "long_poll", "poll"})
    cuts: deque[int | None] = field(default_factory=deque)
    repeats: int = 0
    skips: set[int] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    heard: list[dict[str, Any]] = field(default_factory=list)
    extra: list[dict[str, Any]] = field(default_factory=list)
    replies: dict[str, tuple[int, Any]] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""
    live: str = ""
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _loop: asyncio.AbstractEventLoop | None = None

    def reset(self, log: list[dict[str, Any]], **facts: Any) -> None:
        """Begin again with this log, in the state of a fresh service."""
        fresh = Service(log=log, **facts)
        kept = ("url", "live", "_changed", "_loop")
        vars(self).update({name: value for name, value in vars(fresh).items() if name not in kept})

    def append(self, *events: dict[str, Any]) -> None:
        """From any thread."""

        async def add() -> None:
            async with self._changed:
                self.log = [*self.log, *events]
                self._changed.notify_all()

        assert self._loop
        asyncio.run_coroutine_threadsafe(add(), self._loop).result(5)

    @property
    def status(self) -> str:
        verb = self.log[-1]["event"].partition(".")[2] if self.log else "uploaded"
        return STATUS.get(verb, "running")

    def view(self) -> dict[str, Any]:
        last = len(self.log)
        failed = {"error": {"code": "no_text", "message": "It is a scan.", "stage": "validate"}}
        return {
            "job_id": JOB_ID,
            "kind": "document",
            "status": self.status,
            "stage": "embed",
            "progress": None,
            "attempts": 1,
            "sequence": last,
            "created_at": "2026-11-29T08:00:00.000Z",
            "links": {"status": f"{self.url}/follow/t/status"}
            | ({"live": self.live} if "websocket" in self.ways else {}),
            **(failed if self.status == "failed" else {}),
        }

    async def until_more(self, known: int, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: len(self.log) > known)

    # ── HTTP ─────────────────────────────────────────────────────────────────────────────────────────────

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._answer(reader, writer)
        finally:
            writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *rest = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in rest)}
        self.requests.append(line.removesuffix(" HTTP/1.1"))
        self.headers.append(headers)
        self.bodies.append(await reader.readexactly(int(headers.get("content-length", 0))))
        method, target = line.split()[0], urlsplit(line.split()[1])
        known = self.replies.get(f"{method} {target.path.removeprefix('/v1')}")
        if known:
            return await _Reply(writer, None).json(*known)
        query = {name: values[0] for name, values in parse_qs(target.query).items()}
        return await self.route(_Reply(writer, self._next_cut()), target.path, query, headers)

    def _next_cut(self) -> int | None:
        return self.cuts.popleft() if self.cuts else None

    async def route(self, reply: _Reply, path: str, query: dict[str, str], headers: dict[str, str]) -> None:
        if path == "/v1/follow/t/status":
            return await self.tell_status(reply, query, headers)
        if headers.get("authorization") != "Bearer rk_test":
            return await reply.json(401, {"type": "urn:recado:problem:unauthorized", "status": 401})
        match path.removeprefix(f"/v1/jobs/{JOB_ID}"):
            case "":
                return await reply.json(200, self.view())
            case "/status":
                return await self.tell_status(reply, query, headers)
            case "/events" if headers.get("accept") == "text/event-stream" and "sse" in self.ways:
                return await self.tell_stream(reply, int(headers.get("last-event-id") or 0))
            case "/events":
                return await reply.json(200, {"events": self.log[int(query.get("after", 0)) :]})
        problem = {"type": "urn:recado:problem:not_found", "title": "not found", "detail": "There is no such job."}
        return await reply.json(404, problem | {"status": 404})

    async def tell_status(self, reply: _Reply, query: dict[str, str], headers: dict[str, str]) -> None:
        known = headers.get("if-none-match")
        if "wait" in query and "long_poll" in self.ways and known == self.etag() and self.status == "running":
            await self.until_more(len(self.log), self.hold)
        told = {"ETag": self.etag()} | ({"Retry-After": self.retry_after} if self.retry_after else {})
        if known == self.etag():
            return await reply.send(304, told, b"")
        return await reply.json(200, self.view(), told)

    def etag(self) -> str:
        return f'"{len(self.log)}"'

    async def tell_stream(self, reply: _Reply, after: int) -> None:
        if self.status != "running" and after >= len(self.log):
            return await reply.send(204, {}, b"")
        await reply.begin(200, {"Content-Type": "text/event-stream"})
        await reply.write(b"retry: 1000\n\n")
        end = asyncio.get_running_loop().time() + self.hold
        async for event in self.sent(after, lambda: end - asyncio.get_running_loop().time()):
            text = f"id: {event['sequence']}\nevent: {event['event']}\ndata: {json.dumps(event)}\n\n"
            await reply.write(text.encode())
        if self.status != "running":
            await reply.write(f'event: end\ndata: {{"status": "{self.status}"}}\n\n'.encode())
        return None

    async def sent(self, after: int, left: Callable[[], float]) -> AsyncIterator[dict[str, Any]]:
        """Events as they are pushed: some again, some not at all."""
        while True:
            for event in list(self.log[after:]):
                after = event["sequence"]
                if after in self.skips:
                    self.skips.discard(after)
                    continue
                for _ in range(1 + self.repeats):
                    yield event
            if self.status != "running" or left() <= 0:
                return
            await self.until_more(after, left())

    # ── WebSocket ────────────────────────────────────────────────────────────────────────────────────────

    async def talk(self, connection: ServerConnection) -> None:
        assert connection.request
        query = parse_qs(urlsplit(connection.request.path).query)
        self.requests.append("WS")
        line = _Line(connection, self._next_cut())
        if query.get("token") != ["t"] or "websocket" not in self.ways:
            return await connection.close(4403, "the token is not valid")
        after = int(query.get("after", ["0"])[0])
        with contextlib.suppress(_Cut, ConnectionClosed):
            pushing = asyncio.create_task(self.push(line, after))
            try:
                await self.listen(line)
            finally:
                pushing.cancel()
                with contextlib.suppress(asyncio.CancelledError, _Cut):
                    await pushing
        return None

    async def push(self, line: _Line, after: int) -> None:
        await self.replay(line, after)
        known = len(self.log)
        for message in self.extra:
            await line.say(message)
        while True:
            await self.until_more(known, 60)
            async for event in self.sent(known, lambda: 0):
                await line.say({"type": "event", "event": event})
            known = len(self.log)

    async def replay(self, line: _Line, after: int) -> None:
        """All that is missing, some of it twice, and then where the log stands."""
        for event in list(self.log[after:]):
            for _ in range(1 + self.repeats):
                await line.say({"type": "event", "event": event})
        await line.say({"type": "subscribed", "job_id": JOB_ID, "sequence": len(self.log)})

    async def listen(self, line: _Line) -> None:
        async for text in line.connection:
            message = json.loads(text)
            self.heard.append(message)
            if message["action"] == "ping":
                await line.say({"type": "pong"})
            else:
                await self.replay(line, message["after"])


class _Cut(Exception):
    """The connection is gone."""


@dataclass
class _Reply:
    writer: asyncio.StreamWriter
    cut: int | None

    async def json(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        kind = "application/json" if status < 400 else "application/problem+json"
        await self.send(status, {"Content-Type": kind, **(headers or {})}, json.dumps(body).encode())

    async def send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        length = {"Content-Length": str(len(body))} if status not in (204, 304) else {}
        await self.begin(status, {**headers, **length})
        await self.write(body)

    async def begin(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers.items())]
        self.writer.write("\r\n".join([*lines, "Connection: close", "", ""]).encode())

    async def write(self, data: bytes) -> None:
        """Some of it, and then the line goes dead without a word."""
        if self.cut is None:
            self.writer.write(data)
            return await self.writer.drain()
        part, self.cut = data[: self.cut], self.cut - len(data)
        self.writer.write(part)
        await self.writer.drain()
        if self.cut < 0:
            self.writer.transport.abort()
            raise ConnectionResetError
        return None


@dataclass
class _Line:
    connection: ServerConnection
    cut: int | None

    async def say(self, message: dict[str, Any]) -> None:
        if self.cut is not None:
            self.cut -= 1
            if self.cut < 0:
                self.connection.transport.abort()
                raise _Cut
        with contextlib.suppress(Exception):
            await self.connection.send(json.dumps(message))


@contextlib.contextmanager
def running() -> Iterator[Service]:
    """A service in a thread of its own."""
    service, ready, loop = Service(), threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def main() -> None:
        async with (
            await asyncio.start_server(service.answer, "127.0.0.1", 0) as http,
            serve(service.talk, "127.0.0.1", 0, ping_interval=None, close_timeout=0.1) as live,
        ):
            service.url = f"http://127.0.0.1:{_port(http)}/v1"
            service.live = f"ws://127.0.0.1:{_port(live)}/v1?token=t"
            service._loop = loop
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=_serve, args=(loop, main), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield service
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


def _serve(loop: asyncio.AbstractEventLoop, main: Callable[[], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())  # type: ignore[arg-type]


def _port(server: Any) -> int:
    return int(next(iter(server.sockets)).getsockname()[1])
