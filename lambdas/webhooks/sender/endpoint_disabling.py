"""What an attempt says about its endpoint: whether it is to be disabled, and how its destination is doing."""

from __future__ import annotations

import time
from datetime import datetime

from core.dependencies import DAY_SECONDS, dependencies
from core.log import logger
from core.webhooks.deliveries.store import Delivery
from core.webhooks.endpoints.store import Endpoint
from webhooks.sender.attempt import GONE
from webhooks.sender.destinations import Destination, DestinationKey

HOUR_SECONDS = 3600


def judge(delivery: Delivery, endpoint: Endpoint, destination: Destination, *, status: int | None = None) -> None:
    """Whether the endpoint is to be disabled: at once if it says it is gone, or if it has failed for long."""
    if endpoint.is_default:
        return
    if status == GONE:
        disable(endpoint, reason="gone", delivery=delivery)
    elif delivery.status == "failed" and failing_for_too_long(delivery, destination):
        disable(endpoint, reason="failing", delivery=delivery)


def failing_for_too_long(delivery: Delivery, destination: Destination) -> bool:
    """What this batch has seen is not in the destination's health yet."""
    health = dependencies.health.get(delivery.owner, delivery.destination)
    if health.failing_since is None or any(outcome.succeeded for outcome in destination.outcomes):
        return False
    since = datetime.fromisoformat(health.failing_since).timestamp()
    return time.time() - since >= dependencies.settings.webhook_disable_after_hours * HOUR_SECONDS


def disable(endpoint: Endpoint, *, reason: str, delivery: Delivery) -> None:
    """Once, however many deliveries fail at this moment; its owner and the operators are told."""
    _, event = dependencies.owner_log.draft(
        endpoint.owner,
        "endpoint.disabled",
        endpoint_id=endpoint.endpoint_id,
        url=endpoint.url,
        reason=reason,
        delivery_id=delivery.delivery_id,
    )
    if dependencies.endpoints.disable(endpoint, reason=reason, also=[event]):
        logger.warning("endpoint disabled", endpoint_id=endpoint.endpoint_id, reason=reason)
        dependencies.health.drain(endpoint.owner, delivery.destination)


def record_health(key: DestinationKey, destination: Destination) -> None:
    """Add the batch's outcomes to the health, which decides when to send, never whether: an error here fails no message."""
    expiry = int(time.time()) + dependencies.settings.delivery_retention_days * DAY_SECONDS
    lasting = destination.endpoint is not None and not destination.endpoint.is_default
    try:
        dependencies.health.settle(
            destination.health, destination.outcomes, expires_at=None if lasting else expiry
        )
    except Exception:
        logger.exception("health could not be written", destination=key[1])
