"""Following a job to its end, by whatever way there is.

A `Cursor` knows what has been seen, so it does not matter how often a connection breaks or what is sent twice. A
*session* is one connection or one look. `Following.events` runs sessions until the job has ended, and takes the
next way when one does not work.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal, get_args
from urllib.parse import quote

from recado import _io, _live
from recado._calls import Calls, Timer, api_error, parsed, pause, retry_after
from recado._cursor import Cursor, Gap, Text, events_of
from recado._io import Answer, Request
from recado._live import JobLine, loads, payloads
from recado.cost import RETRYABLE, backoff
from recado.errors import ApiError, BadAnswer, ConnectionFailed, RecadoError
from recado.models import Delta, Job, JobEvent, JobStatus

Transport = Literal["auto", "websocket", "sse", "long_poll", "poll"]
WAYS: tuple[Transport, ...] = get_args(Transport)[1:]

HOLD_SECONDS = 25
SILENCE_SECONDS = 15.0
"""So much longer than it should be held, an answer may take."""

GAP_SECONDS = 1.0
"""A session that is over sooner and brought nothing has failed; looks that bring news are no closer than this."""

PATIENCE, PATIENCE_WITH_NEW = 8, 2
"""How often in a row a way may fail that has worked before or is the last, and one that never has."""


class NotHeld(RecadoError):
    """A long poll was answered at once, without news: this service, or something before it, holds nothing."""


@dataclass
class Following:
    """`wants_events`: False if only the end matters."""

    calls: Calls
    job: Job
    cursor: Cursor
    timer: Timer
    wants_events: bool = True
    transport: Transport = "auto"
    on_delta: Callable[[Delta], object] | None = None
    _intervals: Any = field(default_factory=backoff, init=False)
    _text: Text = field(default_factory=Text, init=False)
    _stale: bool = field(default=False, init=False)
    _is_held: bool = field(default=False, init=False)
    """Whether the session has come so far that nothing but news is missing, though it may end in an error."""

    async def events(self) -> AsyncGenerator[JobEvent, None]:
        """Every event after the cursor's, once and in order, until the job has ended."""
        error: RecadoError | None = None
        ways = self._ways()
        for way in ways:
            worked, failures = way == ways[-1], 0
            while failures < (PATIENCE if worked else PATIENCE_WITH_NEW) and not is_hopeless(error):
                news, began, error, self._is_held = self.cursor.news, self.calls.io.clock(), None, False
                try:
                    async with aclosing(self._session(way)) as session:
                        async for event in session:
                            yield event
                except (ConnectionFailed, ApiError, BadAnswer, Gap, NotHeld) as caught:
                    error = caught
                if self.cursor.ended:
                    return
                was_held = (error is None or self._is_held) and self.calls.io.clock() - began >= GAP_SECONDS
                if self.cursor.news > news or was_held:
                    worked, failures = True, 0  # it brought something, or was quietly held: the way works
                else:
                    failures += 1
                    error = error or ConnectionFailed(f"{way} brings nothing")
                    await self.timer.rest(pause(failures, error))
            failure, error = error, None
        raise failure or ConnectionFailed("there is no way to follow the job")

    def _ways(self) -> Sequence[Transport]:
        if self.transport == "websocket":
            _io.need_websockets()
        if self.transport != "auto":
            return (self.transport,)
        can_connect = _io.HAS_WEBSOCKETS and "live" in self.job.links
        return WAYS if can_connect else WAYS[1:]

    def _session(self, way: Transport) -> AsyncGenerator[JobEvent, None]:
        sessions: Mapping[str, Callable[[], AsyncGenerator[JobEvent, None]]] = {
            "websocket": self._websocket,
            "sse": self._sse,
            "long_poll": lambda: self._look(HOLD_SECONDS),
            "poll": lambda: self._look(0),
        }
        return sessions[way]()

    # ── looks ────────────────────────────────────────────────────────────────────────────────────────────

    async def _look(self, hold: int) -> AsyncGenerator[JobEvent, None]:
        """Ask for the status once, held until it changes or not; then wait for as long as the answer asks."""
        hold = int(self.timer.left(hold)) if hold else 0
        began, answer = self.calls.io.clock(), await self._status(hold)
        if answer.status != 304:
            status = JobStatus.of(parsed(answer))
            if self.wants_events:
                async with aclosing(self._missed(status.sequence)) as missed:
                    async for event in missed:
                        yield event
            # Only now: what is known by its ETag is not asked for again.
            self.cursor.etag, self.cursor.news = answer.headers.get("etag"), self.cursor.news + 1
            self._note_end(status)
        if not self.cursor.ended:
            await self._rest_after(answer, hold=hold, took=self.calls.io.clock() - began)

    async def _status(self, hold: int) -> Answer:
        request = self.calls.request(
            "GET",
            f"/jobs/{quote(self.job.job_id)}/status",
            query={"wait": hold or None},
            headers={"If-None-Match": self.cursor.etag},
            timeout=self.timer.left(hold + self.calls.timeout),
        )
        return await self.calls.call(request, retries=0)

    async def _rest_after(self, answer: Answer, *, hold: int, took: float) -> None:
        if not hold:
            asked = retry_after(answer)
            await self.timer.rest(next(self._intervals) if asked is None else max(asked, GAP_SECONDS))
        elif took < GAP_SECONDS:
            if answer.status == 304 and hold > GAP_SECONDS:
                raise NotHeld("a long poll was answered at once")
            await self.timer.rest(GAP_SECONDS - took)

    async def _missed(self, until: int) -> AsyncGenerator[JobEvent, None]:
        while self.cursor.sequence < until:
            left = self.timer.left(self.calls.timeout)
            request = self.calls.log(self.job.job_id, self.cursor.sequence, timeout=left)
            page = parsed(await self.calls.call(request, retries=0))
            known = self.cursor.sequence
            for payload in events_of(page):
                if event := self.cursor.take(payload):
                    yield event
            if self.cursor.sequence == known:
                raise Gap(until)

    def _note_end(self, status: JobStatus) -> None:
        if status.is_final and (not self.wants_events or self.cursor.sequence >= status.sequence):
            self.cursor.ended = True

    async def _is_over(self) -> bool:
        """Whether the event that was seen last is the last one there is. If it has no status, the job is asked."""
        if not self.cursor.status and not self.cursor.ended:
            self.cursor.etag = None
            self._note_end(JobStatus.of(parsed(await self._status(0))))
        return self.cursor.ended

    # ── server-sent events ───────────────────────────────────────────────────────────────────────────────

    async def _sse(self) -> AsyncGenerator[JobEvent, None]:
        async with self.calls.io.stream(self._sse_request()) as stream:
            if stream.answer.status == 204:  # what was seen last is the last there is
                self.cursor.ended = True
                return
            if stream.answer.status != 200:
                raise api_error(stream.answer)
            async with aclosing(stream.events()) as events:
                async for sent in events:
                    self.timer.left(0)
                    if sent.event == "end":
                        self.cursor.ended = True
                        return
                    event = self._take_text(sent.data)
                    if event and self.wants_events:
                        yield event
                    if self.cursor.ended:
                        return

    def _sse_request(self) -> Request:
        return self.calls.request(
            "GET",
            f"/jobs/{quote(self.job.job_id)}/events",
            headers={"Accept": "text/event-stream", "Last-Event-ID": str(self.cursor.sequence or "") or None},
            timeout=self.timer.left(HOLD_SECONDS + SILENCE_SECONDS),
        )

    def _take_text(self, data: str) -> JobEvent | None:
        return self.cursor.take(loads(data)) if data else None

    # ── WebSocket ────────────────────────────────────────────────────────────────────────────────────────

    async def _websocket(self) -> AsyncGenerator[JobEvent, None]:
        async with self.calls.io.socket(await self._live_url()) as socket:
            line = JobLine(socket, self.cursor, self._text)
            while True:
                message, known = await line.receive(self.timer.left(_live.PING_SECONDS)), self.cursor.news
                if message is None:
                    continue
                for payload in payloads(message):
                    async with aclosing(self._taken(line, payload)) as events:
                        async for event in events:
                            yield event
                delta = await line.hear(message)
                if delta and self.on_delta:
                    self.on_delta(delta)
                self._is_held = self._is_held or line.is_caught_up(message)
                if (self.cursor.news > known or line.is_caught_up(message)) and await self._is_over():
                    return

    async def _taken(self, line: JobLine, payload: Any) -> AsyncGenerator[JobEvent, None]:
        """The event if it is new; one that was too large for a message is fetched."""
        sent = JobEvent.of(payload)
        if not self.wants_events:
            await line.take(payload)
        elif sent.get("truncated"):
            async with aclosing(self._missed(sent.sequence)) as missed:
                async for event in missed:
                    yield event
        elif taken := await line.take(payload):
            yield taken

    async def _live_url(self) -> str:
        """The link, made anew if it has not worked: links expire."""
        if self._stale:
            request = self.calls.request("GET", f"/jobs/{quote(self.job.job_id)}")
            self.job = Job.of(parsed(await self.calls.call(request)))
        self._stale = True
        link = self.job.links.get("live")
        if link is None:
            raise ConnectionFailed("this service has no WebSockets")
        return f"{link}{'&' if '?' in link else '?'}after={self.cursor.sequence}"


def is_hopeless(error: RecadoError | None) -> bool:
    """Whether asking the same way again is no use."""
    return isinstance(error, NotHeld) or (isinstance(error, ApiError) and error.status not in RETRYABLE)
