"""What an attempt says about its endpoint: whether it is to be disabled, and how its lane is doing."""

from __future__ import annotations

import time
from datetime import datetime

from core.log import logger
from core.webhooks.deliveries.store import Delivery
from core.webhooks.endpoints.store import Endpoint
from webhooks.sender.attempt import GONE
from webhooks.sender.dependencies import DAY_SECONDS, dependencies
from webhooks.sender.destinations import Lane, Target

HOUR_SECONDS = 3600


def judge(delivery: Delivery, endpoint: Endpoint, target: Target, *, status: int | None = None) -> None:
    """Whether the endpoint is to be disabled: at once if it says it is gone, or if it has failed for long."""
    if endpoint.is_default:
        return
    if status == GONE:
        disable(endpoint, reason="gone", delivery=delivery)
    elif delivery.status == "failed" and failing_for_too_long(delivery, target):
        disable(endpoint, reason="failing", delivery=delivery)


def failing_for_too_long(delivery: Delivery, target: Target) -> bool:
    """What this batch has seen is not in the lane's health yet."""
    health = dependencies().health.get(delivery.owner, delivery.lane)
    if health.failing_since is None or any(outcome.succeeded for outcome in target.outcomes):
        return False
    since = datetime.fromisoformat(health.failing_since).timestamp()
    return time.time() - since >= dependencies().config.webhook_disable_after_hours * HOUR_SECONDS


def disable(endpoint: Endpoint, *, reason: str, delivery: Delivery) -> None:
    """Once, however many deliveries fail at this moment; its owner and the operators are told."""
    _, event = dependencies().owner_log.draft(
        endpoint.owner,
        "endpoint.disabled",
        endpoint_id=endpoint.endpoint_id,
        url=endpoint.url,
        reason=reason,
        delivery_id=delivery.delivery_id,
    )
    if dependencies().endpoints.disable(endpoint, reason=reason, also=[event]):
        logger.warning("endpoint disabled", endpoint_id=endpoint.endpoint_id, reason=reason)
        dependencies().health.drain(endpoint.owner, delivery.lane)


def settle(lane: Lane, target: Target) -> None:
    """Tell the lane's health. It decides when to send, never whether, so a failure here fails no message."""
    expiry = int(time.time()) + dependencies().config.delivery_retention_days * DAY_SECONDS
    lasting = target.endpoint is not None and not target.endpoint.is_default
    try:
        dependencies().health.settle(target.health, target.outcomes, expires_at=None if lasting else expiry)
    except Exception:
        logger.exception("health could not be written", lane=lane[1])
