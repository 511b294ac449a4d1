"""Routes under /webhooks, except /deliveries and, in the function `long_poll`, /test."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Annotated, Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Body, Path, Query

from core import ids
from core.dependencies import dependencies
from core.errors import Conflict, InvalidRequest, NotFound
from core.events import timestamp
from core.http import caller, json_response, no_content, root_url
from core.jobs import Job
from core.jobs.models import JobAccepted
from core.submission import submit_input
from core.webhooks import views
from core.webhooks.deliveries.model import destination_of, host_destination
from core.webhooks.endpoints.model import DEFAULT, Endpoint
from core.webhooks.models import (
    OwnerEvents,
    PublicKeys,
    RecoverRequest,
    ReplayRequest,
    RotationRequest,
    WebhookList,
    WebhookPatch,
    WebhookRequest,
    WebhookView,
    WebhookWithSecret,
    Window,
)
from kinds.replay.kind import REPLAY, ReplayMode
from rest.api import endpoints
from rest.api.jobs import ACCEPTED, IdempotencyKey, accepted_response, link_maker

router = Router()
WebhookId = Annotated[str, Path(description="The id from POST /webhooks, or `default`.")]


# ── endpoints ────────────────────────────────────────────────────────────────────────────────────────────


@router.post(
    "/webhooks",
    tags=["webhooks"],
    summary="Have events sent to a URL",
    responses={201: {"description": "Created"}},
)
def create(request: WebhookRequest) -> Response[WebhookWithSecret]:
    """The secret is shown only in this response."""
    endpoint, secret = endpoints.create(request, owner=caller(router, "webhooks:write"))
    location = {"Location": f"webhooks/{endpoint.endpoint_id}"}
    return json_response(_view(endpoint) | {"secret": secret}, status=201, headers=location)


@router.get("/webhooks", tags=["webhooks"], summary="Your endpoints, oldest first")
def page() -> Response[WebhookList]:
    owner = caller(router, "webhooks:read")
    found = sorted(dependencies.endpoints.of(owner), key=lambda endpoint: endpoint.created_at)
    return json_response({"webhooks": _views(owner, found)})


@router.get("/webhooks/events", tags=["webhooks"], summary="Pings and disabled endpoints, newest first")
def events(
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Annotated[str | None, Query(description="From the previous page")] = None,
) -> Response[OwnerEvents]:
    owner = caller(router, "webhooks:read")
    if cursor is not None and not ids.is_id("evt", cursor):
        raise InvalidRequest("This is not a cursor from an earlier page.", field="cursor")
    bodies, following = dependencies.owner_log.page(owner, cursor=cursor, limit=limit)
    return json_response({"events": [json.loads(body) for body in bodies], "cursor": following})


@router.get("/webhooks/<webhook_id>", tags=["webhooks"], summary="One endpoint")
def get(webhook_id: WebhookId) -> Response[WebhookView]:
    return json_response(_view(_find(webhook_id, "webhooks:read")))


@router.patch("/webhooks/<webhook_id>", tags=["webhooks"], summary="Change, enable or disable an endpoint")
def change(webhook_id: WebhookId, request: WebhookPatch) -> Response[WebhookView]:
    return json_response(_view(endpoints.change(_find(webhook_id, "webhooks:write"), request)))


@router.delete(
    "/webhooks/<webhook_id>",
    tags=["webhooks"],
    summary="Delete an endpoint",
    responses={204: {"description": "Deleted", "content": {}}},
)
def delete(webhook_id: WebhookId) -> Response[Any]:
    """Its open deliveries are canceled. After `default`, the next job with a webhook gets a new secret."""
    endpoints.delete(caller(router, "webhooks:write"), webhook_id)
    return no_content()


# ── secrets ──────────────────────────────────────────────────────────────────────────────────────────────


@router.post("/webhooks/<webhook_id>/rotate-secret", tags=["webhooks"], summary="Get a new secret")
def rotate_secret(
    webhook_id: WebhookId, request: Annotated[RotationRequest | None, Body()] = None
) -> Response[WebhookWithSecret]:
    """The new secret is shown only in this response. Until `grace_seconds` are over, both secrets sign."""
    owner = caller(router, "webhooks:write")
    endpoint, secret = endpoints.rotate(owner, webhook_id, request or RotationRequest.model_validate({}))
    return json_response(_view(endpoint) | {"secret": secret})


@router.get(
    "/webhooks/<webhook_id>/public-key",
    tags=["webhooks"],
    summary="Public keys of an ed25519 endpoint",
)
def public_key(webhook_id: WebhookId) -> Response[PublicKeys]:
    endpoint = _find(webhook_id, "webhooks:read")
    if endpoint.signing != "ed25519":
        raise NotFound("This endpoint signs with a shared secret (hmac), so it has no public key.")
    return json_response({"keys": views.public_keys(endpoint, now=time.time())})


# ── recover and replay ────────────────────────────────────────────────────────────────────────────────────────


@router.post(
    "/webhooks/<webhook_id>/recover",
    tags=["webhooks"],
    summary="Send failed and discarded deliveries again, as a job",
    responses=ACCEPTED,
)
def recover(
    webhook_id: WebhookId, request: RecoverRequest, idempotency_key: IdempotencyKey = None
) -> Response[JobAccepted]:
    endpoint = _enabled(_find(webhook_id, "webhooks:write"))
    return _submit(endpoint, "recover", request, statuses=request.status, idempotency_key=idempotency_key)


@router.post(
    "/webhooks/<webhook_id>/replay",
    tags=["webhooks"],
    summary="Send events again, as a job",
    responses=ACCEPTED,
)
def replay(
    webhook_id: WebhookId, request: ReplayRequest, idempotency_key: IdempotencyKey = None
) -> Response[JobAccepted]:
    """Including events from before the endpoint existed."""
    endpoint = _enabled(_find(webhook_id, "webhooks:write"))
    if endpoint.is_default:
        raise Conflict("The default endpoint has no URL to replay events to. Recover its deliveries instead.")
    wanted = endpoints.checked_patterns(request.events) if request.events else endpoint.events
    return _submit(endpoint, "replay", request, events=wanted, idempotency_key=idempotency_key)


def _submit(
    endpoint: Endpoint, mode: ReplayMode, window: Window, *, idempotency_key: str | None, **wanted: Any
) -> Response[JobAccepted]:
    _check_window(window)
    maker = link_maker(endpoint.owner)
    given: dict[str, Any] = {
        "webhook_id": endpoint.endpoint_id,
        "mode": mode,
        "since": window.since,
        "until": window.until,
        "statuses": list(wanted.get("statuses", ())),
        "events": list(wanted.get("events", ())),
    }
    accepted = submit_input(
        REPLAY, given, owner=endpoint.owner, idempotency_key=idempotency_key, complete=_until_now
    )
    return accepted_response(accepted, maker, location=f"../../jobs/{accepted.submission.job.job_id}")


def _until_now(job: Job) -> Job:
    """The default of `until` is the time of the submission, so that the job does not replay its own events."""
    return replace(job, input={**job.input, "until": job.input["until"] or job.created_at})


def _check_window(window: Window) -> None:
    now = timestamp(time.time())
    if window.since > now:
        raise InvalidRequest("since is in the future.", field="since")
    if window.until is not None and window.until > now:
        raise InvalidRequest("until is in the future. Leave it out to use the current time.", field="until")
    if window.until is not None and window.since >= window.until:
        raise InvalidRequest("since must be before until.", field="since")


def _enabled(endpoint: Endpoint) -> Endpoint:
    if not endpoint.enabled:
        raise Conflict("The endpoint is disabled. Enable it first: PATCH it with enabled: true.")
    return endpoint


# ── views ────────────────────────────────────────────────────────────────────────────────────────────────


def _find(webhook_id: str, scope: str) -> Endpoint:
    return dependencies.endpoints.get(caller(router, scope), webhook_id)


def _view(endpoint: Endpoint) -> dict[str, Any]:
    return _views(endpoint.owner, [endpoint])[0]


def _views(owner: str, found: list[Endpoint]) -> list[dict[str, Any]]:
    """With the health of each endpoint and of its host. The default endpoint has none."""
    destinations = {e.endpoint_id: destination_of(e.endpoint_id, None) for e in found if e.endpoint_id != DEFAULT}
    hosts = {e.endpoint_id: host_destination(e.url) for e in found if e.endpoint_id != DEFAULT}
    health = dependencies.health.many(owner, [*destinations.values(), *hosts.values()])
    root, now = root_url(router), time.time()
    return [
        views.webhook(
            e,
            health.get(destinations.get(e.endpoint_id, "")),
            health.get(hosts.get(e.endpoint_id, "")),
            root=root,
            now=now,
        )
        for e in found
    ]
