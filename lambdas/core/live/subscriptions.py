"""WebSocket connections, their subscriptions to jobs, the kinds that they follow, and tickets.

A subscription is an item beside the job's log. The table's stream brings it to the function `push`, which sends
the events that the subscriber has not received and then makes the subscription active. The stream invokes one
function at a time for a job, so a replay does not overtake a new event. If two run at once all the same (DynamoDB
may split a shard), each notices the other by the offset and starts again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from core import events, jobs_table
from core.aws import errors as aws_errors
from core.aws.dynamodb import MAX_KEYS, Item, UnexpiredItems, get_all
from core.errors import Contended, Forbidden

# https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-execution-service-websocket-limits-table.html
CONNECTION_SECONDS = 2 * 3600
"""API Gateway closes a connection after this time."""
HANDSHAKE_SECONDS = 5
"""During its handshake a connection cannot receive messages, and API Gateway reports it as gone."""
EXPIRY_MARGIN_SECONDS = 600
OFFSET_SECONDS = 86_400
"""How long the offset of a job's subscribers is stored after it changed."""
TICKET_SECONDS = 60
MAX_SUBSCRIPTIONS = 100
"""Jobs and kinds for each connection."""

TICKET_REFUSED = "This ticket is invalid, was used before or has expired. POST /live/tickets returns a new one."

REQUESTED, ACTIVE = "requested", "active"
CONCURRENT_PUSH = "two functions send to the subscribers of a job at once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """`job_id`: the only job it may subscribe to, if it was opened by a link. `connected_at`: epoch seconds.

    `epoch`: the owner's, when it was opened. `link`: the fingerprint of the job's link key then.
    `may_ask`: whether it may submit questions.
    """

    connection_id: str
    owner: str
    connected_at: int
    job_id: str | None = None
    epoch: int = 0
    link: str | None = None
    may_ask: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """What a ticket was issued for. The caller checks the epoch."""

    owner: str
    epoch: int
    may_ask: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A connection to which the events of a job after sequence `after` are sent.

    `request_id` changes with each request for the subscription. `tries`: how often sending has failed.
    `steps`: the number of the last step that was sent, if the connection gets the job's steps in place of events.
    """

    connection_id: str
    job_id: str
    after: int
    request_id: str
    connected_at: int
    tries: int = 0
    active: bool = False
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class Subscribers:
    """The subscriptions to a job's events. All events through sequence `offset` were sent to the active ones.

    `of_steps`: the subscriptions to its steps.
    """

    offset: int
    subscriptions: Sequence[Subscription]
    of_steps: Sequence[Subscription] = ()

    @property
    def active(self) -> list[Subscription]:
        return [subscription for subscription in self.subscriptions if subscription.active]

    @property
    def requested(self) -> list[Subscription]:
        return [subscription for subscription in self.subscriptions if not subscription.active]


class Subscriptions:
    """Items of the jobs table. `client` is a resource's client."""

    def __init__(self, client: Any, table: str, *, clock: Callable[[], float] = time.time) -> None:
        self._client, self._table, self._clock = client, table, clock
        self._unexpired = UnexpiredItems(client, table, clock)

    # ── tickets and connections ──────────────────────────────────────────────────────────────────────────

    def issue_ticket(self, owner: str, *, epoch: int = 0, may_ask: bool = False) -> tuple[str, int]:
        """A ticket for one connection of this owner in this epoch, and when it expires (epoch seconds)."""
        ticket, expires_at = secrets.token_urlsafe(24), int(self._clock()) + TICKET_SECONDS
        facts = {"entity": "ticket", "owner": owner, "epoch": epoch, "may_ask": may_ask, "expires_at": expires_at}
        self._put(jobs_table.ticket_key(ticket) | facts)
        return ticket, expires_at

    def redeem_ticket(self, ticket: str) -> Ticket:
        """Read and delete a ticket.

        Raises Forbidden if the ticket is invalid, used or expired.
        """
        deleted = self._client.delete_item(
            TableName=self._table, Key=jobs_table.ticket_key(ticket), ReturnValues="ALL_OLD"
        ).get("Attributes")
        if deleted is None or not self._unexpired.is_unexpired(deleted):
            raise Forbidden(TICKET_REFUSED)
        return Ticket(
            owner=str(deleted["owner"]),
            epoch=int(deleted.get("epoch", 0)),
            may_ask=bool(deleted.get("may_ask")),
        )

    def connect(self, connection_id: str, *, owner: str, **facts: Any) -> Connection:
        """Store a new connection. `facts`: other fields of Connection."""
        now = int(self._clock())
        connection = Connection(connection_id=connection_id, owner=owner, connected_at=now, **facts)
        self._put(
            jobs_table.connection_key(connection_id)
            | {"entity": "connection", "owner": owner, "connected_at": now, "expires_at": _expiry_of(connection)}
            | {"epoch": connection.epoch}
            | {name: value for name in ("job_id", "link", "may_ask") if (value := getattr(connection, name))}
            | jobs_table.connection_gsi2(events.timestamp(now))
        )
        return connection

    def connection(self, connection_id: str) -> Connection | None:
        item = self._get(jobs_table.connection_key(connection_id))
        return _connection(item) if item else None

    def connections(self) -> Iterator[Connection]:
        """All connections whose handshake is over."""
        before = events.timestamp(self._clock() - HANDSHAKE_SECONDS)
        values = {":pk": jobs_table.LIVE_CONNECTIONS, ":before": before}
        options = {"IndexName": "gsi2", "PaginationConfig": {"PageSize": MAX_KEYS}}
        for page in self._query("gsi2pk = :pk AND gsi2sk < :before", values, **options):
            keys = [{name: item[name] for name in ("pk", "sk")} for item in page["Items"]]
            yield from map(_connection, get_all(self._client, self._table, keys))

    def delete_connection(self, connection_id: str) -> None:
        """Delete a connection and its subscriptions."""
        self._delete(jobs_table.connection_key(connection_id))
        for page in self._of_connection(connection_id):
            for item in page["Items"]:
                self._delete({"pk": item["pk"], "sk": item["sk"]})

    # ── subscriptions to jobs ────────────────────────────────────────────────────────────────────────────

    def subscribe(self, connection: Connection, job_id: str, *, after: int = 0, to_steps: bool = False) -> None:
        """Request a job's events, or its steps, for the first time or again. The caller checks the job's owner."""
        self._put(
            jobs_table.subscription_key(job_id, connection.connection_id)
            | {"entity": "subscription", "state": REQUESTED, "after": after, "request_id": _new_request_id()}
            | {"tries": 0, "connected_at": connection.connected_at, "expires_at": _expiry_of(connection)}
            | ({"steps": 0} if to_steps else {})
            | jobs_table.subscription_gsi1(connection.connection_id, job_id)
        )

    def save_steps(self, subscription: Subscription, number: int) -> None:
        """Write that the steps through this number were sent, unless the subscription was requested again."""
        values = {":active": ACTIVE, ":steps": number}
        update = self._update(subscription, "#state = :active, steps = :steps", {}, values)
        with suppress(self._client.exceptions.ConditionalCheckFailedException):
            self._client.update_item(**update)

    def request_again(self, subscription: Subscription) -> None:
        """Have the events after `after`, which could not be sent, sent again."""
        update = self._update(
            subscription,
            "#state = :requested, request_id = :new, #after = :after, tries = tries + :one",
            {"#after": "after"},
            {":requested": REQUESTED, ":new": _new_request_id(), ":after": subscription.after, ":one": 1},
        )
        with suppress(self._client.exceptions.ConditionalCheckFailedException):
            self._client.update_item(**update)

    def unsubscribe(self, connection_id: str, job_id: str) -> None:
        self._delete(jobs_table.subscription_key(job_id, connection_id))

    def is_subscribed(self, connection_id: str, job_id: str) -> bool:
        return self._get(jobs_table.subscription_key(job_id, connection_id)) is not None

    def count(self, connection_id: str) -> int:
        """About how many jobs and kinds a connection subscribes to: the index is eventually consistent."""
        return sum(page["Count"] for page in self._of_connection(connection_id, Select="COUNT"))

    def subscribers(self, job_id: str) -> Subscribers:
        """All subscriptions to a job (strongly consistent)."""
        items = self._with_prefix(jobs_table.job_pk(job_id), jobs_table.SUBSCRIBERS)
        by_sk = {item["sk"]: item for item in items}
        offset = by_sk.pop(jobs_table.SUBSCRIBERS, {"sent_offset": 0})
        sequence = int(offset["sent_offset"])
        found = [_subscription(item, sequence) for item in by_sk.values()]
        of_events = [one for one in found if one.steps is None]
        return Subscribers(sequence, of_events, tuple(one for one in found if one.steps is not None))

    def save_offset(self, job_id: str, sequence: int, *, was: int) -> None:
        """Write that all events through `sequence` were sent to the active subscribers, if the offset is `was`.

        Raises Contended if another function has sent to them meanwhile: read the subscribers again.
        """
        now = int(self._clock())
        item = {"sent_offset": sequence, "expires_at": now + OFFSET_SECONDS, "entity": "subscribers"}
        try:
            self._client.put_item(
                TableName=self._table,
                Item=jobs_table.subscribers_key(job_id) | item,
                ConditionExpression="attribute_not_exists(pk) OR sent_offset = :was OR expires_at <= :now",
                ExpressionAttributeValues={":was": was, ":now": now},
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            raise Contended(CONCURRENT_PUSH) from None

    def activate(self, subscription: Subscription, *, offset: int) -> None:
        """Make a subscription active, unless it was deleted or requested again meanwhile.

        Raises Contended if the offset has changed: then events were sent to the others and not to this one.
        """
        check = {
            "TableName": self._table,
            "Key": jobs_table.subscribers_key(subscription.job_id),
            "ConditionExpression": "sent_offset = :offset",
            "ExpressionAttributeValues": {":offset": offset},
        }
        values = {":active": ACTIVE, ":none": 0}
        update = self._update(subscription, "#state = :active, tries = :none", {}, values)
        try:
            self._client.transact_write_items(TransactItems=[{"ConditionCheck": check}, {"Update": update}])
        except ClientError as error:
            if aws_errors.code(error) != "TransactionCanceledException":
                raise
            if aws_errors.cancellation_codes(error) != ["None", "ConditionalCheckFailed"]:
                raise Contended(CONCURRENT_PUSH) from error

    # ── followers of kinds ───────────────────────────────────────────────────────────────────────────────

    def follow(self, connection: Connection, kind: str) -> None:
        """Have every new event of the owner's jobs of this kind sent."""
        self._put(
            jobs_table.follower_key(connection.owner, kind, connection.connection_id)
            | {"entity": "follower", "expires_at": _expiry_of(connection)}
            | jobs_table.follower_gsi1(connection.connection_id, kind)
        )

    def unfollow(self, connection: Connection, kind: str) -> None:
        self._delete(jobs_table.follower_key(connection.owner, kind, connection.connection_id))

    def followers(self, owner: str, kind: str) -> list[str]:
        """The ids of the connections that follow a kind of an owner's jobs."""
        prefix = jobs_table.follower_prefix(kind)
        return [item["sk"].removeprefix(prefix) for item in self._with_prefix(jobs_table.owner_pk(owner), prefix)]

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────

    def _update(
        self, subscription: Subscription, change: str, names: Mapping[str, str], values: Mapping[str, Any]
    ) -> dict[str, Any]:
        """An update of a subscription on the condition that it was not deleted or requested again."""
        return {
            "TableName": self._table,
            "Key": jobs_table.subscription_key(subscription.job_id, subscription.connection_id),
            "UpdateExpression": f"SET {change}",
            "ConditionExpression": "request_id = :request_id",
            "ExpressionAttributeNames": {"#state": "state", **names},
            "ExpressionAttributeValues": {":request_id": subscription.request_id, **values},
        }

    def _with_prefix(self, pk: str, prefix: str) -> list[Item]:
        return self._unexpired.query(pk, "begins_with(sk, :sk)", {":sk": prefix})

    def _of_connection(self, connection_id: str, **options: Any) -> Iterable[Mapping[str, Any]]:
        values = {":pk": jobs_table.connection_pk(connection_id)}
        return self._query("gsi1pk = :pk", values, IndexName="gsi1", **options)

    def _query(self, condition: str, values: Mapping[str, Any], **options: Any) -> Iterable[Mapping[str, Any]]:
        pages: Iterable[Mapping[str, Any]] = self._client.get_paginator("query").paginate(
            TableName=self._table, KeyConditionExpression=condition, ExpressionAttributeValues=values, **options
        )
        return pages

    def _get(self, key: Mapping[str, str]) -> Item | None:
        answer = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True)
        item: Item | None = answer.get("Item")
        return item

    def _put(self, item: Item) -> None:
        self._client.put_item(TableName=self._table, Item=item)

    def _delete(self, key: Mapping[str, str]) -> None:
        self._client.delete_item(TableName=self._table, Key=key)


def _new_request_id() -> str:
    return secrets.token_hex(8)


def _expiry_of(connection: Connection) -> int:
    """When DynamoDB may delete the connection's items, if nothing else has deleted them."""
    return connection.connected_at + CONNECTION_SECONDS + EXPIRY_MARGIN_SECONDS


def _connection(item: Item) -> Connection:
    return Connection(
        connection_id=jobs_table.connection_id_of(item["pk"]),
        owner=item["owner"],
        connected_at=int(item["connected_at"]),
        job_id=item.get("job_id"),
        epoch=int(item.get("epoch", 0)),
        link=item.get("link"),
        may_ask=bool(item.get("may_ask")),
    )


def _subscription(item: Item, offset: int) -> Subscription:
    active = item["state"] == ACTIVE
    return Subscription(
        connection_id=jobs_table.connection_id_of(item["sk"]),
        job_id=jobs_table.job_id_of(item["pk"]),
        after=offset if active else int(item["after"]),
        request_id=item["request_id"],
        connected_at=int(item["connected_at"]),
        tries=int(item["tries"]),
        active=active,
        steps=int(item["steps"]) if "steps" in item else None,
    )
