"""Once a minute: what the webhooks queue cannot do by itself.

Deliveries whose next attempt is farther ahead than a queue can delay, those that were written and never queued,
those that wait for a circuit, and messages that failed too often.
"""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

from core import events
from core.aws.batch import drain, log_and_continue
from core.dependencies import dependencies
from core.log import logger
from core.webhooks.deliveries import schedule
from core.webhooks.deliveries.health import Health
from core.webhooks.deliveries.queue import Message
from core.webhooks.deliveries.store import DUE_SHARDS, Attempt

WORKERS = 8
PAGE = 100
CANDIDATES = 10  # for a probe, of which the first will do unless the index lags
SECONDS = 45  # of the minute until the next run: what is left over is woken then
FAILED_HERE = "Sending failed on our side."


def handler(event: dict[str, Any], context: Any) -> None:
    until = time.monotonic() + SECONDS
    with log_and_continue(step="dead letters"):
        drain(dependencies.sqs, dependencies.settings.webhooks_dlq_url, never_sent)
    with log_and_continue(step="circuits"):
        look_at_circuits(until - SECONDS / 2)
    shards = random.sample(range(DUE_SHARDS), DUE_SHARDS)  # so that a backlog in some starves no others for long
    with ThreadPoolExecutor(WORKERS) as pool:
        woken = sum(pool.map(functools.partial(queue_due, until=until), shards))
    if woken:
        logger.info("deliveries woken", count=woken)


def look_at_circuits(until: float) -> None:
    """Those that have waited longest come first, so what is left over comes next time."""
    for health in dependencies.health.due_circuits():
        with log_and_continue(destination=health.destination):
            look_at(health, until)
        if time.monotonic() > until:
            return


def queue_due(shard: int, *, until: float) -> int:
    """Queue what is due; returns how many."""
    woken = 0
    with log_and_continue(shard=str(shard)):
        for entries in pages(dependencies.deliveries.due(shard)):
            woken += wake(entries)
            if time.monotonic() > until:
                break
    return woken


def pages(entries: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    rest = iter(entries)
    while page := list(islice(rest, PAGE)):
        yield page


def wake(entries: Iterable[Mapping[str, Any]], **facts: Any) -> int:
    """Queue the deliveries of these index entries that still stand there; returns how many."""
    woken = [delivery for delivery in map(dependencies.deliveries.wake, entries) if delivery]
    dependencies.webhooks_queue.send_all(
        Message.of(delivery, follows=delivery.follows, **facts) for delivery in woken
    )
    return len(woken)


# ── circuits ─────────────────────────────────────────────────────────────────────────────────────────────────


def look_at(health: Health, until: float) -> None:
    """An open circuit gets a probe; one that has closed lets go of what it held."""
    if health.is_open:
        give_up_the_oldest(health)
        probe(health)
    else:
        release(health, until)


def probe(health: Health) -> None:
    """Send the oldest that is held, to see whether the receiver works again."""
    entries = dependencies.deliveries.held(health.owner, health.destination, limit=CANDIDATES)
    if not entries:
        dependencies.health.half_open(health)
    elif dependencies.health.begin_probe(health):
        # an entry may be out of date: the first that is not will do
        any(wake([entry], probe=True) for entry in entries)


def give_up_the_oldest(health: Health) -> None:
    """What has waited longer than its attempts would have taken: the sender ends it, as it is with the sender to
    judge the endpoint by it."""
    span = schedule.span(dependencies.settings.webhook_schedule_seconds)
    long_ago = events.timestamp(time.time() - span)
    wake(dependencies.deliveries.held(health.owner, health.destination, until=long_ago, limit=PAGE))


def release(health: Health, until: float) -> None:
    while entries := dependencies.deliveries.held(health.owner, health.destination, limit=PAGE):
        if not wake(entries) or time.monotonic() > until:
            return
    if time.time() > health.drained_at:
        dependencies.health.close(health)


# ── dead letters ─────────────────────────────────────────────────────────────────────────────────────────────


def never_sent(body: str) -> bool:
    """A sender that failed each time counts as one failed attempt, on our side: the schedule goes on."""
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
        message=FAILED_HERE,
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
