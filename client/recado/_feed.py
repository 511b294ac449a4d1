"""Following all of an owner's jobs of a kind, over one WebSocket that is made anew whenever it breaks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from recado import _following, _io, _live
from recado._calls import Calls, Timer, parsed, pause
from recado._cursor import events_of
from recado._following import PATIENCE, is_hopeless
from recado._live import Line, payloads
from recado.errors import ApiError, BadAnswer, ConnectionFailed, InvalidRequest, NotFound, RecadoError
from recado.models import FINAL, JobEvent, JobStatus, LiveTicket

SEEN_JOBS = 10_000
"""How many jobs are remembered; the one that has been quiet for longest is forgotten first."""


@dataclass
class Seen:
    """The number of the last event that was seen of each job, and the job's status after it, empty if unknown."""

    limit: int = SEEN_JOBS
    _last: OrderedDict[str, tuple[int, str]] = field(default_factory=OrderedDict)

    def sequence(self, job_id: str) -> int:
        return self._last[job_id][0] if job_id in self._last else 0

    def lacks_status(self, job_id: str) -> bool:
        """Whether the event that was seen last did not say how the job stands."""
        return job_id in self._last and not self._last[job_id][1]

    def meet(self, event: JobEvent) -> None:
        """Remember a job that is new, though the event has not been told yet: it is caught up if that fails."""
        if event.job_id not in self._last:
            self._note(event.job_id, event.sequence - 1, "")

    def take(self, event: JobEvent) -> bool:
        """Whether it is new: after all that was seen of its job."""
        if event.job_id in self._last and event.sequence <= self.sequence(event.job_id):
            return False
        self._note(event.job_id, event.sequence, event.status)
        return True

    def end(self, job: JobStatus) -> None:
        """Remember that a job has ended, if all of its events have been seen."""
        if job.is_final and job.sequence <= self.sequence(job.job_id):
            self._last[job.job_id] = (job.sequence, job.status)

    def forget(self, job_id: str) -> None:
        self._last.pop(job_id, None)

    def open_jobs(self) -> Sequence[str]:
        """Those of which more may have happened."""
        return [job_id for job_id, (_, status) in self._last.items() if status not in FINAL]

    def _note(self, job_id: str, sequence: int, status: str) -> None:
        self._last[job_id] = (sequence, status)
        self._last.move_to_end(job_id)
        if len(self._last) > self.limit:
            self._last.popitem(last=False)


@dataclass
class Feed:
    """`kind`: of jobs. `on_connected` is called whenever events flow, the first time and after each break."""

    calls: Calls
    kind: str
    timer: Timer
    on_connected: Callable[[], object] | None = None
    seen: Seen = field(default_factory=Seen)
    _connections: int = field(default=0, init=False)

    async def events(self) -> AsyncGenerator[JobEvent, None]:
        """Every event from now on, without an end. Raises what asking again does not help against."""
        _io.need_websockets()
        failures = 0
        while True:
            known, began = self._connections, self.calls.io.clock()
            try:
                async with aclosing(self._session()) as session:
                    async for event in session:
                        yield event
            except (ConnectionFailed, ApiError, BadAnswer) as error:
                if self._connections > known and self.calls.io.clock() - began >= _following.GAP_SECONDS:
                    failures = 0
                failures += 1
                if is_hopeless(error) or (not self._connections and failures == PATIENCE):
                    raise
                await self.timer.rest(pause(failures, error))

    async def _session(self) -> AsyncGenerator[JobEvent, None]:
        """One connection. What happened before it is asked for after it stands, so nothing falls in between."""
        request = self.calls.request("POST", "/live/tickets", timeout=self.timer.left(self.calls.timeout))
        ticket = LiveTicket.of(parsed(await self.calls.call(request, retries=0)))
        async with self.calls.io.socket(ticket.url) as socket:
            line = Line(socket)
            await line.say("follow", kind=self.kind)
            early = await self._until_following(line)
            self._connections += 1
            if self.on_connected:
                self.on_connected()
            async with aclosing(self._told(line, early)) as events:
                async for event in events:
                    yield event

    async def _until_following(self, line: Line) -> list[JobEvent]:
        """Wait for the answer; returns the events that came before it."""
        early: list[JobEvent] = []
        while True:
            message = await line.receive(self.timer.left(_live.PING_SECONDS))
            if message and message.get("type") == "following":
                return early
            _raise_error(message)
            early += self._met(message)

    async def _told(self, line: Line, early: Sequence[JobEvent]) -> AsyncGenerator[JobEvent, None]:
        for job_id in self.seen.open_jobs():
            for event in await self._log(job_id):
                if self.seen.take(event):
                    yield event
            if self.seen.lacks_status(job_id):
                await self._ask_status(job_id)
        sent = early
        while True:
            for each in sent:
                for event in await self._whole(each):
                    if self.seen.take(event):
                        yield event
            message = await line.receive(self.timer.left(_live.PING_SECONDS))
            _raise_error(message)
            sent = self._met(message)

    def _met(self, message: Mapping[str, Any] | None) -> list[JobEvent]:
        events = [JobEvent.of(payload) for payload in payloads(message)]
        for event in events:
            self.seen.meet(event)
        return events

    async def _whole(self, sent: JobEvent) -> Sequence[JobEvent]:
        """The event; with its log where events are missing before it, or something was cut away from it."""
        known = self.seen.sequence(sent.job_id)
        if sent.sequence > known + 1 or (sent.sequence == known + 1 and sent.get("truncated")):
            return [*await self._log(sent.job_id), sent]
        return [sent]

    async def _log(self, job_id: str) -> Sequence[JobEvent]:
        """What has happened to it since it was last heard of. A job that is no more has no log."""
        left = self.timer.left(self.calls.timeout)
        request = self.calls.log(job_id, self.seen.sequence(job_id), timeout=left)
        with self._forgetting(job_id):
            page = parsed(await self.calls.call(request, retries=0))
            return [JobEvent.of(payload) for payload in events_of(page)]
        return []

    async def _ask_status(self, job_id: str) -> None:
        """Whether a job has ended whose events do not say it, so that it need not be asked about again."""
        path, left = f"/jobs/{quote(job_id, safe='')}/status", self.timer.left(self.calls.timeout)
        request = self.calls.request("GET", path, timeout=left)
        with self._forgetting(job_id):
            self.seen.end(JobStatus.of(parsed(await self.calls.call(request, retries=0))))

    @contextmanager
    def _forgetting(self, job_id: str) -> Iterator[None]:
        """A job that is no more is forgotten, and that is no error."""
        try:
            yield
        except NotFound:
            self.seen.forget(job_id)


def _raise_error(message: Mapping[str, Any] | None) -> None:
    """A request that is wrong stays wrong; anything else may be better on the next connection."""
    if not message or message.get("type") != "error":
        return
    code, detail = str(message.get("code")), str(message.get("message"))
    error: RecadoError = ConnectionFailed(f"{code}: {detail}")
    if code == "invalid_request":
        error = InvalidRequest(status=422, type=code, detail=detail)
    raise error
