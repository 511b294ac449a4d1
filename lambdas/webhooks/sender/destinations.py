"""Where the messages of a batch lead: each endpoint as it is now, opened, and how its lane is doing.

Read anew for every batch, in one request, so that no warm function goes by what an endpoint was before an edit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.aws import errors as aws_errors
from core.log import logger
from core.webhooks.deliveries.queue import Message
from core.webhooks.endpoints.health import Health, Outcome, health_key, read_health
from core.webhooks.endpoints.store import Endpoint, endpoint_key, read_endpoint
from webhooks.sender.dependencies import dependencies

Lane = tuple[str, str]  # owner, lane


@dataclass(slots=True)
class Target:
    """An endpoint (None: deleted), the texts of its keys and headers, and what came of its attempts so far."""

    endpoint: Endpoint | None
    health: Health
    secrets: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    unreadable: Exception | None = None
    outcomes: list[Outcome] = field(default_factory=list)


def look_up(messages: Iterable[Message]) -> dict[Lane, Target]:
    """The targets of these messages, by owner and lane."""
    by_lane = {(message.owner, message.lane): message for message in messages}
    items = _read(by_lane.values())
    return {lane: _target(message, items) for lane, message in by_lane.items()}


def _target(message: Message, items: Mapping[tuple[str, str], Mapping[str, Any]]) -> Target:
    health = read_health(message.owner, message.lane, items.get(_id(health_key(message.owner, message.lane))))
    item = items.get(_id(endpoint_key(message.owner, message.endpoint_id)))
    target = Target(read_endpoint(item) if item else None, health)
    if target.endpoint:
        _open(target, target.endpoint)
    return target


def _open(target: Target, endpoint: Endpoint) -> None:
    """One endpoint whose secret cannot be read keeps none of the others waiting."""
    try:
        target.secrets = dependencies().endpoints.secrets(endpoint)
        target.headers = dependencies().endpoints.own_headers(endpoint)
    except Exception as error:
        logger.exception("endpoint's secret cannot be read", endpoint_id=endpoint.endpoint_id)
        target.unreadable = error


def _read(messages: Iterable[Message]) -> dict[tuple[str, str], Mapping[str, Any]]:
    config, client = dependencies().config, dependencies().dynamodb
    keys = [
        (config.jobs_table, endpoint_key(owner, endpoint_id))
        for owner, endpoint_id in dict.fromkeys((message.owner, message.endpoint_id) for message in messages)
    ]
    keys += [(config.deliveries_table, health_key(message.owner, message.lane)) for message in messages]
    wanted: dict[str, Any] = {}
    for table, key in keys:
        wanted.setdefault(table, {"ConsistentRead": True, "Keys": []})["Keys"].append(key)
    found = aws_errors.batch_get(client, wanted)
    return {_id(item): item for items in found.values() for item in items}


def _id(item: Mapping[str, Any]) -> tuple[str, str]:
    return item["pk"], item["sk"]
