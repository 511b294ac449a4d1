"""Create, change, delete and rotate endpoints, for the routes under /webhooks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from core import events
from core.dependencies import DAY_SECONDS, dependencies
from core.errors import Conflict, InvalidRequest
from core.webhooks.deliveries.model import destination_of, host_destination
from core.webhooks.endpoints import patterns
from core.webhooks.endpoints.model import DEFAULT, Endpoint, missing, rotated
from core.webhooks.models import RotationRequest, WebhookPatch, WebhookRequest
from kinds.registry import KINDS
from rest.api.job_webhooks import check_webhook

CHANGEABLE_IN_DEFAULT = ("description", "enabled")
"""The fields of the default endpoint that can be changed. Each job names its own URL and events."""


def create(request: WebhookRequest, *, owner: str) -> tuple[Endpoint, str | None]:
    """Write a new endpoint; returns it with the secret to show. Raises Conflict over the limit.

    Concurrent requests do not count each other's endpoints. The limit keeps the query of each event small, so a
    few more do no harm.
    """
    check_webhook(request.url, field="url")
    limit = dependencies.settings.max_webhooks
    if sum(not endpoint.is_default for endpoint in dependencies.endpoints.of(owner)) >= limit:
        raise Conflict(
            f"You have {limit} endpoints, which is the limit. Each counts until it is deleted, except `default`. "
            "Delete one first."
        )
    facts = request.model_dump(exclude={"headers", "secret"}) | {"events": checked_patterns(request.events)}
    endpoint, secret = dependencies.endpoints_with_secrets.draft(
        owner, secret=request.secret, headers=request.headers, **facts
    )
    dependencies.endpoints.create(endpoint)
    return endpoint, secret


def change(endpoint: Endpoint, patch: WebhookPatch) -> Endpoint:
    """Apply the patch. Held deliveries are sent if the URL or `enabled` has changed."""
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
        _send_held(former)
    return changed


def delete(owner: str, endpoint_id: str) -> None:
    """Raises NotFound if there is none. The sender cancels its open deliveries."""
    endpoint = dependencies.endpoints.get(owner, endpoint_id)
    seconds = dependencies.settings.delivery_retention_days * DAY_SECONDS
    dependencies.endpoints.keep_id(owner, endpoint_id, seconds=seconds)
    if not dependencies.endpoints.delete(owner, endpoint_id):
        raise missing(endpoint_id)
    _send_held(endpoint, expires_after=dependencies.settings.job_retention_days * DAY_SECONDS)


def rotate(owner: str, endpoint_id: str, request: RotationRequest) -> tuple[Endpoint, str | None]:
    """Give an endpoint a new key; returns it with the secret to show. Creates the default endpoint if needed."""
    if endpoint_id == DEFAULT and dependencies.endpoints.find(owner) is None:
        endpoint, secret = dependencies.endpoints_with_secrets.draft(owner, DEFAULT, secret=request.secret)
        with suppress(Conflict):  # another request has created it, so this one rotates
            dependencies.endpoints.create(endpoint)
            return endpoint, secret
    endpoint = dependencies.endpoints.get(owner, endpoint_id)
    if request.secret and endpoint.signing == "ed25519":
        raise InvalidRequest(
            "This endpoint signs with ed25519, whose keys are generated here. Leave the secret out.",
            field="secret",
        )
    key, secret = dependencies.endpoints_with_secrets.make_key(
        owner, endpoint_id, signing_kind=endpoint.signing, secret=request.secret
    )

    def with_key(current: Endpoint) -> Endpoint:
        return rotated(current, key, grace_seconds=request.grace_seconds, now=time.time())

    _, changed = _write(endpoint, with_key)
    return changed, secret


def checked_patterns(given: Sequence[str]) -> tuple[str, ...]:
    """The patterns without duplicates. Raises InvalidRequest, with the field, for an invalid one."""
    for number, pattern in enumerate(given):
        try:
            patterns.check_pattern(pattern, KINDS.values())
        except ValueError as error:
            raise InvalidRequest(str(error), field=f"events.{number}") from None
    return tuple(dict.fromkeys(given))


def _check_default(changes: dict[str, Any]) -> None:
    for name in changes:
        if name not in CHANGEABLE_IN_DEFAULT:
            raise InvalidRequest(
                f"Only {' and '.join(CHANGEABLE_IN_DEFAULT)} of the default endpoint can be changed: each job has "
                "its own URL and events. Create another endpoint with POST /webhooks.",
                field=name,
            )


def _edit(endpoint: Endpoint, changes: dict[str, Any]) -> Callable[[Endpoint], Endpoint]:
    """A function that applies the changes to the current endpoint. Headers are encrypted before it is called."""
    facts = {name: value for name, value in changes.items() if name not in ("headers", "enabled")}
    if "headers" in changes:
        encrypted = dependencies.endpoints_with_secrets.with_headers(endpoint, changes["headers"])
        facts |= {"headers": encrypted.headers, "encrypted_headers": encrypted.encrypted_headers}

    def edit(current: Endpoint) -> Endpoint:
        return _enable(replace(current, **facts), changes.get("enabled", current.enabled))

    return edit


def _enable(endpoint: Endpoint, enabled: bool) -> Endpoint:
    """Enabled or disabled by the owner. If it is disabled already, the reason stays as it is."""
    if enabled == endpoint.enabled:
        return endpoint
    if enabled:
        return replace(endpoint, enabled=True, disabled_reason=None, disabled_at=None)
    return replace(endpoint, enabled=False, disabled_reason="owner", disabled_at=events.timestamp(time.time()))


def _write(endpoint: Endpoint, edit: Callable[[Endpoint], Endpoint]) -> tuple[Endpoint, Endpoint]:
    """The endpoint before and after. Raises NotFound if it has been deleted since it was read."""
    former = endpoint

    def edit_and_note(current: Endpoint) -> Endpoint:
        nonlocal former
        former = current
        return edit(current)

    changed = dependencies.endpoints.change(endpoint.owner, endpoint.endpoint_id, edit_and_note)
    if changed is None:
        raise missing(endpoint.endpoint_id)
    return former, changed


def _send_held(endpoint: Endpoint, *, expires_after: int | None = None) -> None:
    """Have the deliveries sent that are held for the circuit, or for that of the endpoint's host.

    `expires_after`: seconds to keep the health. The default endpoint has a destination for each URL; the sender
    does this for them.
    """
    if endpoint.is_default:
        return
    destination = destination_of(endpoint.endpoint_id, None)
    expires_at = None if expires_after is None else int(time.time()) + expires_after
    dependencies.health.start_draining(endpoint.owner, destination, expires_at=expires_at)
    dependencies.health.release_host(endpoint.owner, host_destination(endpoint.url))
