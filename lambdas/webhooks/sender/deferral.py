"""Messages whose attempt must not be made now, which uses no attempt of the delivery.

The endpoint is deleted or disabled, its circuit is open, the delivery before it has not ended, or the rate limit
is used up. The delivery then ends or waits. A manual attempt is only prevented by the deletion of its endpoint.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace

from core.dependencies import dependencies
from core.webhooks.deliveries import schedule
from core.webhooks.deliveries.model import Delivery
from core.webhooks.deliveries.queue import Message
from core.webhooks.deliveries.rows import QUEUE_RETRY_SECONDS
from core.webhooks.endpoints.model import Endpoint
from webhooks.sender.destinations import Destination
from webhooks.sender.endpoint_disabling import disable_if_gone_or_failing

MAX_RECHECK_SECONDS = 4 * 3600
QUEUE_LATENCY_SECONDS = 0.25  # a message can take that long to the sender, so it is sent that much earlier
MAX_SLEEP_SECONDS = 1 + QUEUE_LATENCY_SECONDS  # a queue delays by whole seconds; the sender sleeps for the rest


def is_deferred(message: Message, destination: Destination) -> bool:
    """Whether the attempt must not be made now. Then the delivery has been ended or postponed."""
    endpoint = destination.endpoint
    if endpoint is None:
        end(message, "canceled", reason="deleted")
        drain_circuit(destination)
        return True
    if message.manual:
        return False
    if not endpoint.enabled:
        end(message, "discarded", reason="disabled")
        drain_circuit(destination)
        return True
    if destination.health.is_open and not message.probe:
        wait_for_circuit(message, endpoint, destination)
        return True
    if message.follows and is_open(message.follows):
        # the end of that delivery queues this one earlier
        postpone(message, recheck_seconds(time.time() - message.queued_at))
        return True
    return endpoint.rate_limit is not None and not has_slot(message, endpoint.rate_limit)


def end(message: Message, status: str, *, reason: str) -> Delivery | None:
    """End the delivery, and queue the one that follows it."""
    ended = dependencies.deliveries.end(message.delivery_id, status, attempts=message.attempts, reason=reason)
    if ended:
        dependencies.after_attempt.follow_up(ended)
    return ended


def drain_circuit(destination: Destination) -> None:
    """Held deliveries of a deleted or disabled endpoint need not wait for its circuit."""
    if destination.health.is_open:
        dependencies.health.start_draining(destination.health.owner, destination.health.destination)


def wait_for_circuit(message: Message, endpoint: Endpoint, destination: Destination) -> None:
    """Hold the delivery, or end it if it has waited longer than all its attempts could have taken."""
    now = time.time()
    if now - message.queued_at <= schedule.span(dependencies.settings.webhook_schedule_seconds):
        dependencies.deliveries.hold(
            message.delivery_id,
            owner=message.owner,
            destination=message.destination,
            attempts=message.attempts,
            queued_at=message.queued_at,
        )
        return
    ended = end(message, "failed", reason="circuit_open")
    if ended:
        disable_if_gone_or_failing(ended, endpoint, destination)


def is_open(delivery_id: str) -> bool:
    delivery = dependencies.deliveries.get(delivery_id)
    return delivery is not None and delivery.is_open


def postpone(message: Message, seconds: float) -> bool:
    return bool(
        dependencies.deliveries.postpone(
            message.delivery_id, attempts=message.attempts, until=time.time() + seconds
        )
    )


def has_slot(message: Message, rate: float) -> bool:
    """Whether the rate limit allows the attempt now. If not, the delivery waits for its slot.

    A slot that has passed is lost, because messages that missed their slots together would be sent together.
    """
    slot = message.slot
    if slot is None or slot < time.time() - QUEUE_LATENCY_SECONDS:
        slot = dependencies.rate_limiter.reserve(message.owner, message.destination, rate=rate)
    if slot is None:
        postpone(message, recheck_seconds(time.time() - message.queued_at))
        return False
    wait = slot - time.time()
    if wait > MAX_SLEEP_SECONDS:
        if postpone(message, wait + QUEUE_RETRY_SECONDS):
            delay = int(wait - QUEUE_LATENCY_SECONDS)
            dependencies.webhooks_queue.send(replace(message, slot=slot), delay=delay)
        return False
    time.sleep(max(0.0, wait))
    return True


def recheck_seconds(age: float) -> float:
    """When to check a waiting delivery again: after about as long as it has waited.

    So a backlog of days is not read every 15 minutes, which is how far ahead a rate limit has slots.
    """
    wait = min(MAX_RECHECK_SECONDS, max(QUEUE_RETRY_SECONDS, age))
    return wait * random.uniform(1 - schedule.JITTER, 1 + schedule.JITTER)  # noqa: S311 spreads load
