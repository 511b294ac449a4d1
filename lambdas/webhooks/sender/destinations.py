"""The destinations of a batch: each endpoint with its secrets, and the health of the destination.

They are read for every batch, in one request, so that each change of an endpoint applies to the next batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.aws.dynamodb import batch_get
from core.dependencies import DAY_SECONDS, dependencies
from core.jobs_table import endpoint_key
from core.log import logger
from core.webhooks.deliveries.health import AttemptOutcome, Health, health_key, read_health
from core.webhooks.deliveries.queue import Message
from core.webhooks.endpoints.model import Endpoint
from core.webhooks.endpoints.rows import read_endpoint


@dataclass(slots=True)
class Destination:
    """An endpoint (None: deleted) with its decrypted keys and headers, and the outcomes of this batch."""

    endpoint: Endpoint | None
    health: Health
    secrets: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    secrets_error: Exception | None = None
    outcomes: list[AttemptOutcome] = field(default_factory=list)


Destinations = dict[tuple[str, str], Destination]  # by owner and destination


def read_destinations(messages: Iterable[Message]) -> Destinations:
    """The destinations of these messages."""
    by_destination = {(message.owner, message.destination): message for message in messages}
    items = _read(by_destination.values())
    return {key: _destination(message, items) for key, message in by_destination.items()}


def _destination(message: Message, items: Mapping[tuple[str, str], Mapping[str, Any]]) -> Destination:
    health_item = items.get(_id(health_key(message.owner, message.destination)))
    health = read_health(message.owner, message.destination, health_item)
    item = items.get(_id(endpoint_key(message.owner, message.endpoint_id)))
    destination = Destination(read_endpoint(item) if item else None, health)
    if destination.endpoint:
        _decrypt(destination, destination.endpoint)
    return destination


def _decrypt(destination: Destination, endpoint: Endpoint) -> None:
    """An error fails the messages of this destination, and no others."""
    try:
        destination.secrets = dependencies.endpoints_with_secrets.secrets(endpoint)
        destination.headers = dependencies.endpoints_with_secrets.own_headers(endpoint)
    except Exception as error:
        logger.exception("secrets of an endpoint could not be decrypted", endpoint_id=endpoint.endpoint_id)
        destination.secrets_error = error


def _read(messages: Iterable[Message]) -> dict[tuple[str, str], Mapping[str, Any]]:
    config, client = dependencies.settings, dependencies.dynamodb
    keys = [
        (config.jobs_table, endpoint_key(owner, endpoint_id))
        for owner, endpoint_id in dict.fromkeys((message.owner, message.endpoint_id) for message in messages)
    ]
    keys += [(config.deliveries_table, health_key(message.owner, message.destination)) for message in messages]
    wanted: dict[str, Any] = {}
    for table, key in keys:
        wanted.setdefault(table, {"ConsistentRead": True, "Keys": []})["Keys"].append(key)
    found = batch_get(client, wanted)
    return {_id(item): item for items in found.values() for item in items}


def _id(item: Mapping[str, Any]) -> tuple[str, str]:
    return item["pk"], item["sk"]


def record_outcomes(destinations: Destinations) -> None:
    """Add the outcomes of the batch to the health of each destination.

    An error fails no message, because no delivery depends on the health.
    """
    expiry = int(time.time()) + dependencies.settings.delivery_retention_days * DAY_SECONDS
    for destination in destinations.values():
        if not destination.outcomes:
            continue
        is_permanent = destination.endpoint is not None and not destination.endpoint.is_default
        try:
            dependencies.health.record_outcomes(
                destination.health, destination.outcomes, expires_at=None if is_permanent else expiry
            )
        except Exception:
            logger.exception("health could not be written", destination=destination.health.destination)
