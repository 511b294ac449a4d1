"""Watch a job until it has ended, over the best transport that works.

A cursor knows what was seen, so connections may break and events may be repeated. A *session* is one connection or
one poll. `Watcher.items` runs sessions until the job has ended, and falls back to the next transport if one does
not work.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, get_args
from urllib.parse import quote

from recado import _io, _websocket
from recado._deadline import Deadline
from recado._event_cursor import EventCursor, EventGap
from recado._http import HttpApi, api_error, response_json, retry_after
from recado._io import Request, Response
from recado._messages import events_in_message, is_of_steps, parse_json
from recado._pagination import items
from recado._retry import is_permanent, retry_delay
from recado._streamed_text import StreamedText
from recado._websocket import JobWebSocketSession
from recado.errors import ApiError, BadAnswer, ConnectionFailed, RecadoError
from recado.models import Delta, Job, JobEvent, JobStatus
from recado.polling import backoff

if TYPE_CHECKING:
    from httpx2 import ServerSentEvent

T = TypeVar("T")
Transport = Literal["auto", "websocket", "sse", "long_poll", "poll"]
TRANSPORTS: tuple[Transport, ...] = get_args(Transport)[1:]
"""The best first."""

HOLD_SECONDS = 25
"""The service holds long polls and streams open for so long."""
HOLD_MARGIN_SECONDS = 15.0
"""A held response may arrive so much later than that."""

MIN_SESSION_SECONDS = 1.0
"""A session that ends earlier without an update has failed. Polls are at least so far apart."""

MAX_FAILURES, MAX_FAILURES_OF_UNTRIED = 8, 2
"""A transport is given up after so many failures in a row: one that has worked or is the last, and any other."""


class LongPollNotHeld(RecadoError):
    """A long poll returned at once without an update: the service or a proxy does not hold requests open."""


@dataclass
class Watcher(Generic[T]):
    """What a job tells, as items of one type, over the best transport that works."""

    TRANSPORTS: ClassVar[Sequence[Transport]] = TRANSPORTS

    api: HttpApi
    job: Job
    cursor: Any
    """An object with `updates`, `ended`, and what the sessions of a subclass need."""
    deadline: Deadline
    transport: Transport = "auto"
    _live_link_is_used: bool = field(default=False, init=False)
    _is_subscribed: bool = field(default=False, init=False)
    """Whether the session waits for new items only, so that a later error does not mean that it never worked."""
    _error: RecadoError | None = field(default=None, init=False)
    """Why the last session failed, None if it did not."""

    async def items(self) -> AsyncGenerator[T, None]:
        """Every item once and in order, until the job has ended."""
        transports = self._transports()
        for transport in transports:
            async with aclosing(self._sessions(transport, is_last=transport == transports[-1])) as found:
                async for item in found:
                    yield item
            if self.cursor.ended:
                return
        raise self._error or ConnectionFailed("The job cannot be watched.")

    def _session(self, transport: Transport) -> AsyncGenerator[T, None]:
        raise NotImplementedError

    def _transports(self) -> Sequence[Transport]:
        if self.transport == "websocket":
            _io.require_websockets()
        if self.transport != "auto":
            return (self.transport,)
        has_websocket = _io.HAS_WEBSOCKETS and "live" in self.job.links
        return self.TRANSPORTS if has_websocket else self.TRANSPORTS[1:]

    async def _sessions(self, transport: Transport, *, is_last: bool) -> AsyncGenerator[T, None]:
        """Sessions until the job has ended or the transport is given up; `_error` says why."""
        failures, max_failures, self._error = 0, MAX_FAILURES if is_last else MAX_FAILURES_OF_UNTRIED, None
        while failures < max_failures and not self._is_refused():
            updates, began = self.cursor.updates, self.api.io.clock()
            self._error, self._is_subscribed = None, False
            try:
                async with aclosing(self._session(transport)) as session:
                    async for item in session:
                        yield item
            except (ConnectionFailed, ApiError, BadAnswer, EventGap, LongPollNotHeld) as error:
                self._error = error
            if self.cursor.ended:
                return
            if self._has_worked(updates, began):
                failures, max_failures = 0, MAX_FAILURES
            else:
                failures += 1
                self._error = self._error or ConnectionFailed(f"The transport {transport} sends nothing.")
                await self.deadline.sleep(retry_delay(failures, self._error))

    def _is_refused(self) -> bool:
        return is_permanent(self._error) or isinstance(self._error, LongPollNotHeld)

    def _has_worked(self, updates: int, began: float) -> bool:
        """Whether the session brought an update, or was held open without one."""
        is_healthy = self._error is None or self._is_subscribed
        was_held = is_healthy and self.api.io.clock() - began >= MIN_SESSION_SECONDS
        return self.cursor.updates > updates or was_held

    async def _sse_messages(self, last_event_id: str) -> AsyncGenerator[ServerSentEvent, None]:
        """The messages of one connection. If there will be no more, the cursor has ended."""
        async with self.api.io.sse(self._sse_request(last_event_id)) as sse:
            if sse.response.status == 204:  # the client has everything
                self.cursor.ended = True
                return
            if sse.response.status != 200:
                raise api_error(sse.response)
            async with aclosing(sse.events()) as messages:
                async for message in messages:
                    self.deadline.check()
                    if message.event == "end":
                        self.cursor.ended = True
                        return
                    if message.data:
                        yield message
            seconds = retry_after(sse.response)
        if seconds:  # the service did not hold the connection beyond its limits
            await self.deadline.sleep(seconds)

    def _sse_request(self, last_event_id: str) -> Request:
        return self.api.build_request(
            "GET",
            f"/jobs/{quote(self.job.job_id)}/events",
            headers={"Accept": "text/event-stream", "Last-Event-ID": last_event_id or None},
            timeout=self.deadline.limit(HOLD_SECONDS + HOLD_MARGIN_SECONDS),
        )

    async def _live_link(self) -> str:
        """The job's `live` link. After its first use the job is fetched again, because links expire."""
        if self._live_link_is_used:
            request = self.api.build_request("GET", f"/jobs/{quote(self.job.job_id)}")
            self.job = Job.of(response_json(await self.api.send(request)), job_id=self.job.job_id)
        self._live_link_is_used = True
        link = self.job.links.get("live")
        if link is None:
            raise ConnectionFailed("The service has no WebSockets.")
        return link


@dataclass
class JobWatcher(Watcher[JobEvent | Delta]):
    """`wants_events`: False if the caller only waits for the end. `on_delta`: called with new text of the job."""

    cursor: EventCursor
    wants_events: bool = True
    on_delta: Callable[[Delta], object] | None = None
    _poll_intervals: Any = field(default_factory=backoff, init=False)
    _text: StreamedText = field(default_factory=StreamedText, init=False)

    async def events(self) -> AsyncGenerator[JobEvent, None]:
        """Every event after the cursor's, once and in order, until the job has ended."""
        async with aclosing(self.items()) as found:
            async for item in found:
                if isinstance(item, JobEvent):
                    yield item
                elif self.on_delta:  # not within the session: an error of the caller is no failed connection
                    self.on_delta(item)

    def _session(self, transport: Transport) -> AsyncGenerator[JobEvent | Delta, None]:
        sessions: Mapping[str, Callable[[], AsyncGenerator[JobEvent | Delta, None]]] = {
            "websocket": self._websocket,
            "sse": self._sse,
            "long_poll": lambda: self._poll(HOLD_SECONDS),
            "poll": lambda: self._poll(0),
        }
        return sessions[transport]()

    # ── polls ────────────────────────────────────────────────────────────────────────────────────────────

    async def _poll(self, hold: int) -> AsyncGenerator[JobEvent, None]:
        """Request the status once, held for up to `hold` seconds; then sleep until the next poll."""
        hold = int(self.deadline.limit(hold)) if hold else 0
        began, response = self.api.io.clock(), await self._fetch_status(hold)
        if response.status != 304:
            status = JobStatus.of(response_json(response), job_id=self.job.job_id)
            if self.wants_events:
                async with aclosing(self._fetch_events(status.sequence)) as events:
                    async for event in events:
                        yield event
            # Not before the events were fetched: with its ETag the same status is not sent again.
            self.cursor.etag, self.cursor.updates = response.headers.get("etag"), self.cursor.updates + 1
            self._note_end(status)
        if not self.cursor.ended:
            await self._sleep_after(response, hold=hold, took=self.api.io.clock() - began)

    async def _fetch_status(self, hold: int) -> Response:
        request = self.api.build_request(
            "GET",
            f"/jobs/{quote(self.job.job_id)}/status",
            query={"wait": hold or None},
            headers={"If-None-Match": self.cursor.etag},
            timeout=self.deadline.limit(hold + self.api.timeout),
        )
        return await self.api.send(request, retries=0)

    async def _sleep_after(self, response: Response, *, hold: int, took: float) -> None:
        """Sleep for as long as Retry-After says. After a long poll, sleep only if it was too short.

        The service does not hold a request beyond its limits. Then this polls until it does.
        """
        seconds = retry_after(response)
        if not hold:
            interval = next(self._poll_intervals) if seconds is None else max(seconds, MIN_SESSION_SECONDS)
            await self.deadline.sleep(interval)
        elif took < MIN_SESSION_SECONDS:
            was_refused = response.status == 304 and hold > MIN_SESSION_SECONDS
            if was_refused and not seconds:
                raise LongPollNotHeld("The service does not hold long polls open.")
            await self.deadline.sleep(seconds if was_refused and seconds else MIN_SESSION_SECONDS - took)

    async def _fetch_events(self, last: int) -> AsyncGenerator[JobEvent, None]:
        """The events after the cursor's, up to number `last`. Raises EventGap if the log does not have them."""
        while self.cursor.sequence < last:
            timeout = self.deadline.limit(self.api.timeout)
            request = self.api.events_request(self.job.job_id, self.cursor.sequence, timeout=timeout)
            page = response_json(await self.api.send(request, retries=0))
            before = self.cursor.sequence
            for event in items(page, "events", JobEvent, job_id=self.job.job_id):
                if self.cursor.accept(event.raw):
                    yield event
            if self.cursor.sequence == before:
                raise EventGap(last)

    def _note_end(self, status: JobStatus) -> None:
        if status.is_final and (not self.wants_events or self.cursor.sequence >= status.sequence):
            self.cursor.ended = True

    async def _has_ended(self) -> bool:
        """Whether the last event was the final one. If the event has no status, the job's status is requested."""
        if not self.cursor.status and not self.cursor.ended:
            self.cursor.etag = None
            status = response_json(await self._fetch_status(0))
            self._note_end(JobStatus.of(status, job_id=self.job.job_id))
        return self.cursor.ended

    # ── server-sent events ───────────────────────────────────────────────────────────────────────────────

    async def _sse(self) -> AsyncGenerator[JobEvent, None]:
        async with aclosing(self._sse_messages(self.cursor.last_event_id)) as messages:
            async for message in messages:
                payload = parse_json(message.data)
                if is_of_steps(payload):
                    self.cursor.note_id(message.id)
                    continue
                event = JobEvent.of(payload, job_id=self.job.job_id)
                if self.cursor.accept(event.raw) and self.wants_events:
                    yield event
                if self.cursor.ended:
                    return

    # ── WebSocket ────────────────────────────────────────────────────────────────────────────────────────

    async def _websocket(self) -> AsyncGenerator[JobEvent | Delta, None]:
        link = await self._live_link()
        url = f"{link}{'&' if '?' in link else '?'}after={self.cursor.sequence}"
        async with self.api.io.socket(url) as socket:
            session = JobWebSocketSession(socket, self.cursor, self._text)
            while True:
                updates = self.cursor.updates
                message = await session.receive(self.deadline.limit(_websocket.PING_SECONDS))
                if message is None:
                    continue
                for payload in events_in_message(message):
                    async with aclosing(self._accept_pushed(session, payload)) as events:
                        async for event in events:
                            yield event
                if delta := await session.handle(message):
                    yield delta
                is_caught_up = session.is_caught_up(message)
                self._is_subscribed = self._is_subscribed or is_caught_up
                if (self.cursor.updates > updates or is_caught_up) and await self._has_ended():
                    return

    async def _accept_pushed(self, session: JobWebSocketSession, payload: Any) -> AsyncGenerator[JobEvent, None]:
        """The event if it is new. An event that is truncated is fetched from the log."""
        event = JobEvent.of(payload)
        if not self.wants_events:
            await session.accept(payload)
        elif event.get("truncated"):
            async with aclosing(self._fetch_events(event.sequence)) as events:
                async for fetched in events:
                    yield fetched
        elif accepted := await session.accept(payload):
            yield accepted
