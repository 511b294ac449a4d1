"""What the routes under /webhooks do to endpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from core import events
from core.dependencies import DAY_SECONDS, dependencies
from core.errors import Conflict, InvalidRequest
from core.webhooks.deliveries.store import destination_of
from core.webhooks.endpoints import patterns
from core.webhooks.endpoints.store import DEFAULT, Endpoint, missing, rotated
from core.webhooks.models import RotationRequest, WebhookPatch, WebhookRequest
from kinds.registry import KINDS
from rest.api.submission import check_webhook

OF_DEFAULT = ("description", "enabled")
"""What can be changed of the default endpoint: jobs name their URLs and events."""


def create(request: WebhookRequest, *, owner: str) -> tuple[Endpoint, str | None]:
    """Write a new endpoint; returns it with the secret to show. Raises Conflict for one too many.

    Those that are made at the same moment do not count each other. The limit is there to keep what every event
    reads small, and one more does no harm.
    """
    check_webhook(request.url, field="url")
    limit = dependencies.settings.max_webhooks
    if sum(not endpoint.is_default for endpoint in dependencies.endpoints.of(owner)) >= limit:
        raise Conflict(f"You have {limit} endpoints, which is the limit. Delete one first.")
    facts = request.model_dump(exclude={"headers", "secret"}) | {"events": checked_patterns(request.events)}
    endpoint, secret = dependencies.endpoints_with_secrets.draft(
        owner, secret=request.secret, headers=request.headers, **facts
    )
    dependencies.endpoints.create(endpoint)
    return endpoint, secret


def change(endpoint: Endpoint, patch: WebhookPatch) -> Endpoint:
    """Change what the patch names, and let go of what is held if it may fare better now."""
    changes = patch.changes
    if endpoint.is_default:
        _check_default(changes)
    if "url" in changes:
        check_webhook(changes["url"], field="url")
    if "events" in changes:
        changes["events"] = checked_patterns(changes["events"])
    if not changes:
        return endpoint
    former, changed = _write(endpoint, _edit(endpoint, changes))
    if (former.url, former.enabled) != (changed.url, changed.enabled):
        _release(changed)
    return changed


def delete(owner: str, endpoint_id: str) -> None:
    """Raises NotFound where there is none. What waits for it ends as canceled."""
    endpoint = dependencies.endpoints.get(owner, endpoint_id)
    if not dependencies.endpoints.delete(owner, endpoint_id):
        raise missing(endpoint_id)
    _release(endpoint, seconds=dependencies.settings.job_retention_days * DAY_SECONDS)


def rotate(owner: str, endpoint_id: str, request: RotationRequest) -> tuple[Endpoint, str | None]:
    """Give an endpoint a new key; returns it with the secret to show. Makes the default one, if there is none."""
    if endpoint_id == DEFAULT and dependencies.endpoints.find(owner) is None:
        endpoint, secret = dependencies.endpoints_with_secrets.draft(owner, DEFAULT, secret=request.secret)
        with suppress(Conflict):  # another request was faster: then this one rotates
            dependencies.endpoints.create(endpoint)
            return endpoint, secret
    endpoint = dependencies.endpoints.get(owner, endpoint_id)
    if request.secret and endpoint.signing == "ed25519":
        raise InvalidRequest("This endpoint signs with ed25519, whose keys are made here.", field="secret")
    key, secret = dependencies.endpoints_with_secrets.make_key(
        owner, endpoint_id, signing_kind=endpoint.signing, secret=request.secret
    )

    def with_key(current: Endpoint) -> Endpoint:
        return rotated(current, key, grace_seconds=request.grace_seconds, now=time.time())

    _, changed = _write(endpoint, with_key)
    return changed, secret


def checked_patterns(given: Sequence[str]) -> tuple[str, ...]:
    """The same, each once. Raises InvalidRequest, naming the field, for one that covers nothing."""
    for number, pattern in enumerate(given):
        try:
            patterns.check_pattern(pattern, KINDS.values())
        except ValueError as error:
            raise InvalidRequest(str(error), field=f"events.{number}") from None
    return tuple(dict.fromkeys(given))


def _check_default(changes: dict[str, Any]) -> None:
    for name in changes:
        if name not in OF_DEFAULT:
            raise InvalidRequest(
                f"Of the default endpoint only {' and '.join(OF_DEFAULT)} can be changed: each job names its own "
                "URL and events. POST /webhooks makes an endpoint that has more.",
                field=name,
            )


def _edit(endpoint: Endpoint, changes: dict[str, Any]) -> Callable[[Endpoint], Endpoint]:
    """What these changes make of the endpoint as it is at the moment of the write. Headers are sealed before."""
    facts = {name: value for name, value in changes.items() if name not in ("headers", "enabled")}
    if "headers" in changes:
        sealed = dependencies.endpoints_with_secrets.with_headers(endpoint, changes["headers"])
        facts |= {"headers": sealed.headers, "sealed_headers": sealed.sealed_headers}

    def edit(current: Endpoint) -> Endpoint:
        return _switch(replace(current, **facts), changes.get("enabled", current.enabled))

    return edit


def _switch(endpoint: Endpoint, enabled: bool) -> Endpoint:
    """Switched on or off by hand. Why it was off before stays known until it is on again."""
    if enabled == endpoint.enabled:
        return endpoint
    if enabled:
        return replace(endpoint, enabled=True, disabled_reason=None, disabled_at=None)
    return replace(endpoint, enabled=False, disabled_reason="owner", disabled_at=events.timestamp(time.time()))


def _write(endpoint: Endpoint, edit: Callable[[Endpoint], Endpoint]) -> tuple[Endpoint, Endpoint]:
    """The endpoint before and after. Raises NotFound where it has been deleted meanwhile."""
    former = endpoint

    def noting(current: Endpoint) -> Endpoint:
        nonlocal former
        former = current
        return edit(current)

    changed = dependencies.endpoints.change(endpoint.owner, endpoint.endpoint_id, noting)
    if changed is None:
        raise missing(endpoint.endpoint_id)
    return former, changed


def _release(endpoint: Endpoint, *, seconds: int | None = None) -> None:
    """Have what is held looked at again. The default endpoint has a destination for every URL, which the sender finds."""
    if endpoint.is_default:
        return
    expires_at = None if seconds is None else int(time.time()) + seconds
    dependencies.health.drain(endpoint.owner, destination_of(endpoint.endpoint_id, None), expires_at=expires_at)
