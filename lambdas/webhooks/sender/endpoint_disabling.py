"""Disables endpoints that respond with 410, or that have failed for a long time."""

from __future__ import annotations

import time
from datetime import datetime
from urllib.parse import urlsplit

from core.dependencies import HOUR_SECONDS, dependencies
from core.log import logger
from core.webhooks.deliveries.model import Delivery
from core.webhooks.endpoints.model import Endpoint
from webhooks.sender.attempt import GONE
from webhooks.sender.destinations import Destination


def disable_if_gone_or_failing(
    delivery: Delivery, endpoint: Endpoint, destination: Destination, *, status: int | None = None
) -> None:
    """`status` is that of the last response. The default endpoint is never disabled."""
    if endpoint.is_default:
        return
    if status == GONE:
        disable(endpoint, destination, reason="gone", delivery=delivery)
    elif delivery.status == "failed" and failing_for_too_long(delivery, destination):
        disable(endpoint, destination, reason="failing", delivery=delivery)


def failing_for_too_long(delivery: Delivery, destination: Destination) -> bool:
    """The health in the table does not yet include this batch, so its successes are checked here."""
    health = dependencies.health.get(delivery.owner, delivery.destination)
    if health.failing_since is None or any(outcome.succeeded for outcome in destination.outcomes):
        return False
    since = datetime.fromisoformat(health.failing_since).timestamp()
    return time.time() - since >= dependencies.settings.webhook_disable_after_hours * HOUR_SECONDS


def disable(endpoint: Endpoint, destination: Destination, *, reason: str, delivery: Delivery) -> None:
    """Disable it, with an event for its owner and the operators. Of concurrent calls, one does it."""
    _, event = dependencies.owner_log.draft(
        endpoint.owner,
        "endpoint.disabled",
        endpoint_id=endpoint.endpoint_id,
        host=urlsplit(endpoint.url or "").netloc,  # the rest of the URL can contain a token
        reason=reason,
        delivery_id=delivery.delivery_id,
    )
    if dependencies.endpoints.disable(endpoint, reason=reason, also=[event]):
        logger.warning("endpoint disabled", endpoint_id=endpoint.endpoint_id, reason=reason)
        dependencies.health.start_draining(endpoint.owner, delivery.destination)
        dependencies.health.release_host(endpoint.owner, destination.host.name)
