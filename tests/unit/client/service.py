"""A small service that follows the contract of waiting: a job with its log, told in every way over loopback.

It runs in a thread with a loop of its own, so that blocking clients can be tested too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import groupby
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

JOB_ID = "job_01JTEST"
KINDS = ("document", "errand")
ENVELOPE = ("event", "event_id", "job_id", "sequence", "timestamp")
OPEN, FINAL = ("queued", "running"), ("completed", "failed", "canceled")


def payloads(count: int, *, ending: str = "completed") -> list[dict[str, Any]]:
    """The log of a job, of at least two events: the first and the last, after which it has the status `ending`."""
    verbs = ["uploaded", "started", *["progressed"] * max(0, count - 3)][: count - 1]
    last = {"completed": "indexed"}.get(ending, ending)
    first, *middle = [payload(number, verb) for number, verb in enumerate(verbs, 1)]
    return [first | {"status": "queued", "stage": "queued"}, *middle, payload(count, last, status=ending)]


def payload(
    number: int, verb: str, job_id: str = JOB_ID, *, status: str = "running", stage: str = "embed"
) -> dict[str, Any]:
    facts = {"done": number, "total": 99} if verb == "progressed" else {}
    return {
        "event": f"document.{verb}",
        "event_id": f"evt_{number}",
        "job_id": job_id,
        "sequence": number,
        "timestamp": f"2026-11-29T08:00:{number % 60:02}.000Z",
        "status": status,
        "stage": stage,
        **facts,
    }


def without_status(event: dict[str, Any]) -> dict[str, Any]:
    """The event as it was told before events had a status and a stage."""
    return {name: value for name, value in event.items() if name not in ("status", "stage")}


def packed(events: list[dict[str, Any]], most: int, too_large: set[int]) -> Iterator[dict[str, Any]]:
    """Messages of so many events of one job at most; of what is too large only the envelope."""
    for _, group in groupby(events, key=lambda event: event["job_id"]):
        told = [cut_down(event) if event["sequence"] in too_large else event for event in group]
        for start in range(0, len(told), most):
            yield {"type": "events", "events": told[start : start + most]}


def cut_down(event: dict[str, Any]) -> dict[str, Any]:
    return {name: event[name] for name in ENVELOPE} | {"truncated": True}


@dataclass
class Service:
    """`cuts`: for each connection after how many bytes it breaks (a WebSocket's after its handshake), or None.

    `tells_status`: whether events have a status and a stage. `is_named`: whether events of a stream have names of
    their own, and an `end` after the last. `ways`: what works. `repeats`, `skips`: what is pushed again, and what
    is not. `pack`: events to a message of a WebSocket, `too_large`: those of which it carries the envelope alone,
    by number. `others`: the logs of other jobs. `extra`: messages after the first replay, `then`: what happens
    after those. `replies`: status and body of what has nothing to do with waiting, by `METHOD /path`.
    """

    log: list[dict[str, Any]] = field(default_factory=list)
    tells_status: bool = True
    is_named: bool = True
    others: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    pushed: list[dict[str, Any]] = field(default_factory=list)
    tickets: set[str] = field(default_factory=set)
    pack: int = 1
    too_large: set[int] = field(default_factory=set)
    hold: float = 0.2
    retry_after: str | None = None
    ways: frozenset[str] = frozenset({"websocket", "sse", "long_poll", "poll"})
    cuts: deque[int | None] = field(default_factory=deque)
    repeats: int = 0
    skips: set[int] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    heard: list[dict[str, Any]] = field(default_factory=list)
    extra: list[dict[str, Any]] = field(default_factory=list)
    then: list[dict[str, Any]] = field(default_factory=list)
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

        assert self._loop
        asyncio.run_coroutine_threadsafe(self._add(events), self._loop).result(5)

    async def _add(self, events: Iterable[dict[str, Any]]) -> None:
        async with self._changed:
            for event in events:
                self.log_of(event["job_id"]).append(event)
                self.pushed.append(event)
            self._changed.notify_all()

    def log_of(self, job_id: str) -> list[dict[str, Any]]:
        return self.log if job_id == JOB_ID else self.others.setdefault(job_id, [])

    @property
    def status(self) -> str:
        return str(self.log[-1]["status"]) if self.log else "queued"

    @property
    def is_open(self) -> bool:
        return self.status in OPEN

    def told(self, events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """These events as this service tells them."""
        return [event if self.tells_status else without_status(event) for event in events]

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
        job_id = path.removeprefix("/v1/jobs/").partition("/")[0]
        if job_id in self.others and path.endswith("/events"):
            return await reply.json(200, {"events": self.told(self.others[job_id][int(query.get("after", 0)) :])})
        if path == "/v1/live/tickets":
            return await reply.json(201, self.ticket())
        match path.removeprefix(f"/v1/jobs/{JOB_ID}"):
            case "":
                return await reply.json(200, self.view())
            case "/status":
                return await self.tell_status(reply, query, headers)
            case "/events" if headers.get("accept") == "text/event-stream" and "sse" in self.ways:
                return await self.tell_stream(reply, int(headers.get("last-event-id") or 0))
            case "/events":
                return await reply.json(200, {"events": self.told(self.log[int(query.get("after", 0)) :])})
        problem = {"type": "urn:recado:problem:not_found", "title": "not found", "detail": "There is no such job."}
        return await reply.json(404, problem | {"status": 404})

    async def tell_status(self, reply: _Reply, query: dict[str, str], headers: dict[str, str]) -> None:
        known = headers.get("if-none-match")
        if "wait" in query and "long_poll" in self.ways and known == self.etag() and self.is_open:
            await self.until_more(len(self.log), self.hold)
        told = {"ETag": self.etag()} | ({"Retry-After": self.retry_after} if self.retry_after else {})
        if known == self.etag():
            return await reply.send(304, told, b"")
        return await reply.json(200, self.view(), told)

    def etag(self) -> str:
        return f'"{len(self.log)}"'

    async def tell_stream(self, reply: _Reply, after: int) -> None:
        if not self.is_open and after >= len(self.log):
            return await reply.send(204, {}, b"")
        await reply.begin(200, {"Content-Type": "text/event-stream"})
        await reply.write(b"retry: 1000\n\n")
        end = asyncio.get_running_loop().time() + self.hold
        async for event in self.sent(after, lambda: end - asyncio.get_running_loop().time()):
            name = event["event"] if self.is_named else "message"
            await reply.write(f"id: {event['sequence']}\nevent: {name}\ndata: {json.dumps(event)}\n\n".encode())
        if self.is_named and not self.is_open:
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
                for told in self.told([event] * (1 + self.repeats)):
                    yield told
            if not self.is_open or left() <= 0:
                return
            await self.until_more(after, left())

    # ── WebSocket ────────────────────────────────────────────────────────────────────────────────────────

    def ticket(self) -> dict[str, Any]:
        ticket = f"tk_{len(self.requests)}"
        self.tickets.add(ticket)
        url = f"{self.live.partition('?')[0]}?ticket={ticket}"
        return {"ticket": ticket, "url": url, "expires_at": "2026-11-29T08:01:00.000Z"}

    def admit(self, connection: ServerConnection, request: Request) -> Response | None:
        """Refuse the handshake of who has neither the job's link nor a ticket that was not used before."""
        query = parse_qs(urlsplit(request.path).query)
        self.requests.append("WS")
        ticket = query.get("ticket", [""])[0]
        if "websocket" in self.ways and (query.get("token") == ["t"] or ticket in self.tickets):
            self.tickets.discard(ticket)
            return None
        return connection.respond(HTTPStatus.FORBIDDEN, "")

    async def talk(self, connection: ServerConnection) -> None:
        assert connection.request
        query = parse_qs(urlsplit(connection.request.path).query)
        cut = self._next_cut()
        if cut is not None:
            connection.transport = _Cutting(connection.transport, cut)  # type: ignore[assignment]
        line = _Line(connection)
        with contextlib.suppress(ConnectionClosed):
            after = int(query.get("after", ["0"])[0])
            pushing = asyncio.create_task(self.push(line, after)) if "token" in query else None
            try:
                await self.listen(line)
            finally:
                for task in (pushing, *line.following.values()):
                    await _ended(task)

    async def push(self, line: _Line, after: int) -> None:
        await self.replay(line, after)
        known = len(self.log)
        for message in self.extra:
            await line.say(message)
        then, self.then = self.then, []
        await self._add(then)
        while True:
            await self.until_more(known, 60)
            events = [event async for event in self.sent(known, lambda: 0)]
            known = len(self.log)
            for message in packed(events, self.pack, self.too_large):
                await line.say(message)
            await line.say({"type": "ping"})

    async def push_all(self, line: _Line, known: int) -> None:
        """What happens to any job from now on."""
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: len(self.pushed) > known)  # noqa: B023 asked at once
            events = [event for event in self.told(self.pushed[known:]) for _ in range(1 + self.repeats)]
            known = len(self.pushed)
            for message in packed(events, self.pack, self.too_large):
                await line.say(message)

    async def replay(self, line: _Line, after: int) -> None:
        """All that is missing, some of it twice, and then where the log stands."""
        events = [event for event in self.told(self.log[after:]) for _ in range(1 + self.repeats)]
        last = len(self.log)
        for message in packed(events, self.pack, self.too_large):
            await line.say(message)
        await line.say({"type": "subscribed", "job_id": JOB_ID, "sequence": last})

    async def listen(self, line: _Line) -> None:
        async for text in line.connection:
            message = json.loads(text)
            self.heard.append(message)
            match message:
                case {"action": "ping"}:
                    await line.say({"type": "pong"})
                case {"action": "subscribe", "job_id": _, "after": after}:
                    await self.replay(line, after)
                case {"action": "follow", "kind": kind} if kind in KINDS:
                    line.following[kind] = asyncio.create_task(self.push_all(line, len(self.pushed)))
                    await line.say({"type": "following", "kind": kind})
                case _:
                    problem = f"choose from {', '.join(KINDS)}"
                    await line.say({"type": "error", "code": "invalid_request", "message": problem})


async def _ended(task: asyncio.Task[None] | None) -> None:
    if task:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionClosed):
            await task


class _Cutting:
    """A transport that carries so many bytes, and then the line goes dead without a word."""

    def __init__(self, transport: Any, left: int) -> None:
        self._transport, self._left = transport, left

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self._transport.write(data[: max(self._left, 0)])
        self._left -= len(data)
        if self._left < 0:
            self._transport.abort()


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
    following: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def say(self, message: dict[str, Any]) -> None:
        await self.connection.send(json.dumps(message))


@contextlib.contextmanager
def running() -> Iterator[Service]:
    """A service in a thread of its own."""
    service, ready, loop = Service(), threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def main() -> None:
        async with (
            await asyncio.start_server(service.answer, "127.0.0.1", 0) as http,
            serve(
                service.talk,
                "127.0.0.1",
                0,
                process_request=service.admit,
                compression=None,
                ping_interval=None,
                close_timeout=0.1,
            ) as live,
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
