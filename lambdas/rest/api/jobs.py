"""Routes under /jobs, except for a job's /status and /events (see `rest.long_poll.jobs`)."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Annotated, Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Header, Path, Query
from aws_lambda_powertools.event_handler.openapi.types import OpenAPIResponse

from core import ids, jobs, submission
from core.dependencies import dependencies
from core.errors import InvalidRequest
from core.http import caller, json_response, key_id, no_content, root_url
from core.jobs import History, Job, Kind, Snapshot, links, views
from core.jobs.deletion import request_deletion
from core.jobs.models import JobAccepted, JobPage, JobView, Status
from kinds.registry import KINDS
from rest.api.job_webhooks import check_webhook, first_secret
from rest.api.requests import any_job

router = Router()
JobId = Annotated[str, Path(description="The `job_id` that POST /jobs returned.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="1 to 255 characters. A request with the same key and body returns the same job.",
    ),
]
CANCEL_SECONDS = 5
"""`start_job` cancels the deliveries that are left."""
ACCEPTED: dict[int, OpenAPIResponse] = {202: {"description": "Accepted"}}


def submission_router(kinds: Mapping[str, Kind]) -> tuple[Router, tuple[str, ...]]:
    """The route POST /jobs for these kinds, and the values of its body's discriminator."""
    router = Router()
    body_type, tags = any_job(kinds)

    def submit(request: Any, idempotency_key: IdempotencyKey = None) -> Response[JobAccepted]:
        owner = caller(router, "jobs:write")
        body = json.loads(router.current_event.decoded_body or "null")
        if not isinstance(body, dict):  # of a list, Powertools uses the first item only
            raise InvalidRequest("body: must be an object with one job", field="body")
        kind, maker = kinds[request.kind], link_maker(owner)
        if request.webhook_url:
            check_webhook(request.webhook_url, field="webhook_url")
        accepted = submission.submit(
            kind,
            request,
            owner=owner,
            idempotency_key=idempotency_key,
            body=body,
            first_secret=first_secret,
        )
        return accepted_response(accepted, maker, location=f"jobs/{accepted.submission.job.job_id}")

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
    maker = link_maker(owner)
    job = _find(job_id, owner)
    accepted = submission.retry(
        KINDS.get(job.kind), job, idempotency_key=idempotency_key, first_secret=first_secret
    )
    return accepted_response(accepted, maker, location=f"../{accepted.submission.job.job_id}")


@router.get("/jobs", tags=["jobs"], summary="List your jobs, newest first")
def page(
    status: Annotated[Status | None, Query()] = None,
    kind: Annotated[str | None, Query(description="A kind of POST /jobs, or `replay`.")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Annotated[str | None, Query(description="The `cursor` of the previous page.")] = None,
) -> Response[JobPage]:
    owner = caller(router, "jobs:read")
    if cursor is not None and not ids.is_id("job", cursor):
        raise InvalidRequest("This is not the cursor of a page.", field="cursor")
    if kind is not None and kind not in KINDS:
        raise InvalidRequest(f"kind: choose from {', '.join(KINDS)}", field="kind")

    def wanted(job: Job) -> bool:
        return status in (None, job.status) and kind in (None, job.kind)

    found, next_cursor = dependencies.jobs.listing.page(owner, cursor=cursor, limit=limit, wanted=wanted)
    maker = link_maker(owner)
    return json_response({"jobs": [views.job_summary(job, maker) for job in found], "cursor": next_cursor})


@router.get("/jobs/<job_id>", tags=["jobs"], summary="Get a job")
def get(job_id: JobId) -> Response[JobView]:
    owner = caller(router, "jobs:read")
    return json_response(_view(dependencies.jobs.snapshot(jobs.valid_job_id(job_id), owner=owner)))


@router.post("/jobs/<job_id>/cancel", tags=["jobs"], summary="Cancel a job that has not ended")
def cancel(job_id: JobId) -> Response[JobView]:
    owner = caller(router, "jobs:write")
    _find(job_id, owner)
    dependencies.jobs.apply(job_id, jobs.cancel)
    return json_response(_view(dependencies.jobs.snapshot(job_id, owner=owner)))


@router.delete(
    "/jobs/<job_id>",
    tags=["jobs"],
    summary="Delete a job that has ended",
    responses={
        202: {"description": "Deleted; its data is being removed", "content": {}},
        204: {"description": "Deleted; its data was removed", "content": {}},
    },
)
def delete(job_id: JobId) -> Response[Any]:
    """Removes the job with its log, input text, result and payloads, and cancels its pending deliveries.

    Uploads and the live version of a document stay. Repeat the request until it returns 204 to learn when all is
    removed. An open job is a 409: cancel it first.
    """
    owner = caller(router, "jobs:write")
    tombstone = dependencies.tombstones.mark(jobs.valid_job_id(job_id), owner=owner)
    if tombstone.job is None:
        return no_content()
    dependencies.deletion.cancel_deliveries(tombstone, until=time.monotonic() + CANCEL_SECONDS)
    request_deletion(dependencies.sqs, dependencies.settings.indexing_queue_url, tombstone)
    return Response(status_code=202, content_type="application/json", body="")


@router.delete(
    "/jobs/<job_id>/links",
    tags=["jobs"],
    summary="End all links to a job",
    responses={204: {"description": "Ended", "content": {}}},
)
def end_links(job_id: JobId) -> Response[Any]:
    """They are refused from now on, and the job has new ones. WebSockets that they opened end within five minutes.

    A link to a large result is valid for up to five more minutes.
    """
    owner = caller(router, "jobs:write")
    _find(job_id, owner)
    dependencies.jobs.apply(job_id, links.replace_key)
    return no_content()


def _view(snapshot: Snapshot) -> dict[str, Any]:
    history = dependencies.jobs.durations.history(snapshot.job.owner, snapshot.job.kind)
    return views.job_view(snapshot, link_maker(snapshot.job.owner), history)


def link_maker(owner: str) -> views.LinkMaker:
    """Makes links for the caller, who is the owner. It reads the epoch, so it is made before a job is written."""
    config, epoch = dependencies.settings, dependencies.epochs.to_sign(owner, key_id(router))
    return views.LinkMaker(
        root_url(router), config.live_url, config.link_hours, dependencies.blobs.presign_get, epoch
    )


def _find(job_id: str, owner: str) -> Job:
    return dependencies.jobs.get(jobs.valid_job_id(job_id), owner=owner)


def accepted_response(accepted: submission.Accepted, maker: views.LinkMaker, *, location: str) -> Response[Any]:
    """202. The Location is relative, so it is valid for every stage and domain."""
    job, replayed = accepted.submission.job, accepted.submission.replayed
    snapshot = dependencies.jobs.snapshot(job.job_id, owner=job.owner) if replayed else Snapshot(job, None, None)
    body = views.job_view(snapshot, maker, History())
    if accepted.webhook_secret:
        body["webhook_secret"] = accepted.webhook_secret
    headers = {"Location": location, "Retry-After": str(views.retry_after(snapshot, History()))}
    if replayed:
        headers["Idempotent-Replayed"] = "true"
    return json_response(body, status=202, headers=headers)
