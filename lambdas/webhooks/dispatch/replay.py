"""Webhooks sent again, in the background: a job of kind `replay`, worked through slice by slice.

A slice is short, so that what happens now is not kept waiting by what happened then. It ends by moving the job's
cursor and sending itself a message to go on. A delivery remembers the replay that requeued it, so a slice that is
done twice sends nothing twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from core import ids, jobs
from core.dependencies import MINUTE_SECONDS, dependencies
from core.errors import JobClosed, NotFound
from core.events import Event
from core.jobs import Job
from core.log import logger
from core.webhooks.deliveries.queue import Message
from core.webhooks.deliveries.store import Delivery, id_of
from core.webhooks.endpoints.store import Endpoint
from kinds.replay.kind import REPLAY
from webhooks.dispatch.order import waits
from webhooks.dispatch.outbox import deliver, wants

Found = tuple[Delivery, bool]  # and whether it waits for another
REQUESTED, CONTINUED = REPLAY.first_name, f"{REPLAY.name}.continued"
SLICE = 100  # deliveries, or jobs whose logs are read
MARGIN_SECONDS = 3600  # how late beyond its deadline a job may end


def go_on(job_id: str) -> None:
    """Do the next slice of a replay."""
    try:
        job = dependencies.jobs.get(job_id)
        if job.status == "queued":
            job = dependencies.jobs.apply(job_id, jobs.begin(REPLAY, stage="send", lease=job_id))
    except NotFound:
        logger.warning("job has expired", job_id=job_id)
        return
    if job.is_final:
        return
    endpoint = dependencies.endpoints.find(job.owner, job.subject["webhook_id"])
    if endpoint is None:
        message = "The endpoint was deleted."
        dependencies.jobs.apply(job_id, jobs.fail(code="not_found", message=message))
        return
    try:
        _slice(job, endpoint)
    except JobClosed:
        logger.info("replay was ended", job_id=job_id)


def _slice(job: Job, endpoint: Endpoint) -> None:
    work = WORK[job.input["mode"]]
    progress = dependencies.jobs.load_progress(job.job_id)
    done, total, was = progress or (0, work.count(job), None)
    cursor = Cursor.read(was)
    if not cursor.ended:
        sent, examined, place = work.slice(job, endpoint, cursor.place)
        cursor = Cursor(sent=cursor.sent + sent, place=place, ended=examined < SLICE)
        done += examined
        saved = dependencies.jobs.save_progress(
            job, done=done, total=max(total, done), cursor=cursor.text, was=was
        )
        if not saved:  # another worker was faster, and goes on
            return
    if cursor.ended:
        result = {"sent": cursor.sent}
        dependencies.jobs.apply(job.job_id, jobs.complete(REPLAY, lease=job.job_id, result=result))
    else:
        _continue(job)


def _continue(job: Job) -> None:
    dependencies.sqs.send_message(
        QueueUrl=dependencies.settings.notify_queue_url,
        MessageBody=json.dumps({"event": CONTINUED, "job_id": job.job_id}),
        MessageGroupId=job.owner,
    )


@dataclass(frozen=True, slots=True)
class Cursor:
    """How many deliveries were requeued so far, and where to go on."""

    sent: int = 0
    place: str = ""
    ended: bool = False

    @classmethod
    def read(cls, text: str | None) -> Cursor:
        return cls(*json.loads(text)) if text else cls()

    @property
    def text(self) -> str:
        return json.dumps([self.sent, self.place, self.ended])


class Recover:
    """Deliveries that failed or were discarded, by when they were made."""

    def count(self, job: Job) -> int:
        return sum(
            dependencies.deliveries.count_unsent(job.owner, job.subject["webhook_id"], status, **_span(job))
            for status in job.input["statuses"]
        )

    def slice(self, job: Job, endpoint: Endpoint, place: str) -> tuple[int, int, str]:
        status, _, after = place.partition(" ")
        statuses = job.input["statuses"]
        found: list[Found] = []
        examined = 0
        for current in statuses[statuses.index(status) if status else 0 :]:
            low = after if current == status else ""
            entries = dependencies.deliveries.unsent(
                job.owner, endpoint.endpoint_id, current, after=low, limit=SLICE - examined, **_span(job)
            )
            for entry in entries:
                examined, place = examined + 1, f"{current} {entry['gsi2sk']}"
                found += _requeue(entry, job, status=current)
            if examined == SLICE:
                break
        return _send(found), examined, place


def _requeue(entry: dict[str, Any], job: Job, *, status: str) -> Iterator[Found]:
    """Where order matters, it waits for the one before it, if that is on its way again. A test is over."""
    delivery = dependencies.deliveries.get(id_of(entry))
    if delivery is None or delivery.single:
        return
    again = dependencies.deliveries.requeue(
        delivery, replay=job.job_id, follows=delivery.follows, statuses=(status,)
    )
    if again:
        yield again, waits(again)


class Replay:
    """Events that the endpoint wants, job by job, whether or not they were ever sent to it."""

    def count(self, job: Job) -> int:
        return dependencies.jobs.count(job.owner, **_jobs_span(job))

    def slice(self, job: Job, endpoint: Endpoint, place: str) -> tuple[int, int, str]:
        span = _jobs_span(job)
        found: list[Found] = []
        examined = 0
        past_jobs = dependencies.jobs.oldest_first(job.owner, **span | ({"after": place} if place else {}))
        for past in islice(past_jobs, SLICE):
            found += _again(past, job, endpoint)
            examined, place = examined + 1, past.job_id
        return _send(found), examined, place


def _again(past: Job, job: Job, endpoint: Endpoint) -> Iterator[Found]:
    """What this replay sends of one job's log, and whether it waits: where order matters, for the one before it.

    Done again after a death it is the same, so that the chain is whole.
    """
    former: Delivery | None = None
    for event in dependencies.jobs.log(past.job_id):
        if not _is_meant(event, job, endpoint):
            continue
        follows = former.delivery_id if former and endpoint.ordered else None
        delivery = _deliver_again(event, job, endpoint, follows)
        former = delivery
        if delivery.replay == job.job_id:
            yield delivery, waits(delivery)


def _is_meant(event: Event, job: Job, endpoint: Endpoint) -> bool:
    """A replay's own events are not replayed: they would never end."""
    if event.kind == job.kind or not job.input["since"] <= event.timestamp < job.input["until"]:
        return False
    return wants(endpoint, event, names=job.input["events"])


def _deliver_again(event: Event, job: Job, endpoint: Endpoint, follows: str | None) -> Delivery:
    """A delivery that there was before keeps its bytes. One that somebody has in hand is left to him."""
    delivery = deliver(event, endpoint, follows=follows, replay=job.job_id)
    if delivery.replay == job.job_id:
        return delivery
    return dependencies.deliveries.requeue(delivery, replay=job.job_id, follows=follows) or delivery


def _is_due(delivery: Delivery) -> bool:
    """Not where it has been sent since, and failed: then its next attempt is planned."""
    return delivery.status == "pending" and delivery.due <= time.time()


def _send(found: list[Found]) -> int:
    """Queue those whose turn it is; returns how many are sent, now or in turn."""
    ready = (delivery for delivery, waits in found if not waits and _is_due(delivery))
    dependencies.webhooks_queue.send_all(map(Message.of, ready))
    return len(found)


def _span(job: Job) -> dict[str, str]:
    return {"since": job.input["since"], "until": job.input["until"]}


def _jobs_span(job: Job) -> dict[str, str]:
    """Ids between which all jobs lie that can have logged something in the span."""
    since, until = (datetime.fromisoformat(job.input[name]).timestamp() for name in ("since", "until"))
    earliest = since - dependencies.settings.job_deadline_minutes * MINUTE_SECONDS - MARGIN_SECONDS
    return {"after": ids.floor("job", max(0, earliest)), "before": ids.floor("job", until)}


WORK: dict[str, Recover | Replay] = {"recover": Recover(), "replay": Replay()}
