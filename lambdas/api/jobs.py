"""Routes under /jobs, but for /jobs/{job_id}/status, which the function `wait` answers."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Header, Path, Query
from aws_lambda_powertools.event_handler.openapi.types import OpenAPIResponse

from api import submission
from api.dependencies import dependencies
from core import ids, jobs, views
from core.errors import InvalidRequest, NotFound
from core.http import answer, caller, root_url
from core.jobs import Job, Snapshot
from core.models import AnyKind, EventLog, JobAccepted, JobPage, JobRequest, JobView, Status

router = Router()
JobId = Annotated[str, Path(description="The id that POST /jobs answered.")]
IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description="1 to 255 characters. The same key and body: the same job."),
]
MAX_EVENTS = 1000
ACCEPTED: dict[int, OpenAPIResponse] = {202: {"description": "Accepted"}}


@router.post("/jobs", tags=["jobs"], summary="Submit a job", responses=ACCEPTED)
def submit(request: JobRequest, idempotency_key: IdempotencyKey = None) -> Response[JobAccepted]:
    owner = caller(router, "jobs:write")
    body = json.loads(router.current_event.decoded_body or "null")
    accepted = submission.submit(request, owner=owner, idempotency_key=idempotency_key, body=body)
    return answer_accepted(accepted, location=f"jobs/{accepted.submission.job.job_id}")


@router.post(
    "/jobs/<job_id>/retry",
    tags=["jobs"],
    summary="Run a failed or canceled job again, as a new job",
    responses=ACCEPTED,
)
def retry(job_id: JobId, idempotency_key: IdempotencyKey = None) -> Response[JobAccepted]:
    owner = caller(router, "jobs:write")
    accepted = submission.retry(find(job_id, owner), idempotency_key=idempotency_key)
    return answer_accepted(accepted, location=f"../{accepted.submission.job.job_id}")


@router.get("/jobs", tags=["jobs"], summary="Your jobs, newest first")
def page(
    status: Annotated[Status | None, Query()] = None,
    kind: Annotated[AnyKind | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Annotated[str | None, Query(description="From the page before")] = None,
) -> Response[JobPage]:
    owner = caller(router, "jobs:read")
    if cursor is not None and not ids.is_id("job", cursor):
        raise InvalidRequest("This is not a cursor of an earlier page.", field="cursor")

    def wanted(job: Job) -> bool:
        return status in (None, job.status) and kind in (None, job.kind)

    found, following = dependencies().jobs.page(owner, cursor=cursor, limit=limit, wanted=wanted)
    root = root_url(router)
    return answer({"jobs": [views.summary(job, root) for job in found], "cursor": following})


@router.get("/jobs/<job_id>", tags=["jobs"], summary="The whole job")
def get(job_id: JobId) -> Response[JobView]:
    snapshot = dependencies().jobs.snapshot(_well_formed(job_id), owner=caller(router, "jobs:read"))
    return answer(views.whole(snapshot, root_url(router)))


@router.get("/jobs/<job_id>/events", tags=["jobs"], summary="What happened so far, in order")
def events(job_id: JobId, after: Annotated[int, Query(ge=0)] = 0) -> Response[EventLog]:
    find(job_id, caller(router, "jobs:read"))
    log = dependencies().jobs.events(job_id, after=after, limit=MAX_EVENTS)
    return answer({"events": [json.loads(event.body) for event in log]})


@router.post("/jobs/<job_id>/cancel", tags=["jobs"], summary="Cancel a job that has not ended")
def cancel(job_id: JobId) -> Response[JobView]:
    owner = caller(router, "jobs:write")
    find(job_id, owner)
    dependencies().jobs.apply(job_id, jobs.cancel)
    return answer(views.whole(dependencies().jobs.snapshot(job_id, owner=owner), root_url(router)))


def find(job_id: str, owner: str) -> Job:
    return dependencies().jobs.get(_well_formed(job_id), owner=owner)


def _well_formed(job_id: str) -> str:
    if not ids.is_id("job", job_id):
        raise NotFound("There is no such job. Check the id; jobs are kept for a limited time.")
    return job_id


def answer_accepted(accepted: submission.Accepted, *, location: str) -> Response[Any]:
    """202, with a Location relative to the request: it holds under any stage and domain."""
    job, replayed = accepted.submission.job, accepted.submission.replayed
    snapshot = dependencies().jobs.snapshot(job.job_id, owner=job.owner) if replayed else Snapshot(job, None, None)
    body = views.whole(snapshot, root_url(router))
    if accepted.webhook_secret:
        body["webhook_secret"] = accepted.webhook_secret
    headers = {"Location": location, "Retry-After": str(views.retry_after(job, time.time()))}
    if replayed:
        headers["Idempotent-Replayed"] = "true"
    return answer(body, status=202, headers=headers)
