"""Long polls for a job's status and events, with a key or by a link without one."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable
from itertools import chain
from typing import Annotated, Any, Literal

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Header, Path, Query
from aws_lambda_powertools.event_handler.openapi.types import OpenAPIResponse

from core.dependencies import dependencies
from core.http import caller, json_response, matches
from core.jobs import History, Job, Snapshot, links, valid_job_id, views
from core.jobs.models import EventLog, JobStatus
from rest.long_poll import sse
from rest.long_poll.polling import until_any, until_changed

MAX_EVENTS = 1000
HISTORY_SECONDS = 60
MIN_REFUSAL_SECONDS = 5
"""Clients that wait reconnect at once or after a second. Beyond the limit of held requests they must not."""
router = Router()
Read = Callable[[], Snapshot]
"""Reads the job, and checks that the caller may see it."""

WaitSeconds = Annotated[int | None, Query(ge=0, description="How many seconds to wait for a change.")]
Prefer = Annotated[str | None, Header(description="`wait=N` (RFC 7240) has the same effect as ?wait=N.")]
IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match", description="The ETag of the last response.")]
After = Annotated[int, Query(ge=0, description="The sequence of the last event that you have.")]
Accept = Annotated[str, Header(description="`text/event-stream` for server-sent events.")]
EventName = Annotated[
    Literal["message"] | None,
    Query(description="Name all server-sent events `message`, and leave out the steps of agents."),
]
LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", description="Sent by EventSource; has the same effect as ?after=.")
]
STATUS: dict[int, OpenAPIResponse] = {
    200: {"description": "The status", "content": {"application/json": {"model": JobStatus}}},
    304: {"description": "The status has not changed", "content": {}},
}
EVENTS: dict[int, OpenAPIResponse] = {
    200: {
        "description": "The events, as JSON or as server-sent events",
        "content": {"application/json": {"model": EventLog}},
    },
    204: {"description": "The job has ended, and there are no more events", "content": {}},
}


@router.get(
    "/jobs/<job_id>/status",
    tags=["jobs"],
    summary="Get a job's status, or wait for a change",
    responses=STATUS,
)
def status(
    job_id: Annotated[str, Path()],
    wait: WaitSeconds = None,
    prefer: Prefer = None,
    if_none_match: IfNoneMatch = None,
) -> Response[JobStatus | str]:
    """With `wait`, the response is sent when the ETag differs from `If-None-Match`, or from the present one."""
    return _status(lambda: _by_key(job_id), wait, prefer, if_none_match)


@router.get(
    "/follow/<token>/status",
    tags=["following"],
    summary="Get a job's status by a link, without a key",
    responses=STATUS,
)
def follow_status(
    token: Annotated[str, Path()],
    wait: WaitSeconds = None,
    prefer: Prefer = None,
    if_none_match: IfNoneMatch = None,
) -> Response[JobStatus | str]:
    return _status(lambda: _by_link(token), wait, prefer, if_none_match)


@router.get("/jobs/<job_id>/events", tags=["jobs"], summary="Get a job's events, in order", responses=EVENTS)
def events(
    job_id: Annotated[str, Path()],
    after: After = 0,
    accept: Accept = "",
    last_event_id: LastEventId = None,
    event: EventName = None,
) -> Response[EventLog | str]:
    """As JSON, or with `Accept: text/event-stream` as server-sent events: then it waits for the next event."""
    return _events(lambda: _by_key(job_id), after, accept, last_event_id, event)


@router.get(
    "/follow/<token>/events",
    tags=["following"],
    summary="Get a job's events by a link, without a key",
    responses=EVENTS,
)
def follow_events(
    token: Annotated[str, Path()],
    after: After = 0,
    accept: Accept = "",
    last_event_id: LastEventId = None,
    event: EventName = None,
) -> Response[EventLog | str]:
    return _events(lambda: _by_link(token), after, accept, last_event_id, event)


def _by_key(job_id: str) -> Snapshot:
    owner = caller(router, "jobs:read")
    return dependencies.jobs.snapshot(valid_job_id(job_id), owner=owner)


def _by_link(text: str) -> Snapshot:
    found, _ = links.resolve(
        text, dependencies.jobs.snapshot, now=time.time(), epochs=dependencies.epochs.to_verify
    )
    return found


def _status(read: Read, wait: int | None, prefer: str | None, known: str | None) -> Response[JobStatus | str]:
    preferred = _wait_preference(prefer) if wait is None else None
    seconds = min(wait or preferred or 0, dependencies.settings.wait_seconds_max)
    first = read()
    job = first.job
    reads = chain([first], iter(read, None))
    hold = dependencies.holds.of(job.owner, job.job_id, seconds=seconds)
    snapshot = until_changed(
        lambda: next(reads), known, seconds, hold=hold, clock=time.monotonic, sleep=time.sleep
    )
    history = histories.of(job.owner, job.kind)
    headers = _headers(snapshot, history)
    if hold.refused:
        headers["Retry-After"] = str(_retry_after_refusal(snapshot, history))
    elif preferred is not None:
        headers["Preference-Applied"] = f"wait={seconds}"
    if known and matches(known, views.etag(snapshot)):
        return Response(status_code=304, body="", headers=headers)
    return json_response(views.status_view(snapshot, history), headers=headers)


def _events(read: Read, after: int, accept: str, last_event_id: str | None, named: str | None) -> Response[Any]:
    snapshot = read()
    job, seconds = snapshot.job, dependencies.settings.wait_seconds_max
    if sse.CONTENT_TYPE not in accept.lower():
        log = dependencies.jobs.log.read(job.job_id, after=after, limit=MAX_EVENTS)
        return json_response({"events": [json.loads(event.body) for event in log]})
    cursor = max(sse.Cursor(after), sse.Cursor.of(last_event_id))
    if job.is_final and job.sequence <= cursor.sequence:
        return Response(status_code=204, body="", headers={"Cache-Control": "no-store"})
    hold = dependencies.holds.of(job.owner, job.job_id, seconds=seconds)
    has_steps = job.has_steps and named is None  # whoever wants one name for all expects events

    def entries_since() -> list[sse.Entry]:
        return _entries(job, cursor, has_steps=has_steps)

    entries = until_any(entries_since, seconds, hold=hold, clock=time.monotonic, sleep=time.sleep)
    if entries:
        read()  # the link may have ended while it waited
    headers, retry_after = {"Cache-Control": "no-store"}, None
    if hold.refused:
        retry_after = _retry_after_refusal(snapshot, histories.of(job.owner, job.kind))
        headers["Retry-After"] = str(retry_after)
    body = sse.encode(entries, after=cursor, has_steps=has_steps, named=named, retry_after=retry_after)
    return Response(status_code=200, content_type=f"{sse.CONTENT_TYPE}; charset=utf-8", body=body, headers=headers)


def _entries(job: Job, cursor: sse.Cursor, *, has_steps: bool) -> list[sse.Entry]:
    """The log is read first: with the job's last event, all steps are written."""
    log = dependencies.jobs.log.read(job.job_id, after=cursor.sequence, limit=MAX_EVENTS)
    steps = dependencies.jobs.steps.read(job.job_id, after=cursor.step) if has_steps else []
    return sse.merge(log, steps)


def _headers(snapshot: Snapshot, history: History) -> dict[str, str]:
    """A final job has no Retry-After, since it need not be polled again."""
    headers = {"ETag": views.etag(snapshot)}
    if not snapshot.job.is_final:
        headers["Retry-After"] = str(views.retry_after(snapshot, history))
    return headers


def _retry_after_refusal(snapshot: Snapshot, history: History) -> int:
    """Seconds after which a request that could not be held open should come again: it polls until it can."""
    return max(MIN_REFUSAL_SECONDS, views.retry_after(snapshot, history))


def _wait_preference(prefer: str | None) -> int | None:
    match = re.search(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,6})\"?(?:$|[,;\s])", prefer or "", re.IGNORECASE)
    return int(match.group(1)) if match else None


class HistoryCache:
    """Caches durations for HISTORY_SECONDS, so that a poll does not need a second read."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[float, History]] = {}

    def of(self, owner: str, kind: str) -> History:
        at, history = self._known.get((owner, kind), (-math.inf, History()))
        if time.monotonic() - at > HISTORY_SECONDS:
            history = dependencies.jobs.durations.history(owner, kind)
            self._known[owner, kind] = time.monotonic(), history
        return history

    def cache_clear(self) -> None:
        self._known.clear()


histories = HistoryCache()
