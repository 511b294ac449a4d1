"""Messages of the dead-letter queue: an attempt whose sender failed each time counts as a failed attempt."""

from __future__ import annotations

import time

from core import events
from core.dependencies import dependencies
from core.log import logger
from core.webhooks.deliveries import schedule
from core.webhooks.deliveries.model import Attempt
from core.webhooks.deliveries.queue import Message

INTERNAL_ERROR = "The service could not send this attempt."


def record_failed_attempt(body: str) -> bool:
    """Record the attempt of a message as failed. Returns whether the message can be deleted.

    It cannot while a sender has claimed the attempt.
    """
    message = Message.parse(body)
    deliveries = dependencies.deliveries
    claimed = deliveries.claim(message.delivery_id, attempts=message.attempts, manual=message.manual)
    if claimed is None:
        delivery = deliveries.get(message.delivery_id)
        return delivery is None or delivery.attempts != message.attempts or delivery.lease_until <= time.time()
    attempt = Attempt(
        number=claimed.attempts + 1,
        at=events.timestamp(time.time()),
        trigger="manual" if message.manual else "automatic",
        url=claimed.url or "",
        error="internal",
        message=INTERNAL_ERROR,
    )
    recorded = deliveries.record(claimed, attempt, wait=next_wait(claimed.tries + 1))
    logger.error("webhook could not be sent", delivery_id=claimed.delivery_id, attempts=attempt.number)
    if recorded:
        dependencies.after_attempt.follow_up(recorded)
    return True


def next_wait(tries: int) -> int | None:
    return schedule.next_wait(
        dependencies.settings.webhook_schedule_seconds, tries, status=None, retry_after=None, now=time.time()
    )
