"""The destinations of a batch: each endpoint with its secrets, and the health of the destination and of its host.

They are read for every batch, in two requests, so that each change of an endpoint applies to the next batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from core.aws.batch import log_and_continue
from core.aws.dynamodb import batch_get
from core.dependencies import DAY_SECONDS, dependencies
from core.jobs_table import endpoint_key
from core.log import logger
from core.webhooks.deliveries.health import AttemptOutcome, Health, health_key, read_health
from core.webhooks.deliveries.model import Attempt, host_destination
from core.webhooks.deliveries.queue import Message
from core.webhooks.endpoints.model import Endpoint
from core.webhooks.endpoints.rows import read_endpoint

HOST_ERRORS = frozenset({"connect", "dns", "tls", "timeout"})
HOST_STATUSES = frozenset({502, 503, 504})
"""The failures that say that a host is down. Others are of one path, such as 404."""


@dataclass(slots=True)
class Host:
    """A host and port of one owner, with the outcomes of this batch, whichever paths they are of.

    `failures`: consecutive ones, with those before the batch; `max_failures` of them open its circuit.
    `is_verified`: it has answered 2xx at some time.
    """

    health: Health
    failures: int
    max_failures: int
    is_verified: bool
    has_answered_probe: bool = False
    outcomes: list[AttemptOutcome] = field(default_factory=list)

    @classmethod
    def of(cls, health: Health) -> Host:
        return cls(
            health,
            failures=health.consecutive_failures,
            max_failures=health.failures_to_open(dependencies.settings.webhook_circuit_failures),
            is_verified=health.last_success_at is not None,
        )

    @property
    def owner(self) -> str:
        return self.health.owner

    @property
    def name(self) -> str:
        return self.health.destination

    @property
    def is_failing(self) -> bool:
        """Whether the outcomes of this batch open its circuit when they are recorded."""
        return bool(self.outcomes) and self.failures >= self.max_failures

    def note(self, attempt: Attempt, *, probe: bool) -> None:
        """Any 2xx ends the count of failures. Only failures of the host count."""
        if attempt.succeeded:
            self.failures, self.is_verified = 0, True
        elif attempt.error in HOST_ERRORS or attempt.status in HOST_STATUSES:
            self.failures += 1
        else:
            self.has_answered_probe |= probe and attempt.status is not None
            return
        self.outcomes.append(AttemptOutcome(time.time(), attempt.succeeded, ended=False, probe=probe))


@dataclass(slots=True)
class Destination:
    """An endpoint (None: deleted) with its decrypted keys and headers, and the outcomes of this batch."""

    endpoint: Endpoint | None
    health: Health
    host: Host
    secrets: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    secrets_error: Exception | None = None
    outcomes: list[AttemptOutcome] = field(default_factory=list)


Destinations = dict[tuple[str, str], Destination]  # by owner and destination
_Items = Mapping[tuple[str, str], Mapping[str, Any]]  # by pk and sk


def read_destinations(messages: Iterable[Message]) -> Destinations:
    """The destinations of these messages."""
    by_destination = {(message.owner, message.destination): message for message in messages}
    items = _read_endpoints_and_health(by_destination.values())
    found = {key: _endpoint_and_health(message, items) for key, message in by_destination.items()}
    hosts = {key: (key[0], _host_of(by_destination[key], endpoint)) for key, (endpoint, _) in found.items()}
    successes = {hosts[key]: success for key, each in found.items() if (success := _success(*each))}
    by_host = _read_hosts(dict.fromkeys(hosts.values()), successes)
    destinations = {
        key: Destination(endpoint, health, by_host[hosts[key]]) for key, (endpoint, health) in found.items()
    }
    for destination in destinations.values():
        if destination.endpoint:
            _decrypt(destination, destination.endpoint)
    return destinations


def _endpoint_and_health(message: Message, items: _Items) -> tuple[Endpoint | None, Health]:
    health_item = items.get(_id(health_key(message.owner, message.destination)))
    item = items.get(_id(endpoint_key(message.owner, message.endpoint_id)))
    health = read_health(message.owner, message.destination, health_item)
    return read_endpoint(item) if item else None, health


def _host_of(message: Message, endpoint: Endpoint | None) -> str:
    """Messages of an earlier version do not name the host of a job's own URL."""
    if message.host:
        return message.host
    if endpoint and endpoint.url:
        return host_destination(endpoint.url)
    delivery = dependencies.deliveries.get(message.delivery_id) if endpoint else None
    return host_destination(delivery.url if delivery else None)


def _success(endpoint: Endpoint | None, health: Health) -> str | None:
    """The last success at the endpoint's URL; None if the endpoint may have had another URL then."""
    success = health.last_success_at
    return success if endpoint and success and (endpoint.is_default or endpoint.updated_at <= success) else None


def _decrypt(destination: Destination, endpoint: Endpoint) -> None:
    """An error fails the messages of this destination, and no others."""
    try:
        destination.secrets = dependencies.endpoints_with_secrets.secrets(endpoint)
        destination.headers = dependencies.endpoints_with_secrets.own_headers(endpoint)
    except Exception as error:
        logger.exception("secrets of an endpoint could not be decrypted", endpoint_id=endpoint.endpoint_id)
        destination.secrets_error = error


def _read_endpoints_and_health(messages: Iterable[Message]) -> _Items:
    config = dependencies.settings
    keys = [
        (config.jobs_table, endpoint_key(owner, endpoint_id))
        for owner, endpoint_id in dict.fromkeys((message.owner, message.endpoint_id) for message in messages)
    ]
    keys += [(config.deliveries_table, health_key(message.owner, message.destination)) for message in messages]
    return _read(keys)


def _read_hosts(
    hosts: Iterable[tuple[str, str]], successes: Mapping[tuple[str, str], str]
) -> dict[tuple[str, str], Host]:
    """By owner and destination. A host that has no success, as after an update, has that of an endpoint."""
    keys = {host: health_key(*host) for host in hosts}
    items = _read([(dependencies.settings.deliveries_table, key) for key in keys.values()])
    found = {host: read_health(*host, items.get(_id(key))) for host, key in keys.items()}
    return {
        host: Host.of(health if health.last_success_at else replace(health, last_success_at=successes.get(host)))
        for host, health in found.items()
    }


def _read(keys: Sequence[tuple[str, Mapping[str, str]]]) -> _Items:
    """The items with these tables and keys."""
    wanted: dict[str, Any] = {}
    for table, key in keys:
        wanted.setdefault(table, {"ConsistentRead": True, "Keys": []})["Keys"].append(key)
    found = batch_get(dependencies.dynamodb, wanted)
    return {_id(item): item for items in found.values() for item in items}


def _id(item: Mapping[str, Any]) -> tuple[str, str]:
    return item["pk"], item["sk"]


def record_outcomes(destinations: Destinations) -> None:
    """Add the outcomes of the batch to the health of each destination and host.

    An error fails no message, because no delivery depends on the health.
    """
    expiry = int(time.time()) + dependencies.settings.delivery_retention_days * DAY_SECONDS
    for destination in destinations.values():
        is_permanent = destination.endpoint is not None and not destination.endpoint.is_default
        _record(destination.health, destination.outcomes, expires_at=None if is_permanent else expiry)
    for host in {id(each.host): each.host for each in destinations.values()}.values():
        if not _is_known_to_be_well(host):
            _record(host.health, host.outcomes, expires_at=expiry)
        if host.has_answered_probe and not host.outcomes:
            # It is up, but that path fails. Other paths show whether it works.
            with log_and_continue(destination=host.name):
                dependencies.health.half_open(host.health)


def _record(health: Health, outcomes: Sequence[AttemptOutcome], *, expires_at: int | None) -> None:
    if outcomes:
        with log_and_continue(destination=health.destination):
            dependencies.health.record_outcomes(health, outcomes, expires_at=expires_at)


def _is_known_to_be_well(host: Host) -> bool:
    """Whether the outcomes change nothing in its item. A write a day moves the expiry, so that it stays known."""
    health, success = host.health, host.health.last_success_at
    if health.state != "closed" or health.consecutive_failures or host.failures or success is None:
        return False
    return time.time() - datetime.fromisoformat(success).timestamp() < DAY_SECONDS
