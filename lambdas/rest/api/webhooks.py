"""Routes under /webhooks, but for /deliveries below them, and /test, which the function `wait` answers."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Body, Path, Query

from core import ids
from core.dependencies import dependencies
from core.errors import Conflict, InvalidRequest, NotFound
from core.events import timestamp
from core.http import answer, caller, root_url
from core.models import JobAccepted, ReplayMode
from core.webhooks import views
from core.webhooks.deliveries.store import destination_of
from core.webhooks.endpoints.store import DEFAULT, Endpoint
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
from rest.api import endpoints
from rest.api.jobs import ACCEPTED, IdempotencyKey, answer_accepted
from rest.api.submission import submit_replay

router = Router()
WebhookId = Annotated[str, Path(description="The id that POST /webhooks answered, or `default`.")]


# ── endpoints ────────────────────────────────────────────────────────────────────────────────────────────


@router.post(
    "/webhooks",
    tags=["webhooks"],
    summary="Have events sent to a URL",
    responses={201: {"description": "Created"}},
)
def create(request: WebhookRequest) -> Response[WebhookWithSecret]:
    """The secret is shown here and never again."""
    endpoint, secret = endpoints.create(request, owner=caller(router, "webhooks:write"))
    location = {"Location": f"webhooks/{endpoint.endpoint_id}"}
    return answer(_view(endpoint) | {"secret": secret}, status=201, headers=location)


@router.get("/webhooks", tags=["webhooks"], summary="Your endpoints, oldest first")
def page() -> Response[WebhookList]:
    owner = caller(router, "webhooks:read")
    found = sorted(dependencies.endpoints.of(owner), key=lambda endpoint: endpoint.created_at)
    return answer({"webhooks": _views(owner, found)})


@router.get("/webhooks/events", tags=["webhooks"], summary="Pings and disabled endpoints, newest first")
def events(
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Annotated[str | None, Query(description="From the page before")] = None,
) -> Response[OwnerEvents]:
    owner = caller(router, "webhooks:read")
    if cursor is not None and not ids.is_id("evt", cursor):
        raise InvalidRequest("This is not a cursor of an earlier page.", field="cursor")
    bodies, following = dependencies.owner_log.page(owner, cursor=cursor, limit=limit)
    return answer({"events": [json.loads(body) for body in bodies], "cursor": following})


@router.get("/webhooks/<webhook_id>", tags=["webhooks"], summary="One endpoint")
def get(webhook_id: WebhookId) -> Response[WebhookView]:
    return answer(_view(_find(webhook_id, "webhooks:read")))


@router.patch("/webhooks/<webhook_id>", tags=["webhooks"], summary="Change an endpoint, or switch it on or off")
def change(webhook_id: WebhookId, request: WebhookPatch) -> Response[WebhookView]:
    return answer(_view(endpoints.change(_find(webhook_id, "webhooks:write"), request)))


@router.delete(
    "/webhooks/<webhook_id>",
    tags=["webhooks"],
    summary="Delete an endpoint",
    responses={204: {"description": "Deleted", "content": {}}},
)
def delete(webhook_id: WebhookId) -> Response[Any]:
    """What still waits for it is canceled. Without `default`, the next job's webhook gets a new secret."""
    endpoints.delete(caller(router, "webhooks:write"), webhook_id)
    return Response(status_code=204, content_type="application/json", body="")


# ── secrets ──────────────────────────────────────────────────────────────────────────────────────────────


@router.post("/webhooks/<webhook_id>/rotate-secret", tags=["webhooks"], summary="Get a new secret")
def rotate_secret(
    webhook_id: WebhookId, request: Annotated[RotationRequest | None, Body()] = None
) -> Response[WebhookWithSecret]:
    """The new secret is shown here and never again. During the grace both sign."""
    owner = caller(router, "webhooks:write")
    endpoint, secret = endpoints.rotate(owner, webhook_id, request or RotationRequest.model_validate({}))
    return answer(_view(endpoint) | {"secret": secret})


@router.get("/webhooks/<webhook_id>/public-key", tags=["webhooks"], summary="What verifies an ed25519 signature")
def public_key(webhook_id: WebhookId) -> Response[PublicKeys]:
    endpoint = _find(webhook_id, "webhooks:read")
    if endpoint.signing != "ed25519":
        raise NotFound("This endpoint signs with a shared secret (hmac), so it has no public key.")
    return answer({"keys": views.public_keys(endpoint, now=time.time())})


# ── sending again ────────────────────────────────────────────────────────────────────────────────────────


@router.post(
    "/webhooks/<webhook_id>/recover",
    tags=["webhooks"],
    summary="Send again what failed or was discarded, as a job",
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
    summary="Send again what happened, as a job",
    responses=ACCEPTED,
)
def replay(
    webhook_id: WebhookId, request: ReplayRequest, idempotency_key: IdempotencyKey = None
) -> Response[JobAccepted]:
    """Also events from before the endpoint existed."""
    endpoint = _enabled(_find(webhook_id, "webhooks:write"))
    if endpoint.is_default:
        raise Conflict("The default endpoint has no URL to replay events to. Recover its deliveries instead.")
    wanted = endpoints.checked_patterns(request.events) if request.events else endpoint.events
    return _submit(endpoint, "replay", request, events=wanted, idempotency_key=idempotency_key)


def _submit(
    endpoint: Endpoint, mode: ReplayMode, window: Window, *, idempotency_key: str | None, **wanted: Any
) -> Response[JobAccepted]:
    _check_window(window)
    accepted = submit_replay(
        owner=endpoint.owner,
        endpoint_id=endpoint.endpoint_id,
        mode=mode,
        since=window.since,
        until=window.until,
        idempotency_key=idempotency_key,
        **{"statuses": (), "events": ()} | wanted,
    )
    return answer_accepted(accepted, location=f"../../jobs/{accepted.submission.job.job_id}")


def _check_window(window: Window) -> None:
    now = timestamp(time.time())
    if window.since > now:
        raise InvalidRequest("since lies in the future.", field="since")
    if window.until is not None and window.until > now:
        raise InvalidRequest("until lies in the future. Leave it out to mean now.", field="until")
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
    destinations = {e.endpoint_id: destination_of(e.endpoint_id, None) for e in found if e.endpoint_id != DEFAULT}
    health = dependencies.health.many(owner, list(destinations.values()))
    root, now = root_url(router), time.time()
    return [views.webhook(e, health.get(destinations.get(e.endpoint_id, "")), root=root, now=now) for e in found]
