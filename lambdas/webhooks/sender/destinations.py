"""Where the messages of a batch lead: each endpoint as it is now, opened, and how its destination is doing.

Read anew for every batch, in one request, so that no warm function goes by what an endpoint was before an edit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.aws.dynamodb import batch_get
from core.dependencies import dependencies
from core.log import logger
from core.webhooks.deliveries.health import AttemptOutcome, Health, health_key, read_health
from core.webhooks.deliveries.queue import Message
from core.webhooks.endpoints.store import Endpoint, endpoint_key, read_endpoint

DestinationKey = tuple[str, str]  # owner, destination


@dataclass(slots=True)
class Destination:
    """An endpoint (None: deleted), the texts of its keys and headers, and what came of its attempts so far."""

    endpoint: Endpoint | None
    health: Health
    secrets: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    unreadable: Exception | None = None
    outcomes: list[AttemptOutcome] = field(default_factory=list)


def look_up(messages: Iterable[Message]) -> dict[DestinationKey, Destination]:
    """The destinations of these messages, by owner and destination."""
    by_lane = {(message.owner, message.destination): message for message in messages}
    items = _read(by_lane.values())
    return {destination: _destination(message, items) for destination, message in by_lane.items()}


def _destination(message: Message, items: Mapping[tuple[str, str], Mapping[str, Any]]) -> Destination:
    health = read_health(
        message.owner, message.destination, items.get(_id(health_key(message.owner, message.destination)))
    )
    item = items.get(_id(endpoint_key(message.owner, message.endpoint_id)))
    destination = Destination(read_endpoint(item) if item else None, health)
    if destination.endpoint:
        _open(destination, destination.endpoint)
    return destination


def _open(destination: Destination, endpoint: Endpoint) -> None:
    """One endpoint whose secret cannot be read keeps none of the others waiting."""
    try:
        destination.secrets = dependencies.endpoints_with_secrets.secrets(endpoint)
        destination.headers = dependencies.endpoints_with_secrets.own_headers(endpoint)
    except Exception as error:
        logger.exception("endpoint's secret cannot be read", endpoint_id=endpoint.endpoint_id)
        destination.unreadable = error


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
