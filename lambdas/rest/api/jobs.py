"""Routes under /jobs, but for /status and /events below a job, which the function `wait` answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Header, Path, Query
from aws_lambda_powertools.event_handler.openapi.types import OpenAPIResponse

from core import ids, jobs
from core.dependencies import dependencies
from core.errors import InvalidRequest
from core.http import answer, caller, root_url
from core.jobs import History, Job, Kind, Snapshot, views
from core.models import JobAccepted, JobPage, JobView, Status
from kinds.registry import KINDS
from rest.api import submission
from rest.api.requests import any_job

router = Router()
JobId = Annotated[str, Path(description="The id that POST /jobs answered.")]
IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description="1 to 255 characters. The same key and body: the same job."),
]
ACCEPTED: dict[int, OpenAPIResponse] = {202: {"description": "Accepted"}}


def submission_router(kinds: Mapping[str, Kind]) -> tuple[Router, tuple[str, ...]]:
    """POST /jobs for these kinds, and the names by which its body tells them apart."""
    router = Router()
    body_type, tags = any_job(kinds)

    def submit(request: Any, idempotency_key: IdempotencyKey = None) -> Response[JobAccepted]:
        owner = caller(router, "jobs:write")
        body = json.loads(router.current_event.decoded_body or "null")
        if not isinstance(body, dict):  # of a list, Powertools takes the first for all
            raise InvalidRequest("body: submit one job at a time, as an object", field="body")
        kind = kinds[request.kind]
        accepted = submission.submit(kind, request, owner=owner, idempotency_key=idempotency_key, body=body)
        return answer_accepted(accepted, location=f"jobs/{accepted.submission.job.job_id}")

    submit.__annotations__["request"] = body_type
    router.post("/jobs", tags=["jobs"], summary="Submit a job", responses=ACCEPTED)(submit)
    return router, tags


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
    kind: Annotated[str | None, Query(description="One that POST /jobs takes, or `replay`.")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Annotated[str | None, Query(description="From the page before")] = None,
) -> Response[JobPage]:
    owner = caller(router, "jobs:read")
    if cursor is not None and not ids.is_id("job", cursor):
        raise InvalidRequest("This is not a cursor of an earlier page.", field="cursor")
    if kind is not None and kind not in KINDS:
        raise InvalidRequest(f"kind: choose from {', '.join(KINDS)}", field="kind")

    def wanted(job: Job) -> bool:
        return status in (None, job.status) and kind in (None, job.kind)

    found, following = dependencies.jobs.page(owner, cursor=cursor, limit=limit, wanted=wanted)
    return answer({"jobs": [views.job_summary(job, links()) for job in found], "cursor": following})


@router.get("/jobs/<job_id>", tags=["jobs"], summary="The whole job")
def get(job_id: JobId) -> Response[JobView]:
    return answer(shown(dependencies.jobs.snapshot(jobs.well_formed(job_id), owner=caller(router, "jobs:read"))))


@router.post("/jobs/<job_id>/cancel", tags=["jobs"], summary="Cancel a job that has not ended")
def cancel(job_id: JobId) -> Response[JobView]:
    owner = caller(router, "jobs:write")
    find(job_id, owner)
    dependencies.jobs.apply(job_id, jobs.cancel)
    return answer(shown(dependencies.jobs.snapshot(job_id, owner=owner)))


def shown(snapshot: Snapshot) -> dict[str, Any]:
    history = dependencies.jobs.history(snapshot.job.owner, snapshot.job.kind)
    return views.job_view(snapshot, links(), history)


def links() -> views.LinkMaker:
    config = dependencies.settings
    return views.LinkMaker(root_url(router), config.live_url, config.link_hours, dependencies.blobs.presign_get)


def find(job_id: str, owner: str) -> Job:
    return dependencies.jobs.get(jobs.well_formed(job_id), owner=owner)


def answer_accepted(accepted: submission.Accepted, *, location: str) -> Response[Any]:
    """202, with a Location relative to the request: it holds under any stage and domain."""
    job, replayed = accepted.submission.job, accepted.submission.replayed
    snapshot = dependencies.jobs.snapshot(job.job_id, owner=job.owner) if replayed else Snapshot(job, None, None)
    body = views.job_view(snapshot, links(), History())
    if accepted.webhook_secret:
        body["webhook_secret"] = accepted.webhook_secret
    headers = {"Location": location, "Retry-After": str(views.retry_after(snapshot, History()))}
    if replayed:
        headers["Idempotent-Replayed"] = "true"
    return answer(body, status=202, headers=headers)
