"""What must happen after an attempt is recorded, or after a delivery has ended without one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from core import events
from core.aws.batch import MAX_QUEUE_DELAY_SECONDS
from core.jobs import JobStore
from core.webhooks.deliveries.model import Delivery
from core.webhooks.deliveries.queue import Message, WebhooksQueue
from core.webhooks.deliveries.store import DeliveryStore

JOB_BODY_CHARACTERS = 1000  # of a response; a multiple of 4, for base64


class AfterAttempt:
    """Queues the next attempt or the delivery that follows, and shows the result on the job."""

    def __init__(
        self,
        jobs: JobStore,
        deliveries: DeliveryStore,
        queue: WebhooksQueue,
        *,
        clock: Callable[[], float] = lambda: time.time(),
    ) -> None:
        self._jobs, self._deliveries, self._queue, self._clock = jobs, deliveries, queue, clock

    def follow_up(self, delivery: Delivery) -> None:
        """It can be repeated: a sender that finds the delivery of a killed sender does this again."""
        if delivery.status == "pending":
            self._queue_attempt(delivery)
        elif delivery.followed_by and not delivery.is_open:
            self._queue_follower(delivery.followed_by)
        if delivery.url and delivery.job_id:
            last = delivery.last_attempt
            self._jobs.record_webhook(
                delivery.job_id,
                job_webhook(delivery),
                at=last.at if last and delivery.reason is None else events.timestamp(self._clock()),
                expires_at=delivery.job_expires_at or delivery.expires_at,
            )

    def _queue_attempt(self, delivery: Delivery) -> None:
        """If a queue can delay that long; otherwise the retry scheduler does it when the attempt is due."""
        delay = delivery.due - self._clock()
        if delay <= MAX_QUEUE_DELAY_SECONDS:
            self._queue.send(Message.of(delivery, follows=delivery.follows), delay=delay)

    def _queue_follower(self, delivery_id: str) -> None:
        """A follower that has had an attempt keeps the due time of its next one."""
        delivery = self._deliveries.get(delivery_id)
        if delivery and delivery.status == "pending":
            self._queue_attempt(delivery)


def job_webhook(delivery: Delivery) -> dict[str, Any]:
    """The state of a job's own webhook, as the job shows it."""
    shown = ("at", "duration_ms", "status", "error", "message", "body_is_base64")
    last = delivery.last_attempt
    return {
        "url": delivery.url,
        "event": delivery.event,
        "event_id": delivery.event_id,
        "delivery_id": delivery.delivery_id,
        "status": delivery.status,
        "reason": delivery.reason,
        "attempts": delivery.attempts,
        "next_attempt_at": events.timestamp(delivery.due) if delivery.status == "pending" else None,
        "last_attempt": {name: getattr(last, name) for name in shown}
        | {"body": last.body and last.body[:JOB_BODY_CHARACTERS]}
        if last
        else None,
    }
