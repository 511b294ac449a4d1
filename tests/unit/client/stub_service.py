"""A small service that follows the contract of waiting: one job and its log, over all transports, on loopback.

It runs in a thread with an event loop of its own, so that blocking clients can be tested too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import groupby, islice
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from recado import AsyncRecado, Recado

KEY = "rk_test"
JOB_ID = "job_01JTEST"
KINDS = ("document", "errand")
ENVELOPE = ("event", "event_id", "job_id", "sequence", "timestamp")
OPEN, FINAL = ("queued", "running"), ("completed", "failed", "canceled")

Payload = dict[str, Any]


def payloads(count: int, *, ending: str = "completed") -> list[Payload]:
    """The log of a job with at least two events. After the last event the job has the status `ending`."""
    verbs = ["uploaded", "started", *["progressed"] * max(0, count - 3)][: count - 1]
    last = {"completed": "indexed"}.get(ending, ending)
    first, *middle = [payload(number, verb) for number, verb in enumerate(verbs, 1)]
    return [first | {"status": "queued", "stage": "queued"}, *middle, payload(count, last, status=ending)]


def payload(
    number: int, verb: str, job_id: str = JOB_ID, *, status: str = "running", stage: str = "embed"
) -> Payload:
    progress = {"done": number, "total": 99} if verb == "progressed" else {}
    return {
        "event": f"document.{verb}",
        "event_id": f"evt_{number}",
        "job_id": job_id,
        "sequence": number,
        "timestamp": f"2026-11-29T08:00:{number % 60:02}.000Z",
        "status": status,
        "stage": stage,
        **progress,
    }


def without_status(event: Payload) -> Payload:
    """The event as older services send it: without a status and a stage."""
    return {name: value for name, value in event.items() if name not in ("status", "stage")}


def batches(events: list[Payload], size: int, truncated: set[int]) -> Iterator[Payload]:
    """Messages with up to `size` events of one job. Events whose number is in `truncated` are truncated."""
    for _, group in groupby(events, key=lambda event: event["job_id"]):
        sent = [truncate(event) if event["sequence"] in truncated else event for event in group]
        for start in range(0, len(sent), size):
            yield {"type": "events", "events": sent[start : start + size]}


def truncate(event: Payload) -> Payload:
    return {name: event[name] for name in ENVELOPE} | {"truncated": True}


@dataclass
class StubService:
    """`cuts`: for each connection the number of bytes after which it breaks (of a WebSocket after the handshake).

    `sends_status`: whether events have a status and a stage. `names_events`: whether server-sent events have
    names and an `end` follows the last. `transports`: those that work. `repeats`: how often events are sent
    again. `skips`: events that are not sent at first. `batch_size`: events per WebSocket message. `truncated`:
    events that WebSocket messages truncate. `other_logs`: of other jobs. `messages`: sent after the first
    replay. `is_full`: whether requests are not held open, because too many are. `events_after_messages`: appended
    after those. `steps`: what the job tells over WebSocket in place of events, and after its second event by
    server-sent events. `piece`: characters of text in a message. `responses`: status, body and headers (may be
    left out) of other requests, by `METHOD /path`.
    """

    log: list[Payload] = field(default_factory=list)
    sends_status: bool = True
    names_events: bool = True
    other_logs: dict[str, list[Payload]] = field(default_factory=dict)
    appended: list[Payload] = field(default_factory=list)
    tickets: set[str] = field(default_factory=set)
    batch_size: int = 1
    truncated: set[int] = field(default_factory=set)
    hold_seconds: float = 0.2
    retry_after: str | None = None
    is_full: bool = False
    transports: frozenset[str] = frozenset({"websocket", "sse", "long_poll", "poll"})
    cuts: deque[int | None] = field(default_factory=deque)
    repeats: int = 0
    skips: set[int] = field(default_factory=set)
    messages: list[Payload] = field(default_factory=list)
    events_after_messages: list[Payload] = field(default_factory=list)
    steps: list[Payload] = field(default_factory=list)
    piece: int = 1000
    responses: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    received: list[Payload] = field(default_factory=list)
    """WebSocket messages from the client."""
    url: str = ""
    live: str = ""
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _loop: asyncio.AbstractEventLoop | None = None

    def reset(self, log: list[Payload], **options: Any) -> None:
        """Replace the whole state."""
        fresh = StubService(log=log, **options)
        kept = ("url", "live", "_changed", "_loop")
        vars(self).update({name: value for name, value in vars(fresh).items() if name not in kept})

    def append(self, *events: Payload) -> None:
        """Append to the logs. Thread-safe."""
        assert self._loop
        asyncio.run_coroutine_threadsafe(self._append(events), self._loop).result(5)

    def append_step(self, step: Payload) -> None:
        """Thread-safe."""
        assert self._loop
        asyncio.run_coroutine_threadsafe(self._append_step(step), self._loop).result(5)

    async def _append_step(self, step: Payload) -> None:
        async with self._changed:
            self.steps.append(step)
            self._changed.notify_all()

    @contextlib.contextmanager
    def append_later(self, seconds: float, *events: Payload) -> Iterator[None]:
        """Append to the logs while the body runs."""
        timer = threading.Timer(seconds, self.append, events)
        timer.start()
        yield
        timer.join()

    async def _append(self, events: Iterable[Payload]) -> None:
        async with self._changed:
            for event in events:
                is_other = event["job_id"] != JOB_ID
                log = self.other_logs.setdefault(event["job_id"], []) if is_other else self.log
                log.append(event)
                self.appended.append(event)
            self._changed.notify_all()

    @property
    def status(self) -> str:
        return str(self.log[-1]["status"]) if self.log else "queued"

    @property
    def is_open(self) -> bool:
        return self.status in OPEN

    def as_sent(self, events: Iterable[Payload]) -> list[Payload]:
        return [event if self.sends_status else without_status(event) for event in events]

    def view(self) -> Payload:
        failed = {"error": {"code": "no_text", "message": "It is a scan.", "stage": "validate"}}
        return {
            "job_id": JOB_ID,
            "kind": "document",
            "status": self.status,
            "stage": "embed",
            "progress": None,
            "attempts": 1,
            "sequence": len(self.log),
            "created_at": "2026-11-29T08:00:00.000Z",
            "links": {"status": f"{self.url}/follow/t/status"}
            | ({"live": self.live} if "websocket" in self.transports else {}),
            **(failed if self.status == "failed" else {}),
        }

    async def wait_for_more(self, known: int, seconds: float, known_steps: int = sys.maxsize) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: len(self.log) > known or len(self.steps) > known_steps)

    def done(self) -> Payload:
        return {"type": "done", "job_id": JOB_ID, "status": self.status}

    # ── HTTP ─────────────────────────────────────────────────────────────────────────────────────────────

    async def serve_http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._respond(reader, writer)
        finally:
            writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *rest = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in rest)}
        self.requests.append(line.removesuffix(" HTTP/1.1"))
        self.headers.append(headers)
        self.bodies.append(await reader.readexactly(int(headers.get("content-length", 0))))
        method, target = line.split()[0], urlsplit(line.split()[1])
        known = self.responses.get(f"{method} {target.path.removeprefix('/v1')}")
        if known:
            return await _HttpResponse(writer, None).json(*known)
        query = {name: values[0] for name, values in parse_qs(target.query).items()}
        return await self._route(_HttpResponse(writer, self._next_cut()), target.path, query, headers)

    def _next_cut(self) -> int | None:
        return self.cuts.popleft() if self.cuts else None

    async def _route(
        self, response: _HttpResponse, path: str, query: dict[str, str], headers: dict[str, str]
    ) -> None:
        if path == "/v1/follow/t/status":
            return await self._send_status(response, query, headers)
        if headers.get("authorization") != f"Bearer {KEY}":
            return await response.json(401, {"type": "urn:recado:problem:unauthorized", "status": 401})
        job_id, after = path.removeprefix("/v1/jobs/").partition("/")[0], int(query.get("after", 0))
        if job_id in self.other_logs and path.endswith("/events"):
            return await response.json(200, {"events": self.as_sent(self.other_logs[job_id][after:])})
        if path == "/v1/live/tickets":
            return await response.json(201, self._create_ticket())
        match path.removeprefix(f"/v1/jobs/{JOB_ID}"):
            case "":
                return await response.json(200, self.view())
            case "/status":
                return await self._send_status(response, query, headers)
            case "/events" if headers.get("accept") == "text/event-stream" and "sse" in self.transports:
                if self.steps:
                    return await self._send_steps(response, headers.get("last-event-id") or "0")
                return await self._send_stream(response, int(headers.get("last-event-id") or 0))
            case "/events":
                return await response.json(200, {"events": self.as_sent(self.log[after:])})
        problem = {"type": "urn:recado:problem:not_found", "title": "not found", "detail": "There is no such job."}
        return await response.json(404, problem | {"status": 404})

    async def _send_status(self, response: _HttpResponse, query: dict[str, str], headers: dict[str, str]) -> None:
        known = headers.get("if-none-match")
        if "wait" in query and "long_poll" in self.transports and known == self._etag() and self.is_open:
            await self.wait_for_more(len(self.log), 0 if self.is_full else self.hold_seconds)
        sent = {"ETag": self._etag()} | ({"Retry-After": self.retry_after} if self.retry_after else {})
        if known == self._etag():
            return await response.send(304, sent, b"")
        return await response.json(200, self.view(), sent)

    def _etag(self) -> str:
        return f'"{len(self.log)}"'

    async def _send_stream(self, response: _HttpResponse, after: int) -> None:
        if not self.is_open and after >= len(self.log):
            return await response.send(204, {}, b"")
        refusal = {"Retry-After": self.retry_after} if self.is_full and self.retry_after else {}
        await response.begin(200, {"Content-Type": "text/event-stream", **refusal})
        await response.write(b"retry: 1000\n\n")
        end = asyncio.get_running_loop().time() + (0 if self.is_full else self.hold_seconds)
        async for event in self._events(after, lambda: end - asyncio.get_running_loop().time()):
            name = event["event"] if self.names_events else "message"
            await response.write(f"id: {event['sequence']}\nevent: {name}\ndata: {json.dumps(event)}\n\n".encode())
        if self.names_events and not self.is_open:
            await response.write(f'event: end\ndata: {{"status": "{self.status}"}}\n\n'.encode())
        return None

    async def _send_steps(self, response: _HttpResponse, last_event_id: str) -> None:
        """Events and steps. The ids are `sequence.step`."""
        sequence, step = (int(number or 0) for number in last_event_id.partition(".")[::2])
        if not self.is_open and sequence >= len(self.log):
            return await response.send(204, {}, b"")
        await response.begin(200, {"Content-Type": "text/event-stream"})
        await response.write(b"retry: 1000\n\n")
        await self.wait_for_more(sequence, self.hold_seconds, step)
        for entry in [*self.log[sequence:2], *self.steps[step:], *self.log[max(sequence, 2) :]]:
            sequence, step = (sequence, step + 1) if "type" in entry else (entry["sequence"], step)
            name = entry.get("event") or entry["type"]
            block = f"id: {sequence}.{step}\nevent: {name}\ndata: {json.dumps(entry)}\n\n"
            await response.write(block.encode())
        if not self.is_open:
            await response.write(f"event: done\ndata: {json.dumps(self.done())}\n\n".encode())
            await response.write(f'event: end\ndata: {{"status": "{self.status}"}}\n\n'.encode())
        return None

    async def _events(self, after: int, seconds_left: Callable[[], float]) -> AsyncIterator[Payload]:
        """Events as they are appended, with repetitions and omissions."""
        while True:
            for event in list(self.log[after:]):
                after = event["sequence"]
                if after in self.skips:
                    self.skips.discard(after)
                    continue
                for sent in self.as_sent([event] * (1 + self.repeats)):
                    yield sent
            if not self.is_open or seconds_left() <= 0:
                return
            await self.wait_for_more(after, seconds_left())

    # ── WebSocket ────────────────────────────────────────────────────────────────────────────────────────

    def _create_ticket(self) -> Payload:
        ticket = f"tk_{len(self.requests)}"
        self.tickets.add(ticket)
        url = f"{self.live.partition('?')[0]}?ticket={ticket}"
        return {"ticket": ticket, "url": url, "expires_at": "2026-11-29T08:01:00.000Z"}

    def authorize_websocket(self, connection: ServerConnection, request: Request) -> Response | None:
        """Accept the job's link, and each ticket once."""
        query = parse_qs(urlsplit(request.path).query)
        self.requests.append("WS")
        ticket = query.get("ticket", [""])[0]
        if "websocket" in self.transports and (query.get("token") == ["t"] or ticket in self.tickets):
            self.tickets.discard(ticket)
            return None
        return connection.respond(HTTPStatus.FORBIDDEN, "")

    async def serve_websocket(self, connection: ServerConnection) -> None:
        assert connection.request
        query = parse_qs(urlsplit(connection.request.path).query)
        cut = self._next_cut()
        if cut is not None:
            connection.transport = _CutTransport(connection.transport, cut)  # type: ignore[assignment]
        client = _WebSocketClient(connection)
        with contextlib.suppress(ConnectionClosed):
            after = int(query.get("after", ["0"])[0])
            pushing = None
            if "token" in query:
                gets_steps = self.steps and "after" not in query
                push = self._push_steps(client) if gets_steps else self._push(client, after)
                pushing = asyncio.create_task(push)
            try:
                await self._receive(client)
            finally:
                for task in (pushing, *client.following.values()):
                    await _cancel(task)

    async def _push(self, client: _WebSocketClient, after: int) -> None:
        await self._replay(client, after)
        known = len(self.log)
        for message in self.messages:
            await client.send(message)
        events, self.events_after_messages = self.events_after_messages, []
        await self._append(events)
        while True:
            await self.wait_for_more(known, 60)
            events = [event async for event in self._events(known, lambda: 0)]
            known = len(self.log)
            for message in batches(events, self.batch_size, self.truncated):
                await client.send(message)
            await client.send({"type": "ping"})

    async def _push_steps(self, client: _WebSocketClient) -> None:
        """From the first one on, and `done` after the end."""
        known = 0
        while self.is_open or known < len(self.steps):
            for step in self.steps[known:]:
                for message in _pieces(step, self.piece):
                    await client.send(message | {"job_id": JOB_ID})
            known = len(self.steps)
            await self.wait_for_more(len(self.log) if self.is_open else 0, 60, known)
        await client.send(self.done())

    async def _push_all_jobs(self, client: _WebSocketClient, known: int) -> None:
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: len(self.appended) > known)  # noqa: B023 called at once
            events = [event for event in self.as_sent(self.appended[known:]) for _ in range(1 + self.repeats)]
            known = len(self.appended)
            for message in batches(events, self.batch_size, self.truncated):
                await client.send(message)

    async def _replay(self, client: _WebSocketClient, after: int) -> None:
        events = [event for event in self.as_sent(self.log[after:]) for _ in range(1 + self.repeats)]
        last = len(self.log)
        for message in batches(events, self.batch_size, self.truncated):
            await client.send(message)
        await client.send({"type": "subscribed", "job_id": JOB_ID, "sequence": last})

    async def _receive(self, client: _WebSocketClient) -> None:
        async for text in client.connection:
            message = json.loads(text)
            self.received.append(message)
            match message:
                case {"action": "ping"}:
                    await client.send({"type": "pong"})
                case {"action": "subscribe", "job_id": _, "after": after}:
                    await self._replay(client, after)
                case {"action": "follow", "kind": kind} if kind in KINDS:
                    push = self._push_all_jobs(client, len(self.appended))
                    client.following[kind] = asyncio.create_task(push)
                    await client.send({"type": "following", "kind": kind})
                case _:
                    problem = f"choose from {', '.join(KINDS)}"
                    await client.send({"type": "error", "code": "invalid_request", "message": problem})


def _pieces(step: Payload, size: int) -> Iterator[Payload]:
    if step["type"] != "token":
        yield step
        return
    for start in range(0, len(step["content"]), size):
        yield step | {"content": step["content"][start : start + size]}


async def _cancel(task: asyncio.Task[None] | None) -> None:
    if task:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionClosed):
            await task


class _CutTransport:
    """A transport that breaks without a close frame after so many bytes."""

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
class _HttpResponse:
    """`cut`: the number of bytes of the body after which the connection breaks, or None."""

    writer: asyncio.StreamWriter
    cut: int | None

    async def json(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        media_type = "application/json" if status < 400 else "application/problem+json"
        await self.send(status, {"Content-Type": media_type, **(headers or {})}, json.dumps(body).encode())

    async def send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        length = {"Content-Length": str(len(body))} if status not in (204, 304) else {}
        await self.begin(status, {**headers, **length})
        await self.write(body)

    async def begin(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers.items())]
        self.writer.write("\r\n".join([*lines, "Connection: close", "", ""]).encode())

    async def write(self, data: bytes) -> None:
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
class _WebSocketClient:
    connection: ServerConnection
    following: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def send(self, message: Payload) -> None:
        await self.connection.send(json.dumps(message))


def collect(
    service: StubService, iterate: Callable[[Any], Any], *, asynchronous: bool, count: int | None = None
) -> list[Any]:
    """What `iterate` yields with one of the clients: all items, or the first `count`."""
    if asynchronous:
        return asyncio.run(_collect_async(service, iterate, count))
    with Recado(service.url, KEY, timeout=5) as client:
        return list(islice(iterate(client), count))


async def _collect_async(
    service: StubService, iterate: Callable[[Any], AsyncGenerator[Any, None]], count: int | None
) -> list[Any]:
    items: list[Any] = []
    async with (
        AsyncRecado(service.url, KEY, timeout=5) as client,
        contextlib.aclosing(iterate(client)) as found,
    ):
        async for item in found:
            items.append(item)
            if len(items) == count:
                break
    return items


@contextlib.contextmanager
def running() -> Iterator[StubService]:
    """The service in a thread of its own."""
    service, ready, stop = StubService(), threading.Event(), asyncio.Event()

    async def main() -> None:
        service._loop = asyncio.get_running_loop()
        async with (
            await asyncio.start_server(service.serve_http, "127.0.0.1", 0) as http,
            serve(
                service.serve_websocket,
                "127.0.0.1",
                0,
                process_request=service.authorize_websocket,
                compression=None,
                ping_interval=None,
                close_timeout=0.1,
            ) as live,
        ):
            service.url = f"http://127.0.0.1:{_port(http)}/v1"
            service.live = f"ws://127.0.0.1:{_port(live)}/v1?token=t"
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield service
    finally:
        assert service._loop
        service._loop.call_soon_threadsafe(stop.set)
        thread.join(10)


def _port(server: Any) -> int:
    return int(next(iter(server.sockets)).getsockname()[1])
