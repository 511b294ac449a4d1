"""The two routes that are held open: GET /jobs/{job_id}/status until something changes, on request, and
POST /webhooks/{webhook_id}/test until the endpoint has answered.

A function of its own: a thousand clients that wait must not keep one POST out.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from aws_lambda_powertools.event_handler import APIGatewayRestResolver, Response
from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Header, Path, Query

from core import clients, ids, settings, views
from core.errors import Conflict, NotFound
from core.http import answer, caller, resolver, root_url
from core.jobs import JobStore, Snapshot
from core.models import JobStatus
from core.webhooks import views as webhook_views
from core.webhooks.deliveries import Delivery, DeliveryStore, delivery_id
from core.webhooks.endpoints import Endpoints
from core.webhooks.models import DeliveryView, PingPending
from core.webhooks.owner_log import OwnerLog

DAY_SECONDS = 86_400
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


@dataclass(frozen=True, slots=True)
class Dependencies:
    jobs: JobStore
    endpoints: Endpoints
    deliveries: DeliveryStore
    owner_log: OwnerLog
    config: Settings


@functools.cache
def dependencies() -> Dependencies:
    config, dynamodb = settings.load(Settings), clients.dynamodb()
    return Dependencies(
        JobStore(dynamodb, config.jobs_table),
        Endpoints(dynamodb, config.jobs_table),
        DeliveryStore(dynamodb, config.deliveries_table),
        OwnerLog(dynamodb, config.jobs_table, retention_seconds=config.job_retention_days * DAY_SECONDS),
        config,
    )


# ── a job ────────────────────────────────────────────────────────────────────────────────────────────────


@router.get(
    "/jobs/<job_id>/status",
    tags=["jobs"],
    summary="The small answer for polling, or for waiting",
    responses={
        200: {"description": "The status", "content": {"application/json": {"model": JobStatus}}},
        304: {"description": "What If-None-Match names is still so", "content": {}},
    },
)
def status(
    job_id: Annotated[str, Path()],
    wait: Annotated[
        int | None, Query(ge=0, description="Seconds to hold the answer until something changes")
    ] = None,
    prefer: Annotated[str | None, Header(description="wait=N, as an alternative to ?wait=N")] = None,
    if_none_match: Annotated[str | None, Header(description="The ETag of what you know")] = None,
) -> Response[JobStatus | None]:
    """`wait`, or `Prefer: wait=N` (RFC 7240). A change is what differs from `If-None-Match`, if it is sent."""
    owner = caller(router, "jobs:read")
    if not ids.is_id("job", job_id):
        raise NotFound("There is no such job. Check the id; jobs are kept for a limited time.")
    preferred = _preferred_wait(prefer) if wait is None else None
    seconds = min(wait or preferred or 0, dependencies().config.wait_seconds_max)

    def look() -> Snapshot:
        return dependencies().jobs.snapshot(job_id, owner=owner)

    snapshot = until_changed(look, if_none_match, seconds, clock=time.monotonic, sleep=time.sleep)
    headers = _headers(snapshot) | ({"Preference-Applied": f"wait={seconds}"} if preferred is not None else {})
    if if_none_match and _matches(if_none_match, views.etag(snapshot)):
        return Response(status_code=304, headers=headers)
    return answer(views.small(snapshot), headers=headers)


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


def _headers(snapshot: Snapshot) -> dict[str, str]:
    """A final job asks for no further look, so it has no Retry-After."""
    headers = {"ETag": views.etag(snapshot)}
    if not snapshot.job.is_final:
        headers["Retry-After"] = str(views.retry_after(snapshot.job, time.time()))
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
