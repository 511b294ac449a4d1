"""The modes of a replay: `recover` sends deliveries that ended without success, `replay` sends events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from core import ids
from core.dependencies import MINUTE_SECONDS, dependencies
from core.events import Event
from core.jobs import Job
from core.webhooks.deliveries.model import Delivery
from core.webhooks.deliveries.queue import Message
from core.webhooks.deliveries.rows import id_of
from core.webhooks.endpoints.model import Endpoint
from webhooks.dispatch.order import link_to_predecessor
from webhooks.dispatch.outbox import Created, deliver, unless_deleted, wants

MARGIN_SECONDS = 3600  # a job ends at most so long after its deadline


@dataclass(frozen=True, slots=True)
class Slice:
    """The result of one slice: deliveries sent, items examined, and the position of the next slice."""

    sent: int
    examined: int
    position: str


class Recover:
    """Deliveries that failed or were discarded, in the order of their creation, one status after the other.

    A position is the status and the sort key of the last index entry.
    """

    def count(self, job: Job) -> int:
        return sum(
            dependencies.delivery_index.count_unsent(job.owner, job.subject["webhook_id"], status, **_window(job))
            for status in job.input["statuses"]
        )

    def run_slice(self, job: Job, endpoint: Endpoint, position: str, *, limit: int) -> Slice:
        status, _, after = position.partition(" ")
        statuses = job.input["statuses"]
        requeued: list[Created] = []
        examined = 0
        for current in statuses[statuses.index(status) if status else 0 :]:
            entries = dependencies.delivery_index.unsent(
                job.owner,
                endpoint.endpoint_id,
                current,
                after=after if current == status else "",
                limit=limit - examined,
                **_window(job),
            )
            for entry in entries:
                examined, position = examined + 1, f"{current} {entry['gsi2sk']}"
                requeued += _requeue(entry, job, status=current)
            if examined == limit:
                break
        return Slice(_send(requeued), examined, position)


def _requeue(entry: dict[str, Any], job: Job, *, status: str) -> Iterator[Created]:
    """At an ordered endpoint it waits for its predecessor if that is open again. Tests are not sent again."""
    delivery = dependencies.deliveries.get(id_of(entry))
    if delivery is None or delivery.single:
        return
    again = dependencies.deliveries.requeue(
        delivery, replay=job.job_id, follows=delivery.follows, statuses=(status,)
    )
    if again:
        yield again, link_to_predecessor(again)


class Replay:
    """Events that the endpoint wants, job by job, delivered before or not. A position is the last job's id."""

    def count(self, job: Job) -> int:
        return dependencies.jobs.listing.count(job.owner, **_job_ids(job))

    def run_slice(self, job: Job, endpoint: Endpoint, position: str, *, limit: int) -> Slice:
        span = _job_ids(job)
        requeued: list[Created] = []
        examined = 0
        past_jobs = dependencies.jobs.listing.oldest_first(
            job.owner, **span | ({"after": position} if position else {})
        )
        for past in islice(past_jobs, limit):
            requeued += unless_deleted(past.job_id, list(_send_log(past, job, endpoint)))
            examined, position = examined + 1, past.job_id
        return Slice(_send(requeued), examined, position)


def _send_log(past: Job, job: Job, endpoint: Endpoint) -> Iterator[Created]:
    """The deliveries of one job's log that this replay sends.

    A repetition, after a worker was killed, yields the same deliveries, so the chain of an ordered endpoint is
    complete.
    """
    predecessor: Delivery | None = None
    for event in dependencies.jobs.log.read_all(past.job_id):
        if not _is_replayed(event, job, endpoint):
            continue
        follows = predecessor.delivery_id if predecessor and endpoint.ordered else None
        delivery = _deliver_again(event, job, endpoint, follows)
        predecessor = delivery
        if delivery.replay == job.job_id:
            yield delivery, link_to_predecessor(delivery)


def _is_replayed(event: Event, job: Job, endpoint: Endpoint) -> bool:
    """Not events of replays: a replay would never end."""
    if event.kind == job.kind or not job.input["since"] <= event.timestamp < job.input["until"]:
        return False
    return wants(endpoint, event, names=job.input["events"])


def _deliver_again(event: Event, job: Job, endpoint: Endpoint, follows: str | None) -> Delivery:
    """A new delivery, or the existing one with its bytes. One that is claimed stays as it is."""
    delivery = deliver(event, endpoint, follows=follows, replay=job.job_id)
    if delivery.replay == job.job_id:
        return delivery
    return dependencies.deliveries.requeue(delivery, replay=job.job_id, follows=follows) or delivery


def _is_due(delivery: Delivery) -> bool:
    """Not if an attempt since the requeue has failed: its next attempt is due later."""
    return delivery.status == "pending" and delivery.due <= time.time()


def _send(requeued: list[Created]) -> int:
    """Queue the deliveries that wait for no other; returns the number of all of them."""
    ready = (delivery for delivery, waits in requeued if not waits and _is_due(delivery))
    dependencies.webhooks_queue.send_all(map(Message.of, ready))
    return len(requeued)


def _window(job: Job) -> dict[str, str]:
    return {"since": job.input["since"], "until": job.input["until"]}


def _job_ids(job: Job) -> dict[str, str]:
    """The range of ids of all jobs that can have events in the window of the replay."""
    since, until = (datetime.fromisoformat(job.input[name]).timestamp() for name in ("since", "until"))
    earliest = since - dependencies.settings.job_deadline_minutes * MINUTE_SECONDS - MARGIN_SECONDS
    return {"after": ids.floor("job", max(0, earliest)), "before": ids.floor("job", until)}


MODES: dict[str, Recover | Replay] = {"recover": Recover(), "replay": Replay()}
