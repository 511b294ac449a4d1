"""Why a delivery is not sent now: its endpoint is gone or disabled, its circuit open, its turn not come, its rate
used up. It waits, or ends, without spending an attempt. What somebody asked for by hand waits for none of this."""

from __future__ import annotations

import random
import time
from dataclasses import replace

from core.dependencies import dependencies
from core.webhooks.deliveries import schedule
from core.webhooks.deliveries.queue import Message
from core.webhooks.deliveries.store import SAFETY_SECONDS, Delivery
from core.webhooks.endpoints.store import Endpoint
from webhooks.sender.destinations import Destination
from webhooks.sender.endpoint_disabling import judge

MAX_PATIENCE_SECONDS = 4 * 3600
LATE_SECONDS = 0.25  # what a message may take from the queue to here: it is sent so much earlier
NAP_SECONDS = 1 + LATE_SECONDS  # a queue delays by whole seconds; what is left is slept


def is_deferred(message: Message, destination: Destination) -> bool:
    """Whether this message is done with, without an attempt."""
    endpoint = destination.endpoint
    if endpoint is None:
        end(message, "canceled", reason="deleted")
        release(destination)
        return True
    if message.manual:
        return False
    if not endpoint.enabled:
        end(message, "discarded", reason="disabled")
        release(destination)
        return True
    if destination.health.is_open and not message.probe:
        wait_for_circuit(message, endpoint, destination)
        return True
    if message.follows and still_open(message.follows):
        postpone(message, patience(time.time() - message.queued_at))  # its end wakes this one, long before
        return True
    return endpoint.rate_limit is not None and not has_slot(message, endpoint.rate_limit)


def end(message: Message, status: str, *, reason: str) -> Delivery | None:
    """End the delivery, and let the one go that waits for it."""
    ended = dependencies.deliveries.end(message.delivery_id, status, attempts=message.attempts, reason=reason)
    if ended:
        dependencies.after_attempt.follow_up(ended)
    return ended


def release(destination: Destination) -> None:
    """What is held for a circuit has nothing to wait for any more."""
    if destination.health.is_open:
        dependencies.health.drain(destination.health.owner, destination.health.destination)


def wait_for_circuit(message: Message, endpoint: Endpoint, destination: Destination) -> None:
    """Hold it; or give it up, if it has been held for longer than its attempts would have taken."""
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
        judge(ended, endpoint, destination)


def still_open(delivery_id: str) -> bool:
    delivery = dependencies.deliveries.get(delivery_id)
    return delivery is not None and delivery.is_open


def postpone(message: Message, seconds: float) -> bool:
    return bool(
        dependencies.deliveries.postpone(
            message.delivery_id, attempts=message.attempts, until=time.time() + seconds
        )
    )


def has_slot(message: Message, rate: float) -> bool:
    """Whether it may be sent now; else it has been given a time at which it may.

    A slot that was missed is lost: those who missed theirs together must not be sent together.
    """
    slot = message.slot
    if slot is None or slot < time.time() - LATE_SECONDS:
        slot = dependencies.health.reserve(message.owner, message.destination, rate=rate)
    if slot is None:
        postpone(message, patience(time.time() - message.queued_at))
        return False
    wait = slot - time.time()
    if wait > NAP_SECONDS:
        if postpone(message, wait + SAFETY_SECONDS):
            dependencies.webhooks_queue.send(replace(message, slot=slot), delay=int(wait - LATE_SECONDS))
        return False
    time.sleep(max(0.0, wait))
    return True


def patience(age: float) -> float:
    """Seconds after which to look at it again: about as long as it has waited, so that a backlog of days is not
    looked through every quarter of an hour, which is how far ahead a rate limit gives out slots."""
    pause = min(MAX_PATIENCE_SECONDS, max(SAFETY_SECONDS, age))
    return pause * random.uniform(1 - schedule.JITTER, 1 + schedule.JITTER)  # noqa: S311 spreads load
