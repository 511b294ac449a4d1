"""What follows once an attempt is written down, or a delivery has ended."""

from __future__ import annotations

import time
from collections.abc import Callable

from core import events
from core.jobs import JobStore
from core.webhooks.deliveries.queue import Message, WebhooksQueue
from core.webhooks.deliveries.store import MAX_QUEUE_DELAY_SECONDS, Delivery, DeliveryStore, for_job


class AfterAttempt:
    """The next attempt, the delivery that waits for this one's end, and what the job's owner sees of it."""

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
        """Done again it does no harm, so whoever finds a delivery whose sender died does it again."""
        if delivery.status == "pending":
            self._plan(delivery)
        elif delivery.followed_by and not delivery.is_open:
            self._release(delivery.followed_by)
        if delivery.url and delivery.job_id:
            last = delivery.last_attempt
            self._jobs.record_webhook(
                delivery.job_id,
                for_job(delivery),
                at=last.at if last and delivery.reason is None else events.timestamp(self._clock()),
                expires_at=delivery.job_expires_at or delivery.expires_at,
            )

    def _plan(self, delivery: Delivery) -> None:
        """Queue the next attempt, unless it is farther ahead than the queue can delay: then the index wakes it."""
        delay = delivery.due - self._clock()
        if delay <= MAX_QUEUE_DELAY_SECONDS:
            self._queue.send(Message.of(delivery, follows=delivery.follows), delay=delay)

    def _release(self, delivery_id: str) -> None:
        """Its turn has come: what it follows has ended. If it has been tried already, it keeps its own time."""
        delivery = self._deliveries.get(delivery_id)
        if delivery and delivery.status == "pending":
            self._plan(delivery)
