"""Sends a job's events to its WebSocket subscribers. It is the second consumer of the jobs table's stream.

A record, of a new event or of a requested subscription, only tells that a job's subscribers may lack events.
Events and subscribers are read from the table, so records may be duplicated, late or batched. The stream invokes
one function at a time for a job, so all messages of a job are sent in order.
https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-params.html (ParallelizationFactor is 1)
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from core import jobs_table
from core.aws import errors as aws_errors
from core.aws.dynamodb import new_image
from core.dependencies import dependencies
from core.errors import JobDeleted, NotFound, Retryable, Unavailable
from core.events import Event
from core.jobs import Job
from core.jobs.steps import done_payload
from core.live import messages
from core.live.sockets import SendOutcome
from core.live.step_channel import encode, last_received
from core.live.subscriptions import HANDSHAKE_SECONDS, Subscribers, Subscription
from core.log import logger

MIN_REMAINING_MILLISECONDS = 15_000
"""The most that sending to the subscribers of one job takes. With less left, the rest of a batch is retried."""
MAX_TRIES = 20
MAX_HANDSHAKE_TRIES = 100
"""A stream that is read more often than AWS reads it ends here."""
MAX_SUBSCRIBERS = 1000
"""Of one job. Everybody who has its link can subscribe, and each subscriber delays the others a little."""
Record = Mapping[str, Any]


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """One job after another. If one fails for now, its first record and all later ones are retried."""
    for job_id, records in _by_job(event["Records"]).items():
        try:
            if context.get_remaining_time_in_millis() < MIN_REMAINING_MILLISECONDS:
                raise Unavailable("the function is about to time out")
            subscribers = _within_limit(dependencies.subscriptions.subscribers(job_id))
            end_steps(job_id, subscribers.of_steps)
            recipients = send_to_subscribers(job_id, subscribers)
            recipients |= {one.connection_id for one in subscribers.of_steps}
            log = [Event.of(item) for item in map(new_image, records) if item["entity"] == "event"]
            send_to_followers(log, already_sent=recipients)
        except (Retryable, BotoCoreError, ClientError) as error:
            logger.warning(
                "events not sent, will retry", job_id=job_id, reason=aws_errors.code(error) or str(error)
            )
            return {"batchItemFailures": [{"itemIdentifier": records[0]["dynamodb"]["SequenceNumber"]}]}
        except Exception:  # a retry would fail, too; the next event of the job sends what is missing
            logger.exception("events not sent", job_id=job_id)
    return {"batchItemFailures": []}


def _by_job(records: Sequence[Record]) -> dict[str, list[Record]]:
    grouped: dict[str, list[Record]] = {}
    for record in records:
        job_id = jobs_table.job_id_of(record["dynamodb"]["Keys"]["pk"]["S"])
        grouped.setdefault(job_id, []).append(record)
    return grouped


def send_to_subscribers(job_id: str, subscribers: Subscribers) -> set[str]:
    """Send each subscriber the events that it lacks. Returns the ids of the subscribers' connections."""
    connection_ids = {one.connection_id for one in subscribers.subscriptions}
    if not connection_ids:
        return connection_ids
    try:
        last, log = _missing_events(job_id, subscribers)
    except NotFound:  # the job was deleted or has expired since they subscribed
        _unsubscribe(subscribers.subscriptions)
        return connection_ids
    if last > subscribers.offset or subscribers.requested:
        outcomes = _send(subscribers, log, last)
        dependencies.subscriptions.save_offset(job_id, last, was=subscribers.offset)
        for subscription in subscribers.subscriptions:
            _record(subscription, outcomes.get(subscription.connection_id, SendOutcome.SENT), last)
    return connection_ids


def _within_limit(subscribers: Subscribers) -> Subscribers:
    """At most MAX_SUBSCRIBERS to events, and as many to steps."""
    offset, some, of_steps = subscribers.offset, subscribers.subscriptions, subscribers.of_steps
    return Subscribers(offset, _first(some), _first(of_steps))


def _first(subscriptions: Sequence[Subscription]) -> list[Subscription]:
    """At most MAX_SUBSCRIBERS. Requests beyond the limit are refused with an error message."""
    active = [one for one in subscriptions if one.active]
    requested = [one for one in subscriptions if not one.active]
    places = max(0, MAX_SUBSCRIBERS - len(active))
    for refused in requested[places:]:
        message = f"This job has {MAX_SUBSCRIBERS} subscribers, which is the limit. Poll its status instead."
        error = messages.of_error("too_many_listeners", message, job_id=refused.job_id)
        dependencies.sockets.send(refused.connection_id, [error])
        dependencies.subscriptions.unsubscribe(refused.connection_id, refused.job_id)
    return [*active, *requested[:places]]


def end_steps(job_id: str, subscriptions: Sequence[Subscription]) -> None:
    """After a job's end, send its subscribers the steps that they lack and `done`, and end the subscriptions.

    Before, the worker sends the steps as it writes them.
    """
    if not subscriptions:
        return
    try:
        job = dependencies.jobs.get(job_id)
    except NotFound:
        _unsubscribe(subscriptions)
        return
    if job.is_final:
        _send_rest(job, subscriptions)


def _send_rest(job: Job, subscriptions: Sequence[Subscription]) -> None:
    """Messages are packed once for each number of steps."""
    steps = dependencies.jobs.steps.read(job.job_id)
    (last,) = dependencies.jobs.log.read(job.job_id, after=job.sequence - 1, limit=1)
    done = messages.of_type(**done_payload(job.job_id, last.payload))
    received = {one.connection_id: last_received(one, steps) for one in subscriptions}
    packed = {
        number: [*encode(job.job_id, [step.payload for step in steps if step.number > number]), done]
        for number in set(received.values())
    }
    outcomes = dependencies.sockets.send_all({one: packed[number] for one, number in received.items()})
    _unsubscribe([one for one in subscriptions if outcomes[one.connection_id] is SendOutcome.SENT])
    for one in subscriptions:
        if outcomes[one.connection_id] is not SendOutcome.SENT:
            _try_again(one, outcomes[one.connection_id])


def _unsubscribe(subscriptions: Sequence[Subscription]) -> None:
    for subscription in subscriptions:
        dependencies.subscriptions.unsubscribe(subscription.connection_id, subscription.job_id)


def _missing_events(job_id: str, subscribers: Subscribers) -> tuple[int, list[Event]]:
    """The sequence of the job's last event, and the events that at least one subscriber lacks."""
    jobs = dependencies.jobs
    job = jobs.get(job_id)  # a deleted job has no subscribers
    # Without active subscribers the offset is unknown, and `after` of a request may be beyond the last event.
    minimum = subscribers.offset if subscribers.active else job.sequence
    log = list(jobs.log.read_all(job_id, after=min(one.after for one in subscribers.subscriptions)))
    return max([minimum, *(event.sequence or 0 for event in log)]), log


def _send(subscribers: Subscribers, log: Sequence[Event], last: int) -> dict[str, SendOutcome]:
    """Messages are packed once for each `after`: a long log for each of many subscribers would fill the memory."""
    packed = {
        after: messages.of_events(event for event in log if (event.sequence or 0) > after)
        for after in {one.after for one in subscribers.subscriptions}
    }
    to_send = {one.connection_id: _messages(one, packed[one.after], last) for one in subscribers.subscriptions}
    return dependencies.sockets.send_all({connection: some for connection, some in to_send.items() if some})


def _messages(subscription: Subscription, log: list[str], last: int) -> list[str]:
    if subscription.active:
        return log
    return [*log, messages.of_type("subscribed", job_id=subscription.job_id, sequence=last)]


def _record(subscription: Subscription, outcome: SendOutcome, offset: int) -> None:
    if outcome is not SendOutcome.SENT:
        _try_again(subscription, outcome)
    elif not subscription.active:
        dependencies.subscriptions.activate(subscription, offset=offset)


def _try_again(subscription: Subscription, outcome: SendOutcome) -> None:
    """What a subscriber lacks is sent again, unless its connection is closed or could not be reached for long."""
    subscriptions = dependencies.subscriptions
    if outcome is SendOutcome.GONE and _handshake_is_over(subscription):
        subscriptions.delete_connection(subscription.connection_id)
    elif outcome is SendOutcome.FAILED and subscription.tries >= MAX_TRIES:
        _disconnect(subscription.connection_id)
    else:  # without a pause, since all jobs of the shard would wait: the stream is read four times a second
        subscriptions.request_again(subscription)


def _handshake_is_over(subscription: Subscription) -> bool:
    return (
        time.time() - subscription.connected_at >= HANDSHAKE_SECONDS or subscription.tries >= MAX_HANDSHAKE_TRIES
    )


def _disconnect(connection_id: str) -> None:
    """A client that is disconnected reconnects and requests what it lacks. Otherwise it would wait for ever."""
    dependencies.sockets.close(connection_id)
    dependencies.subscriptions.delete_connection(connection_id)


def send_to_followers(log: Sequence[Event], *, already_sent: Set[str]) -> None:
    """Send events of one job to the connections that follow its kind, except for `already_sent`."""
    if not log:
        return
    followers = dependencies.subscriptions.followers(log[0].owner, log[0].kind)
    packed, recipients = messages.of_events(log), [one for one in followers if one not in already_sent]
    if recipients and _is_deleted(log[0].job_id):
        return
    for connection_id, outcome in dependencies.sockets.send_all(dict.fromkeys(recipients, packed)).items():
        if outcome is not SendOutcome.SENT:
            _disconnect(connection_id)


def _is_deleted(job_id: str | None) -> bool:
    try:
        dependencies.jobs.get(job_id or "")
    except JobDeleted:
        return True
    except NotFound:  # it has expired
        pass
    return False
