"""GET /jobs/{job_id}/status, held open on request until something changes.

A function of its own: a thousand clients that wait must not keep one POST out.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from aws_lambda_powertools.event_handler import APIGatewayRestResolver, Response
from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Header, Path, Query

from core import clients, ids, settings, views
from core.errors import NotFound
from core.http import answer, caller, resolver
from core.jobs import JobStore, Snapshot
from core.models import JobStatus

FIRST_GAP_SECONDS, GROWTH, LAST_GAP_SECONDS = 0.2, 1.5, 0.9
router = Router()


@dataclass(frozen=True)
class Settings:
    jobs_table: str
    wait_seconds_max: int
    cors_origins: str


@dataclass(frozen=True, slots=True)
class Dependencies:
    jobs: JobStore
    config: Settings


@functools.cache
def dependencies() -> Dependencies:
    config = settings.load(Settings)
    return Dependencies(JobStore(clients.dynamodb(), config.jobs_table), config)


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
    """Look again with growing gaps, never more than a second, until the job differs from what is known."""
    end = clock() + seconds
    snapshot = look()
    known = known or views.etag(snapshot)
    gap = FIRST_GAP_SECONDS
    while _matches(known, views.etag(snapshot)) and not snapshot.job.is_final and clock() < end:
        sleep(min(gap, max(0.0, end - clock())))
        gap = min(LAST_GAP_SECONDS, gap * GROWTH)
        snapshot = look()
    return snapshot


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


@functools.cache
def app() -> APIGatewayRestResolver:
    return resolver(dependencies().config.cors_origins, router)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return app().resolve(event, context)
