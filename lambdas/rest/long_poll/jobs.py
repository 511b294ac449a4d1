"""A job's status and its events, held open until something changes: by key, or by a link that needs none."""

from __future__ import annotations

import json
import math
import re
import time
from itertools import chain
from typing import Annotated, Any, Literal

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Header, Path, Query
from aws_lambda_powertools.event_handler.openapi.types import OpenAPIResponse

from core.dependencies import dependencies
from core.http import answer, caller
from core.jobs import History, Job, Snapshot, links, views, well_formed
from core.models import EventLog, JobStatus
from rest.long_poll import sse
from rest.long_poll.polling import matches, until_any, until_changed

MAX_EVENTS = 1000
HISTORY_SECONDS = 60
router = Router()

Wait = Annotated[int | None, Query(ge=0, description="Seconds to hold the answer until something changes")]
Prefer = Annotated[str | None, Header(description="wait=N, as an alternative to ?wait=N")]
Known = Annotated[str | None, Header(alias="If-None-Match", description="The ETag of what you know")]
After = Annotated[int, Query(ge=0, description="The sequence of the last event that you know")]
Accept = Annotated[str, Header(description="text/event-stream for server-sent events")]
Named = Annotated[Literal["message"] | None, Query(description="Name every server-sent event `message`")]
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", description="Sent by EventSource, like ?after=")]
STATUS: dict[int, OpenAPIResponse] = {
    200: {"description": "The status", "content": {"application/json": {"model": JobStatus}}},
    304: {"description": "What If-None-Match names is still so", "content": {}},
}
EVENTS: dict[int, OpenAPIResponse] = {
    200: {"description": "The log, or a stream of it", "content": {"application/json": {"model": EventLog}}},
    204: {"description": "The job has ended, and you know of it", "content": {}},
}


@router.get(
    "/jobs/<job_id>/status",
    tags=["jobs"],
    summary="The small answer for polling, or for waiting",
    responses=STATUS,
)
def status(
    job_id: Annotated[str, Path()], wait: Wait = None, prefer: Prefer = None, if_none_match: Known = None
) -> Response[JobStatus | str]:
    """`wait`, or `Prefer: wait=N` (RFC 7240). A change is what differs from `If-None-Match`, if it is sent."""
    return _status(_owned(job_id), wait, prefer, if_none_match)


@router.get(
    "/follow/<token>/status", tags=["following"], summary="The same by a link, without a key", responses=STATUS
)
def follow_status(
    token: Annotated[str, Path()], wait: Wait = None, prefer: Prefer = None, if_none_match: Known = None
) -> Response[JobStatus | str]:
    return _status(_linked(token), wait, prefer, if_none_match)


@router.get("/jobs/<job_id>/events", tags=["jobs"], summary="What happened so far, in order", responses=EVENTS)
def events(
    job_id: Annotated[str, Path()],
    after: After = 0,
    accept: Accept = "",
    last_event_id: LastEventId = None,
    event: Named = None,
) -> Response[EventLog | str]:
    """As JSON, or (`Accept: text/event-stream`) as server-sent events, held open until there is one."""
    return _events(_owned(job_id).job, after, accept, last_event_id, event)


@router.get(
    "/follow/<token>/events", tags=["following"], summary="The same by a link, without a key", responses=EVENTS
)
def follow_events(
    token: Annotated[str, Path()],
    after: After = 0,
    accept: Accept = "",
    last_event_id: LastEventId = None,
    event: Named = None,
) -> Response[EventLog | str]:
    return _events(_linked(token).job, after, accept, last_event_id, event)


def _owned(job_id: str) -> Snapshot:
    owner = caller(router, "jobs:read")
    return dependencies.jobs.snapshot(well_formed(job_id), owner=owner)


def _linked(text: str) -> Snapshot:
    return links.resolve(text, dependencies.jobs.snapshot, now=time.time())


def _status(
    opened: Snapshot, wait: int | None, prefer: str | None, known: str | None
) -> Response[JobStatus | str]:
    """What opened the job is the first look at it: a poll costs one read."""
    job = opened.job
    preferred = _preferred_wait(prefer) if wait is None else None
    seconds = min(wait or preferred or 0, dependencies.settings.wait_seconds_max)

    def look_again() -> Snapshot:
        return dependencies.jobs.snapshot(job.job_id, owner=job.owner)

    looks = chain([opened], iter(look_again, None))
    snapshot = until_changed(lambda: next(looks), known, seconds, clock=time.monotonic, sleep=time.sleep)
    history = histories.of(job.owner, job.kind)
    headers = _headers(snapshot, history)
    if preferred is not None:
        headers["Preference-Applied"] = f"wait={seconds}"
    if known and matches(known, views.etag(snapshot)):
        return Response(status_code=304, body="", headers=headers)
    return answer(views.status_view(snapshot, history), headers=headers)


def _events(job: Job, after: int, accept: str, last_event_id: str | None, named: str | None) -> Response[Any]:
    if sse.CONTENT_TYPE not in accept.lower():
        log = dependencies.jobs.events(job.job_id, after=after, limit=MAX_EVENTS)
        return answer({"events": [json.loads(event.body) for event in log]})
    seen = max(after, sse.sequence_of(last_event_id))
    if job.is_final and job.sequence <= seen:
        return Response(status_code=204, body="", headers={"Cache-Control": "no-store"})
    log = until_any(
        lambda: dependencies.jobs.events(job.job_id, after=seen, limit=MAX_EVENTS),
        dependencies.settings.wait_seconds_max,
        clock=time.monotonic,
        sleep=time.sleep,
    )
    return Response(
        status_code=200,
        content_type=f"{sse.CONTENT_TYPE}; charset=utf-8",
        body=sse.encode(log, named=named),
        headers={"Cache-Control": "no-store"},
    )


def _headers(snapshot: Snapshot, history: History) -> dict[str, str]:
    """A final job asks for no further look, so it has no Retry-After."""
    headers = {"ETag": views.etag(snapshot)}
    if not snapshot.job.is_final:
        headers["Retry-After"] = str(views.retry_after(snapshot, history))
    return headers


def _preferred_wait(prefer: str | None) -> int | None:
    match = re.search(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,6})\"?(?:$|[,;\s])", prefer or "", re.IGNORECASE)
    return int(match.group(1)) if match else None


class HistoryCache:
    """How long jobs took, read again after HISTORY_SECONDS: a poll must not cost one read more each time."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[float, History]] = {}

    def of(self, owner: str, kind: str) -> History:
        at, history = self._known.get((owner, kind), (-math.inf, History()))
        if time.monotonic() - at > HISTORY_SECONDS:
            history = dependencies.jobs.history(owner, kind)
            self._known[owner, kind] = time.monotonic(), history
        return history

    def cache_clear(self) -> None:
        self._known.clear()


histories = HistoryCache()
