"""What is held open: a job's status and events until something changes, by key or by a link that needs none, and
POST /webhooks/{webhook_id}/test until the endpoint has answered.

A function of its own: a thousand clients that wait must not keep one POST out.
"""

from __future__ import annotations

import functools
import json
import math
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, Literal, TypeVar

from aws_lambda_powertools.event_handler import APIGatewayRestResolver, Response
from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Header, Path, Query
from aws_lambda_powertools.event_handler.openapi.types import OpenAPIResponse

from core.aws import clients, settings
from core.errors import Conflict
from core.events import Event
from core.http import answer, caller, resolver, root_url
from core.jobs import History, Job, JobStore, Snapshot, links, views, well_formed
from core.models import EventLog, JobStatus
from core.webhooks import views as webhook_views
from core.webhooks.deliveries.store import Delivery, DeliveryStore, delivery_id
from core.webhooks.endpoints.owner_log import OwnerLog
from core.webhooks.endpoints.store import Endpoints
from core.webhooks.models import DeliveryView, PingPending
from rest.long_poll import sse

DAY_SECONDS = 86_400
MAX_EVENTS = 1000
PACE_SECONDS = 60
FIRST_GAP_SECONDS, GROWTH, LAST_GAP_SECONDS = 0.2, 1.5, 0.9
PING_MESSAGE = "This is a test: your endpoint works if it answers with a 2xx."
T = TypeVar("T")
router = Router()


@dataclass(frozen=True)
class Settings:
    jobs_table: str
    deliveries_table: str
    job_retention_days: int
    wait_seconds_max: int
    cors_origins: str


class Paces:
    """How long jobs took, read again after a minute: whoever polls must not cost a read more each time."""

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs
        self._known: dict[tuple[str, str], tuple[float, History]] = {}

    def of(self, owner: str, kind: str) -> History:
        at, history = self._known.get((owner, kind), (-math.inf, History()))
        if time.monotonic() - at > PACE_SECONDS:
            history = self._jobs.history(owner, kind)
            self._known[owner, kind] = time.monotonic(), history
        return history


@dataclass(frozen=True, slots=True)
class Dependencies:
    jobs: JobStore
    paces: Paces
    endpoints: Endpoints
    deliveries: DeliveryStore
    owner_log: OwnerLog
    config: Settings


@functools.cache
def dependencies() -> Dependencies:
    config, dynamodb = settings.load(Settings), clients.dynamodb()
    jobs = JobStore(dynamodb, config.jobs_table)
    return Dependencies(
        jobs,
        Paces(jobs),
        Endpoints(dynamodb, config.jobs_table),
        DeliveryStore(dynamodb, config.deliveries_table),
        OwnerLog(dynamodb, config.jobs_table, retention_seconds=config.job_retention_days * DAY_SECONDS),
        config,
    )


# ── a job ────────────────────────────────────────────────────────────────────────────────────────────────

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
    return dependencies().jobs.snapshot(well_formed(job_id), owner=owner)


def _linked(text: str) -> Snapshot:
    return links.opened(text, dependencies().jobs.snapshot, now=time.time())


def _status(
    opened: Snapshot, wait: int | None, prefer: str | None, known: str | None
) -> Response[JobStatus | str]:
    """What opened the job is the first look at it: a poll costs one read."""
    job = opened.job
    preferred = _preferred_wait(prefer) if wait is None else None
    seconds = min(wait or preferred or 0, dependencies().config.wait_seconds_max)

    def look_again() -> Snapshot:
        return dependencies().jobs.snapshot(job.job_id, owner=job.owner)

    looks = chain([opened], iter(look_again, None))
    snapshot = until_changed(lambda: next(looks), known, seconds, clock=time.monotonic, sleep=time.sleep)
    history = dependencies().paces.of(job.owner, job.kind)
    headers = _headers(snapshot, history)
    if preferred is not None:
        headers["Preference-Applied"] = f"wait={seconds}"
    if known and _matches(known, views.etag(snapshot)):
        return Response(status_code=304, body="", headers=headers)
    return answer(views.small(snapshot, history), headers=headers)


def _events(job: Job, after: int, accept: str, last_event_id: str | None, named: str | None) -> Response[Any]:
    if sse.CONTENT_TYPE not in accept.lower():
        log = dependencies().jobs.events(job.job_id, after=after, limit=MAX_EVENTS)
        return answer({"events": [json.loads(event.body) for event in log]})
    seen = max(after, sse.sequence_of(last_event_id))
    if job.is_final and job.sequence <= seen:
        return Response(status_code=204, body="", headers={"Cache-Control": "no-store"})
    log = until_any(
        lambda: dependencies().jobs.events(job.job_id, after=seen, limit=MAX_EVENTS),
        dependencies().config.wait_seconds_max,
        clock=time.monotonic,
        sleep=time.sleep,
    )
    return Response(
        status_code=200,
        content_type=f"{sse.CONTENT_TYPE}; charset=utf-8",
        body=sse.encode(log, named=named),
        headers={"Cache-Control": "no-store"},
    )


def until_any(
    look: Callable[[], list[Event]],
    seconds: float,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> list[Event]:
    """Look until something has happened, or the time is up."""
    return next(filter(None, _looks(look, seconds, clock=clock, sleep=sleep)), [])


def until_changed(
    look: Callable[[], Snapshot],
    known: str | None,
    seconds: float,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Snapshot:
    """Look until the job differs from what is known, or has ended, or the time is up."""
    for snapshot in _looks(look, seconds, clock=clock, sleep=sleep):
        known = known or views.etag(snapshot)
        if snapshot.job.is_final or not _matches(known, views.etag(snapshot)):
            break
    return snapshot


def _looks(
    look: Callable[[], T], seconds: float, *, clock: Callable[[], float], sleep: Callable[[float], None]
) -> Iterator[T]:
    """Look again and again with growing gaps, never more than a second, until the time is up."""
    end, gap = clock() + seconds, FIRST_GAP_SECONDS
    yield look()
    while clock() < end:
        sleep(min(gap, max(0.0, end - clock())))
        gap = min(LAST_GAP_SECONDS, gap * GROWTH)
        yield look()


def _headers(snapshot: Snapshot, history: History) -> dict[str, str]:
    """A final job asks for no further look, so it has no Retry-After."""
    headers = {"ETag": views.etag(snapshot)}
    if not snapshot.job.is_final:
        headers["Retry-After"] = str(views.retry_after(snapshot, history))
    return headers


def _matches(known: str, etag: str) -> bool:
    """https://www.rfc-editor.org/rfc/rfc9110#name-if-none-match, compared weakly."""
    offered = [part.strip().removeprefix("W/") for part in known.split(",")]
    return "*" in offered or etag in offered


def _preferred_wait(prefer: str | None) -> int | None:
    match = re.search(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,6})\"?(?:$|[,;\s])", prefer or "", re.IGNORECASE)
    return int(match.group(1)) if match else None


# ── a test of an endpoint ────────────────────────────────────────────────────────────────────────────────


@router.post(
    "/webhooks/<webhook_id>/test",
    tags=["webhooks"],
    summary="Send a ping, and see what the endpoint answers",
    responses={
        200: {"description": "It ended", "content": {"application/json": {"model": DeliveryView}}},
        202: {"description": "Not yet", "content": {"application/json": {"model": PingPending}}},
    },
)
def ping(webhook_id: Annotated[str, Path()]) -> Response[DeliveryView | PingPending]:
    """The ping goes the way of every event and is tried once, also where the endpoint is disabled."""
    owner = caller(router, "webhooks:write")
    endpoint = dependencies().endpoints.get(owner, webhook_id)
    if endpoint.is_default:
        raise Conflict("The default endpoint has no URL that could be called: each job names its own.")
    event_id = dependencies().owner_log.append(owner, "ping", endpoint_id=webhook_id, message=PING_MESSAGE)
    identifier = delivery_id(event_id, webhook_id)

    def look() -> Delivery | None:
        return dependencies().deliveries.get(identifier)

    ended = until_ended(look, dependencies().config.wait_seconds_max, clock=time.monotonic, sleep=time.sleep)
    root = root_url(router)
    if not ended:
        links = webhook_views.delivery_links(identifier, root)
        headers = {"Location": f"../../deliveries/{identifier}", "Retry-After": "1"}
        return answer({"delivery_id": identifier, "links": links}, status=202, headers=headers)
    delivery, attempts = dependencies().deliveries.with_attempts(identifier, owner=owner)
    return answer(webhook_views.whole_delivery(delivery, attempts, root))


def until_ended(
    look: Callable[[], Delivery | None],
    seconds: float,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> bool:
    """Look until the delivery, which may not be there yet, has ended; False if the time is up before."""
    deliveries = _looks(look, seconds, clock=clock, sleep=sleep)
    return any(delivery is not None and not delivery.is_open for delivery in deliveries)


@functools.cache
def app() -> APIGatewayRestResolver:
    return resolver(dependencies().config.cors_origins, router)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return app().resolve(event, context)
