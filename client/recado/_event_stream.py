"""The events of all jobs of a kind, over one WebSocket that is reopened whenever it breaks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from recado import _io, _watcher, _websocket
from recado._deadline import Deadline
from recado._http import HttpApi, response_json
from recado._messages import events_in_message
from recado._pagination import items
from recado._retry import is_permanent, retry_delay
from recado._watcher import MAX_FAILURES
from recado._websocket import WebSocketSession
from recado.errors import ApiError, BadAnswer, ConnectionFailed, InvalidRequest, NotFound, RecadoError
from recado.models import FINAL, JobEvent, JobStatus, LiveTicket

MAX_JOBS = 10_000
"""So many jobs are remembered; the one without events for longest is forgotten first."""


@dataclass
class SeenEvents:
    """The number of the last event that was seen of each job, and the job's status after it, empty if unknown."""

    limit: int = MAX_JOBS
    _last: OrderedDict[str, tuple[int, str]] = field(default_factory=OrderedDict)

    def sequence(self, job_id: str) -> int:
        return self._last[job_id][0] if job_id in self._last else 0

    def lacks_status(self, job_id: str) -> bool:
        """Whether the last event of the job had no status."""
        return job_id in self._last and not self._last[job_id][1]

    def add_job(self, event: JobEvent) -> None:
        """Remember a new job before its event is yielded: if that fails, the event is fetched later."""
        if event.job_id not in self._last:
            self._store(event.job_id, event.sequence - 1, "")

    def accept(self, event: JobEvent) -> bool:
        """Whether the event is new: later than all that were seen of its job."""
        if event.job_id in self._last and event.sequence <= self.sequence(event.job_id):
            return False
        self._store(event.job_id, event.sequence, event.status)
        return True

    def note_status(self, job: JobStatus) -> None:
        """Remember that a job has ended, if all of its events were seen."""
        if job.is_final and job.sequence <= self.sequence(job.job_id):
            self._last[job.job_id] = (job.sequence, job.status)

    def forget(self, job_id: str) -> None:
        self._last.pop(job_id, None)

    def open_jobs(self) -> Sequence[str]:
        """The jobs that may have more events."""
        return [job_id for job_id, (_, status) in self._last.items() if status not in FINAL]

    def _store(self, job_id: str, sequence: int, status: str) -> None:
        self._last[job_id] = (sequence, status)
        self._last.move_to_end(job_id)
        if len(self._last) > self.limit:
            self._last.popitem(last=False)


@dataclass
class EventStream:
    """`kind`: of the jobs. `on_connected`: called after each successful connection."""

    api: HttpApi
    kind: str
    deadline: Deadline
    on_connected: Callable[[], object] | None = None
    seen: SeenEvents = field(default_factory=SeenEvents)
    _connections: int = field(default=0, init=False)

    async def events(self) -> AsyncGenerator[JobEvent, None]:
        """Every event from now on, without an end. Raises errors that a retry does not solve."""
        _io.require_websockets()
        failures = 0
        while True:
            connections, began = self._connections, self.api.io.clock()
            try:
                async with aclosing(self._session()) as session:
                    async for event in session:
                        yield event
            except (ConnectionFailed, ApiError, BadAnswer) as error:
                lasted = self.api.io.clock() - began
                if self._connections > connections and lasted >= _watcher.MIN_SESSION_SECONDS:
                    failures = 0
                failures += 1
                if is_permanent(error) or (not self._connections and failures == MAX_FAILURES):
                    raise
                await self.deadline.sleep(retry_delay(failures, error))

    async def _session(self) -> AsyncGenerator[JobEvent, None]:
        """One connection. Missed events are fetched after it is open, so that none is lost in between."""
        request = self.api.build_request("POST", "/live/tickets", timeout=self.deadline.limit(self.api.timeout))
        ticket = LiveTicket.of(response_json(await self.api.send(request, retries=0)))
        async with self.api.io.socket(ticket.url) as socket:
            session = WebSocketSession(socket)
            await session.send("follow", kind=self.kind)
            early = await self._until_following(session)
            self._connections += 1
            if self.on_connected:
                self.on_connected()
            async with aclosing(self._missed_events()) as missed:
                async for event in missed:
                    yield event
            async with aclosing(self._pushed_events(session, early)) as pushed:
                async for event in pushed:
                    yield event

    async def _until_following(self, session: WebSocketSession) -> list[JobEvent]:
        """Wait for the response to `follow`; returns the events that arrived before it."""
        early: list[JobEvent] = []
        while True:
            message = await session.receive(self.deadline.limit(_websocket.PING_SECONDS))
            if message and message.get("type") == "following":
                return early
            _raise_error(message)
            early += self._parse_events(message)

    async def _missed_events(self) -> AsyncGenerator[JobEvent, None]:
        """Of the jobs that were seen on earlier connections."""
        for job_id in self.seen.open_jobs():
            for event in await self._fetch_events(job_id):
                if self.seen.accept(event):
                    yield event
            if self.seen.lacks_status(job_id):
                await self._fetch_status(job_id)

    async def _pushed_events(
        self, session: WebSocketSession, early: Sequence[JobEvent]
    ) -> AsyncGenerator[JobEvent, None]:
        pushed = early
        while True:
            for event in pushed:
                for complete in await self._complete(event):
                    if self.seen.accept(complete):
                        yield complete
            message = await session.receive(self.deadline.limit(_websocket.PING_SECONDS))
            _raise_error(message)
            pushed = self._parse_events(message)

    def _parse_events(self, message: Mapping[str, Any] | None) -> list[JobEvent]:
        events = [JobEvent.of(payload) for payload in events_in_message(message)]
        for event in events:
            self.seen.add_job(event)
        return events

    async def _complete(self, event: JobEvent) -> Sequence[JobEvent]:
        """The event. If events are missing before it or it is truncated, the job's log is added before it."""
        last = self.seen.sequence(event.job_id)
        if event.sequence > last + 1 or (event.sequence == last + 1 and event.get("truncated")):
            return [*await self._fetch_events(event.job_id), event]
        return [event]

    async def _fetch_events(self, job_id: str) -> Sequence[JobEvent]:
        """The job's events after the last that was seen. None if the job does not exist any more."""
        timeout = self.deadline.limit(self.api.timeout)
        request = self.api.events_request(job_id, self.seen.sequence(job_id), timeout=timeout)
        with self._forget_if_deleted(job_id):
            page = response_json(await self.api.send(request, retries=0))
            return items(page, "events", JobEvent, job_id=job_id)
        return []

    async def _fetch_status(self, job_id: str) -> None:
        """Check whether a job has ended whose events have no status, so that its log is not fetched again."""
        path, timeout = f"/jobs/{quote(job_id, safe='')}/status", self.deadline.limit(self.api.timeout)
        request = self.api.build_request("GET", path, timeout=timeout)
        with self._forget_if_deleted(job_id):
            status = response_json(await self.api.send(request, retries=0))
            self.seen.note_status(JobStatus.of(status, job_id=job_id))

    @contextmanager
    def _forget_if_deleted(self, job_id: str) -> Iterator[None]:
        """A job that does not exist any more is forgotten. This is not an error."""
        try:
            yield
        except NotFound:
            self.seen.forget(job_id)


def _raise_error(message: Mapping[str, Any] | None) -> None:
    """Raise the error of an `error` message. An invalid request is permanent, anything else may be temporary."""
    if not message or message.get("type") != "error":
        return
    code, detail = str(message.get("code")), str(message.get("message"))
    error: RecadoError = ConnectionFailed(f"{code}: {detail}")
    if code == "invalid_request":
        error = InvalidRequest(status=422, type=code, detail=detail)
    raise error
