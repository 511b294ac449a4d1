"""Messages whose attempt must not be made now, which uses no attempt of the delivery.

The endpoint is deleted or disabled, its circuit or that of its host is open, the delivery before it has not
ended, or the rate limit is used up. The delivery then ends or waits. A manual attempt is only prevented by the
deletion of its endpoint. Any attempt can be put back, because the sender has no room for it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace

from core.dependencies import dependencies
from core.webhooks.deliveries import schedule
from core.webhooks.deliveries.health import Health
from core.webhooks.deliveries.model import Delivery
from core.webhooks.deliveries.queue import Message
from core.webhooks.deliveries.rows import QUEUE_RETRY_SECONDS
from core.webhooks.endpoints.model import Endpoint
from webhooks.sender.destinations import Destination
from webhooks.sender.endpoint_disabling import disable_if_gone_or_failing

MAX_RECHECK_SECONDS = 4 * 3600
MIN_PUT_BACK_SECONDS, MAX_PUT_BACK_SECONDS = 2, 300
# Later the retry scheduler would queue the delivery again, beside the message that is put back.
MAX_IN_QUEUE_SECONDS = QUEUE_RETRY_SECONDS / 2
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
    if destination.host.health.is_open and not message.host_probe:
        wait_for_circuit(message, endpoint, destination, destination.host.health)
        return True
    if destination.health.is_open and not message.probe:
        wait_for_circuit(message, endpoint, destination, destination.health)
        return True
    if message.follows and is_open(message.follows):
        # the end of that delivery queues this one earlier
        postpone(message, recheck_seconds(time.time() - message.queued_at))
        return True
    return False


def is_rate_limited(message: Message, endpoint: Endpoint) -> bool:
    """Whether the rate limit does not allow the attempt now. Then the delivery has been postponed."""
    if message.manual or endpoint.rate_limit is None:
        return False
    return not has_slot(message, endpoint.rate_limit)


def end(message: Message, status: str, *, reason: str) -> Delivery | None:
    """End the delivery, and queue the one that follows it."""
    ended = dependencies.deliveries.end(message.delivery_id, status, attempts=message.attempts, reason=reason)
    if ended:
        dependencies.after_attempt.follow_up(ended)
    return ended


def drain_circuit(destination: Destination) -> None:
    """Held deliveries of a deleted or disabled endpoint need not wait for its circuit, or for that of its host."""
    if destination.health.is_open:
        dependencies.health.start_draining(destination.health.owner, destination.health.destination)
    if destination.host.health.is_open:
        dependencies.health.half_open(destination.host.health)


def wait_for_circuit(message: Message, endpoint: Endpoint, destination: Destination, circuit: Health) -> None:
    """Hold the delivery, or end it if it has waited longer than all its attempts could have taken."""
    now = time.time()
    if now - message.queued_at <= schedule.span(dependencies.settings.webhook_schedule_seconds):
        dependencies.deliveries.hold(
            message.delivery_id,
            owner=message.owner,
            destination=circuit.destination,
            attempts=message.attempts,
            queued_at=message.queued_at,
        )
        return
    ended = end(message, "failed", reason="circuit_open")
    if ended:
        disable_if_gone_or_failing(ended, endpoint, destination)


def put_back(messages: Sequence[Message]) -> None:
    """Send messages to the queue again, because their attempts have no room now.

    This uses no attempt, and no receive of the queue's limit. The delivery stays in the index of due ones, so it
    is not lost. It waits about as long as it has waited, so that a long backlog of one receiver is not read all
    the time. A delivery with a manual attempt can have ended, and be in no index. So its message stays in the
    queue until there is room.
    """
    now = time.time()
    waiting = [replace(message, waiting_since=message.waiting_since or now) for message in messages]
    delays = {message: _put_back_seconds(message, now) for message in waiting}
    postponed = [
        message
        for message, delay in delays.items()
        if not message.manual and now + delay > (message.waiting_since or now) + MAX_IN_QUEUE_SECONDS
    ]
    for message in postponed:
        postpone(message, _around(QUEUE_RETRY_SECONDS))
    dependencies.webhooks_queue.send_all(
        (message for message in waiting if message not in postponed), delay=delays.__getitem__
    )


def _put_back_seconds(message: Message, now: float) -> float:
    age = now - (message.waiting_since or now)
    return _around(min(MAX_PUT_BACK_SECONDS, max(MIN_PUT_BACK_SECONDS, age)))


def _around(seconds: float) -> float:
    """Spread over a wide range, so that a backlog does not come back at once."""
    return seconds * random.uniform(0.5, 1.5)  # noqa: S311 spreads load


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
