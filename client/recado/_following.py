"""Following a job to its end, by whatever way there is.

A `Cursor` knows what has been seen, so it does not matter how often a connection breaks or what is sent twice. A
*session* is one connection or one look. `Following.events` runs sessions until the job has ended, and takes the
next way when one does not work.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal, get_args
from urllib.parse import quote

from recado._calls import Calls, api_error, parsed, pause, retry_after
from recado._io import HAS_WEBSOCKETS, Answer, Request, Socket
from recado.cost import RETRYABLE, backoff
from recado.errors import ApiError, BadAnswer, ConnectionFailed, RecadoError, TimeUp
from recado.models import Delta, Job, JobEvent, JobStatus

Transport = Literal["auto", "websocket", "sse", "long_poll", "poll"]
WAYS: tuple[Transport, ...] = get_args(Transport)[1:]

HOLD_SECONDS = 25
SILENCE_SECONDS = 15.0
"""So much longer than it should be held, an answer may take."""

PING_SECONDS, SILENCES_PER_REPLAY = 30.0, 10
"""What a ping is sent after; one silence in ten asks for a replay instead, in case that something was lost."""

GAP_SECONDS = 1.0
"""A session that is over sooner and brought nothing has failed; looks that bring news are no closer than this."""

PATIENCE, PATIENCE_WITH_NEW = 8, 2
"""How often in a row a way may fail that has worked before or is the last, and one that never has."""

NOT_FINAL = frozenset(
    {"uploaded", "requested", "started", "chunked", "embedded", "cleaned", "trained", "predicted", "retried"}
    | {"progressed"}
)
"""Events after which a job goes on for sure. After any other, the status is asked whether it was the last."""


class Gap(RecadoError):
    """Events are missing before the one of this `sequence`."""

    def __init__(self, sequence: int) -> None:
        super().__init__(f"events are missing before event {sequence}")
        self.sequence = sequence


class NotHeld(RecadoError):
    """A long poll was answered at once, without news: this service, or something before it, holds nothing."""


@dataclass
class Cursor:
    """What has been seen of a job. `news` counts whatever was not known before."""

    job_id: str
    sequence: int = 0
    verb: str = ""
    etag: str | None = None
    news: int = 0
    ended: bool = False

    def take(self, payload: Any) -> JobEvent | None:
        """The event if it is the next one, None for a repetition. Raises Gap if one is missing before it."""
        event = JobEvent.of(payload)
        if event.job_id != self.job_id or event.sequence <= self.sequence:
            return None
        if event.sequence != self.sequence + 1:
            raise Gap(event.sequence)
        self.sequence, self.verb = event.sequence, event.verb
        self.news += 1
        return event


@dataclass
class Following:
    """`wants_events`: False if only the end matters. `deadline`: by the clock of `calls.io`, None for never."""

    calls: Calls
    job: Job
    cursor: Cursor
    wants_events: bool = True
    deadline: float | None = None
    transport: Transport = "auto"
    on_delta: Callable[[Delta], object] | None = None
    _intervals: Any = field(default_factory=backoff)

    async def events(self) -> AsyncGenerator[JobEvent, None]:
        """Every event after the cursor's, once and in order, until the job has ended."""
        error: RecadoError | None = None
        ways = self._ways()
        for way in ways:
            worked, failures = way == ways[-1], 0
            while failures < (PATIENCE if worked else PATIENCE_WITH_NEW) and not is_hopeless(error):
                news, began, error = self.cursor.news, self._clock(), None
                try:
                    async with aclosing(self._session(way)) as session:
                        async for event in session:
                            yield event
                except (ConnectionFailed, ApiError, BadAnswer, Gap, NotHeld) as caught:
                    error = caught
                if self.cursor.ended:
                    return
                if self.cursor.news > news or (error is None and self._clock() - began >= GAP_SECONDS):
                    worked, failures = True, 0  # it brought something, or was quietly held: the way works
                else:
                    failures += 1
                    error = error or ConnectionFailed(f"{way} brings nothing")
                    await self._rest(pause(failures, error))
            failure, error = error, None
        raise failure or ConnectionFailed("there is no way to follow the job")

    def _ways(self) -> Sequence[Transport]:
        if self.transport != "auto":
            return (self.transport,)
        can_connect = HAS_WEBSOCKETS and "live" in self.job.links
        return WAYS if can_connect else WAYS[1:]

    def _session(self, way: Transport) -> AsyncGenerator[JobEvent, None]:
        sessions: Mapping[str, Callable[[], AsyncGenerator[JobEvent, None]]] = {
            "websocket": self._websocket,
            "sse": self._sse,
            "long_poll": lambda: self._look(HOLD_SECONDS),
            "poll": lambda: self._look(0),
        }
        return sessions[way]()

    # ── time ─────────────────────────────────────────────────────────────────────────────────────────────

    def _clock(self) -> float:
        return self.calls.io.clock()

    def _left(self, seconds: float) -> float:
        """So long, but not past the deadline. Raises TimeUp after it."""
        if self.deadline is None:
            return seconds
        left = self.deadline - self._clock()
        if left <= 0:
            raise TimeUp(f"{self.job.job_id} has not ended in time; it goes on")
        return min(seconds, left)

    async def _rest(self, seconds: float) -> None:
        await self.calls.io.sleep(self._left(seconds))

    # ── looks ────────────────────────────────────────────────────────────────────────────────────────────

    async def _look(self, hold: int) -> AsyncGenerator[JobEvent, None]:
        """Ask for the status once, held until it changes or not; then wait for as long as the answer asks."""
        hold = int(self._left(hold)) if hold else 0
        began, answer = self._clock(), await self._status(hold)
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
            await self._rest_after(answer, hold=hold, took=self._clock() - began)

    async def _status(self, hold: int) -> Answer:
        request = self.calls.request(
            "GET",
            f"/jobs/{quote(self.job.job_id)}/status",
            query={"wait": hold or None},
            headers={"If-None-Match": self.cursor.etag},
            timeout=self._left(hold + self.calls.timeout),
        )
        return await self.calls.call(request, retries=0)

    async def _rest_after(self, answer: Answer, *, hold: int, took: float) -> None:
        if not hold:
            asked = retry_after(answer)
            await self._rest(next(self._intervals) if asked is None else max(asked, GAP_SECONDS))
        elif took < GAP_SECONDS:
            if answer.status == 304 and hold > GAP_SECONDS:
                raise NotHeld("a long poll was answered at once")
            await self._rest(GAP_SECONDS - took)

    async def _missed(self, until: int) -> AsyncGenerator[JobEvent, None]:
        while self.cursor.sequence < until:
            path, query = f"/jobs/{quote(self.job.job_id)}/events", {"after": self.cursor.sequence}
            request = self.calls.request("GET", path, query=query, timeout=self._left(self.calls.timeout))
            page = parsed(await self.calls.call(request, retries=0))
            known = self.cursor.sequence
            for payload in _events(page):
                if event := self.cursor.take(payload):
                    yield event
            if self.cursor.sequence == known:
                raise Gap(until)

    def _note_end(self, status: JobStatus) -> None:
        self.cursor.ended = status.is_final and (not self.wants_events or self.cursor.sequence >= status.sequence)

    async def _is_over(self) -> bool:
        """Whether the last event that was seen is the last one there is."""
        if self.cursor.verb in NOT_FINAL:
            return False
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
                    self._left(0)
                    if sent.event == "end":
                        self.cursor.ended = True
                        return
                    event = self._take_text(sent.data)
                    if event and self.wants_events:
                        yield event

    def _sse_request(self) -> Request:
        return self.calls.request(
            "GET",
            f"/jobs/{quote(self.job.job_id)}/events",
            headers={"Accept": "text/event-stream", "Last-Event-ID": str(self.cursor.sequence or "") or None},
            timeout=self._left(HOLD_SECONDS + SILENCE_SECONDS),
        )

    def _take_text(self, data: str) -> JobEvent | None:
        return self.cursor.take(_loads(data)) if data else None

    # ── WebSocket ────────────────────────────────────────────────────────────────────────────────────────

    async def _websocket(self) -> AsyncGenerator[JobEvent, None]:
        async with self.calls.io.socket(await self._live_url()) as socket:
            line = _Line(socket, self.cursor)
            while True:
                message = await line.receive(self._left(PING_SECONDS))
                if message is None:
                    continue
                self._hear(message)
                event = await line.take(message)
                if event and self.wants_events:
                    yield event
                if (event or line.is_caught_up(message)) and await self._is_over():
                    return

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

    _stale: bool = field(default=False, init=False)

    def _hear(self, message: Mapping[str, Any]) -> None:
        if self.on_delta and message.get("type") in ("delta", "snapshot"):
            self.on_delta(Delta.of({**message, "is_snapshot": message["type"] == "snapshot"}))


@dataclass
class _Line:
    """One WebSocket: replays are asked for where an event is missing, pings where nothing is heard."""

    socket: Socket
    cursor: Cursor
    _silences: int = 0
    _unanswered: bool = False
    _highest: int = 0
    _asked_at: int | None = -1
    """How much was known when the replay began that is under way. The link itself asks for the first one."""

    async def receive(self, seconds: float) -> Mapping[str, Any] | None:
        """The next message, or None after a silence, which a ping has been sent into."""
        text = await self.socket.receive(seconds)
        if text is not None:
            self._unanswered = False
            return _mapping(_loads(text))
        if self._unanswered:
            raise ConnectionFailed("the WebSocket is silent")
        self._unanswered = True
        self._silences += 1
        if self._silences % SILENCES_PER_REPLAY:
            await self._say({"action": "ping"})
        else:
            await self._ask()
        return None

    async def take(self, message: Mapping[str, Any]) -> JobEvent | None:
        match message.get("type"):
            case "event":
                return await self._take(message.get("event"))
            case "subscribed" if self._is_ours(message):
                await self._end_replay(int(message.get("sequence", 0)))
            case "error" if self._is_ours(message):
                raise ConnectionFailed(f"{message.get('code')}: {message.get('message')}")
        return None

    def is_caught_up(self, message: Mapping[str, Any]) -> bool:
        return message.get("type") == "subscribed" and self._asked_at is None

    async def _take(self, payload: Any) -> JobEvent | None:
        try:
            return self.cursor.take(payload)
        except Gap as gap:
            self._highest = max(self._highest, gap.sequence)
            if self._asked_at is None:
                await self._ask()
            return None

    async def _end_replay(self, sequence: int) -> None:
        self._highest = max(self._highest, sequence)
        if self._highest <= self.cursor.sequence:
            self._asked_at = None
        elif self._asked_at == self.cursor.news:
            raise Gap(self._highest)
        else:
            await self._ask()

    async def _ask(self) -> None:
        self._asked_at = self.cursor.news
        after = self.cursor.sequence
        await self._say({"action": "subscribe", "job_id": self.cursor.job_id, "after": after})

    def _is_ours(self, message: Mapping[str, Any]) -> bool:
        return bool(message.get("job_id", self.cursor.job_id) == self.cursor.job_id)

    async def _say(self, message: Mapping[str, Any]) -> None:
        await self.socket.send(json.dumps(message))


def is_hopeless(error: RecadoError | None) -> bool:
    """Whether asking the same way again is no use."""
    return isinstance(error, NotHeld) or (isinstance(error, ApiError) and error.status not in RETRYABLE)


def _events(page: Any) -> Sequence[Any]:
    events = _mapping(page).get("events")
    if not isinstance(events, list):
        raise BadAnswer("a log without events")
    return events


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise BadAnswer("a message that is no JSON") from None


def _mapping(data: Any) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise BadAnswer("a message that is no object")
    return data
