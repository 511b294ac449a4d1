"""The second reader of the jobs table's stream: tells a job's listeners what happened.

A record, of a new event or of somebody who asks to listen, only says that a job has something to tell; what, and
to whom, is read from the table. So a record that comes twice, late or not alone does no harm. All that is said of
a job is said here and one thing after the other, since the stream has one reader at a time for a job.
https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-params.html (ParallelizationFactor is 1)
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from core.aws import errors as aws_errors
from core.aws.dynamodb import stored
from core.dependencies import dependencies
from core.errors import NotFound, Retryable, Unavailable
from core.events import Event
from core.live import messages
from core.live.sockets import SendOutcome
from core.live.subscriptions import CONNECTING_SECONDS, Subscribers, Subscription
from core.log import logger

LEAST_MILLISECONDS = 15_000
"""What telling the listeners of one job may take; with less, the rest of a batch waits for its next turn."""
MAX_TRIES = 20
HANDSHAKE_SECONDS = 0.1
"""Most handshakes are over by then."""
MAX_LISTENERS = 1000
"""Of one job. Whoever has its link can connect, and each makes the others wait a little."""
Record = Mapping[str, Any]


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Jobs one after the other; from the first that cannot be sent now, the stream's records come again."""
    for job_id, records in _by_job(event["Records"]).items():
        try:
            if context.get_remaining_time_in_millis() < LEAST_MILLISECONDS:
                raise Unavailable("there is no time left")
            offset = send_to_subscribers(job_id)
            log = [Event.of(item) for item in map(stored, records) if item["entity"] == "event"]
            send_to_followers(log, told_already=offset)
        except (Retryable, BotoCoreError, ClientError) as error:
            logger.warning("listeners were not sent", job_id=job_id, reason=aws_errors.code(error) or str(error))
            return {"batchItemFailures": [{"itemIdentifier": records[0]["dynamodb"]["SequenceNumber"]}]}
        except Exception:  # it would fail again; the next event of the job makes up for it
            logger.exception("listeners will not be sent", job_id=job_id)
    return {"batchItemFailures": []}


def _by_job(records: Sequence[Record]) -> dict[str, list[Record]]:
    grouped: dict[str, list[Record]] = {}
    for record in records:
        job_id = record["dynamodb"]["Keys"]["pk"]["S"].removeprefix("JOB#")
        grouped.setdefault(job_id, []).append(record)
    return grouped


def send_to_subscribers(job_id: str) -> set[str]:
    """Whatever each has not been sent yet, and who has asked is sent when that is all. Returns who listens."""
    subscribers = _admitted(dependencies.subscriptions.subscribers(job_id))
    listeners = {one.connection_id for one in subscribers.subscriptions}
    if not listeners:
        return listeners
    try:
        last, log = _news(job_id, subscribers)
    except NotFound:  # it has expired since they asked
        for subscription in subscribers.subscriptions:
            dependencies.subscriptions.unsubscribe(subscription.connection_id, job_id)
        return listeners
    if last > subscribers.offset or subscribers.asking:
        outcomes = _tell(subscribers, log, last)
        dependencies.subscriptions.save_offset(job_id, last, was=subscribers.offset)
        for subscription in subscribers.subscriptions:
            _settle(subscription, outcomes.get(subscription.connection_id, SendOutcome.SENT), last)
    return listeners


def _admitted(subscribers: Subscribers) -> Subscribers:
    """Those for whom there is a place; the others are sent that there is none."""
    places = max(0, MAX_LISTENERS - len(subscribers.joined))
    for refused in subscribers.asking[places:]:
        message = f"{MAX_LISTENERS} listen to this job already. Poll its status instead."
        said = messages.of_error("too_many_listeners", message, job_id=refused.job_id)
        dependencies.sockets.tell(refused.connection_id, [said])
        dependencies.subscriptions.unsubscribe(refused.connection_id, refused.job_id)
    return Subscribers(subscribers.offset, [*subscribers.joined, *subscribers.asking[:places]])


def _news(job_id: str, subscribers: Subscribers) -> tuple[int, list[Event]]:
    """The number of the job's last event, and those that somebody has not been sent."""
    jobs = dependencies.jobs
    # Where nobody has joined, nobody knows how far the job is; and who asks may ask for what does not exist yet.
    least = subscribers.offset if subscribers.joined else jobs.get(job_id).sequence
    log = list(jobs.log(job_id, after=min(one.after for one in subscribers.subscriptions)))
    return max([least, *(event.sequence or 0 for event in log)]), log


def _tell(subscribers: Subscribers, log: Sequence[Event], last: int) -> dict[str, SendOutcome]:
    """What is after a number is packed once: a long log for each of many listeners would fill the memory."""
    news = {
        after: messages.of_events(event for event in log if (event.sequence or 0) > after)
        for after in {one.after for one in subscribers.subscriptions}
    }
    said = {one.connection_id: _messages(one, news[one.after], last) for one in subscribers.subscriptions}
    return dependencies.sockets.send_all({who: what for who, what in said.items() if what})


def _messages(subscription: Subscription, news: list[str], last: int) -> list[str]:
    if subscription.joined:
        return news
    return [*news, messages.about("subscribed", job_id=subscription.job_id, sequence=last)]


def _settle(subscription: Subscription, outcome: SendOutcome, offset: int) -> None:
    subscriptions = dependencies.subscriptions
    if outcome is SendOutcome.SENT:
        if not subscription.joined:
            subscriptions.join(subscription, offset=offset)
    elif outcome is SendOutcome.GONE and time.time() - subscription.connected_at >= CONNECTING_SECONDS:
        subscriptions.forget(subscription.connection_id)
    elif outcome is SendOutcome.FAILED and subscription.tries >= MAX_TRIES:
        _end(subscription.connection_id)
    else:
        time.sleep(HANDSHAKE_SECONDS if outcome is SendOutcome.GONE else 0)
        subscriptions.ask_again(subscription)


def _end(connection_id: str) -> None:
    """A client that is cut off comes back and asks for what it has missed; one that is not would wait for ever."""
    dependencies.sockets.close(connection_id)
    dependencies.subscriptions.forget(connection_id)


def send_to_followers(log: Sequence[Event], *, told_already: Set[str]) -> None:
    """These events of one job, to those who follow its kind."""
    if not log:
        return
    followers = dependencies.subscriptions.followers(log[0].owner, log[0].kind)
    said, to_tell = messages.of_events(log), [one for one in followers if one not in told_already]
    for connection_id, outcome in dependencies.sockets.send_all(dict.fromkeys(to_tell, said)).items():
        if outcome is not SendOutcome.SENT:
            _end(connection_id)
