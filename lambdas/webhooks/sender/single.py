"""Sends one message: claim, attempt and record, each with a call of its own."""

from __future__ import annotations

import time
from collections.abc import Callable

from core.aws.batch import Failures, receives
from core.dependencies import dependencies
from core.log import logger
from core.webhooks.deliveries.health import AttemptOutcome
from core.webhooks.deliveries.model import Attempt, Delivery
from core.webhooks.deliveries.queue import Message
from core.webhooks.endpoints.model import Endpoint
from core.webhooks.transport.lookups import LookupsBusy
from webhooks.sender.attempt import make_attempt, next_wait
from webhooks.sender.deferral import is_deferred, is_rate_limited, put_back
from webhooks.sender.destinations import Destination, Destinations
from webhooks.sender.endpoint_disabling import disable_if_gone_or_failing
from webhooks.sender.in_flight import SLOW_SECONDS, InFlight
from webhooks.sender.received import Received


class AttemptInProgress(Exception):
    """Another sender has claimed the attempt. The message stays in the queue in case that sender is killed."""


def send_single(received: Received, destinations: Destinations, failures: Failures, in_flight: InFlight) -> None:
    """An exception fails the message."""
    destination = destinations[received.message.owner, received.message.destination]
    with failures.of(received.record):
        if not is_deferred(received.message, destination):
            _send_if_room(received, destination, in_flight)


def _send_if_room(received: Received, destination: Destination, in_flight: InFlight) -> None:
    message, host = received.message, destination.host
    is_checked = not (message.manual or message.probe)
    running = in_flight.start(host, wait_seconds=SLOW_SECONDS)
    if running is None:
        put_back([message])
        return
    try:
        if is_checked and host.is_failing:
            put_back([message])
        elif destination.endpoint and not is_rate_limited(message, destination.endpoint):
            _send(received, destination, on_attempted=lambda: in_flight.end(running))
    finally:
        in_flight.end(running)


def _send(received: Received, destination: Destination, *, on_attempted: Callable[[], None]) -> None:
    message = received.message
    claimed = dependencies.deliveries.claim(message.delivery_id, attempts=message.attempts, manual=message.manual)
    if claimed is None:
        check_unclaimable(received, destination)
    elif destination.endpoint:
        attempt = attempt_claimed(claimed, message, destination.endpoint, destination)
        on_attempted()
        if attempt:
            record(claimed, attempt, message, destination.endpoint, destination)


def check_unclaimable(received: Received, destination: Destination) -> None:
    """The attempt was made, is being made, or was recorded by a sender that was killed before the follow-up."""
    message = received.message
    delivery = dependencies.deliveries.get(message.delivery_id)
    if delivery is None:
        return
    if delivery.attempts == message.attempts and delivery.lease_until > time.time():
        raise AttemptInProgress(delivery.delivery_id)
    if receives(received.record) > 1:
        dependencies.after_attempt.follow_up(delivery)
        last, endpoint = delivery.last_attempt, destination.endpoint
        if last and endpoint and endpoint.updated_at <= last.at:
            disable_if_gone_or_failing(delivery, endpoint, destination, status=last.status)


def attempt_claimed(
    claimed: Delivery, message: Message, endpoint: Endpoint, destination: Destination
) -> Attempt | None:
    """None if no attempt could be made yet. Then the message has been put back."""
    if destination.secrets_error:
        raise destination.secrets_error
    trigger = "manual" if message.manual else "probe" if message.probe else "automatic"
    try:
        attempt = make_attempt(claimed, endpoint, destination, trigger=trigger)
    except LookupsBusy:
        dependencies.deliveries.release(claimed)
        put_back([message])
        return None
    destination.host.note(attempt, probe=message.host_probe)
    return attempt


def record(
    claimed: Delivery, attempt: Attempt, message: Message, endpoint: Endpoint, destination: Destination
) -> None:
    recorded = dependencies.deliveries.record(
        claimed, attempt, wait=next_wait(claimed, attempt), ordered=endpoint.ordered
    )
    if recorded is None:
        logger.error("claim lost", delivery_id=claimed.delivery_id)
        return
    finish_attempt(recorded, attempt, endpoint, destination, probe=message.probe)


def finish_attempt(
    recorded: Delivery, attempt: Attempt, endpoint: Endpoint, destination: Destination, *, probe: bool
) -> None:
    """Do all that follows from a recorded attempt."""
    outcome = AttemptOutcome(time.time(), attempt.succeeded, ended=not recorded.is_open, probe=probe)
    destination.outcomes.append(outcome)
    logger.info(
        "webhook attempt",
        delivery_id=recorded.delivery_id,
        attempt=attempt.number,
        status=attempt.status,
        error_class=attempt.error,
        duration_ms=attempt.duration_ms,
    )
    dependencies.after_attempt.follow_up(recorded)
    disable_if_gone_or_failing(recorded, endpoint, destination, status=attempt.status)
