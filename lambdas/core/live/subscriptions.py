"""Who listens to what: connections, subscriptions to jobs, followers of kinds, and the tickets that let them in.

A subscription is asked for by a row beside the job's log. The row's own record in the table's stream brings it to
the one function that speaks to the job's listeners, which replays what was missed and only then counts the row as
joined. The stream lets one such function run at a time for a job, so a replay and a new event do not overtake each
other; should there be two all the same (DynamoDB may split what is hot), each notices the other, and begins again.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from core import events
from core.aws import errors as aws_errors
from core.errors import Contended, Forbidden

# https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-execution-service-websocket-limits-table.html
CONNECTION_SECONDS = 2 * 3600
"""A connection lasts no longer; API Gateway sees to it."""
CONNECTING_SECONDS = 5
"""A connection cannot be spoken to until its handshake is over, and seems to be gone."""
SLACK_SECONDS = 600
KEPT_SECONDS = 86_400
"""How far a job's listeners have been sent is known for so long after they were sent anything."""
TICKET_SECONDS = 60
MAX_SUBSCRIPTIONS = 100

ASKED, JOINED = "asked", "joined"
Item = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """`job_id`: the only job that it may listen to, where a link has let it in. `connected_at`: epoch seconds."""

    connection_id: str
    owner: str
    connected_at: int
    job_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A connection that wants the events of a job after number `after`. `asking` differs each time it asks."""

    connection_id: str
    job_id: str
    after: int
    asking: str
    connected_at: int
    tries: int = 0
    joined: bool = False


@dataclass(frozen=True, slots=True)
class Subscribers:
    """A job's listeners. Those who have joined have been sent everything through number `offset`, their `after`."""

    offset: int
    subscriptions: Sequence[Subscription]

    @property
    def joined(self) -> list[Subscription]:
        return [subscription for subscription in self.subscriptions if subscription.joined]

    @property
    def asking(self) -> list[Subscription]:
        return [subscription for subscription in self.subscriptions if not subscription.joined]


class Subscriptions:
    """All of it in the jobs table. `client` is a resource's client."""

    def __init__(self, client: Any, table: str, *, clock: Callable[[], float] = time.time) -> None:
        self._client, self._table, self._clock = client, table, clock

    # ── coming and going ─────────────────────────────────────────────────────────────────────────────────

    def issue_ticket(self, owner: str) -> tuple[str, int]:
        """A ticket that lets its bearer in once as this owner, and until when (epoch seconds)."""
        ticket, expires_at = secrets.token_urlsafe(24), int(self._clock()) + TICKET_SECONDS
        self._put({**_ticket_key(ticket), "entity": "ticket", "owner": owner, "expires_at": expires_at})
        return ticket, expires_at

    def redeem_ticket(self, ticket: str) -> str:
        """The owner whom it lets in; it lets nobody in again. Raises Forbidden where it does not hold."""
        gone = self._client.delete_item(
            TableName=self._table, Key=_ticket_key(ticket), ReturnValues="ALL_OLD"
        ).get("Attributes")
        if gone is None or int(gone["expires_at"]) <= self._clock():
            raise Forbidden("This ticket does not hold, or no more. POST /live/tickets gives another.")
        return str(gone["owner"])

    def connect(self, connection_id: str, *, owner: str, job_id: str | None = None) -> Connection:
        """Remember a new connection."""
        now = int(self._clock())
        connection = Connection(connection_id=connection_id, owner=owner, connected_at=now, job_id=job_id)
        self._put(
            _connection_key(connection_id)
            | {"entity": "connection", "owner": owner, "connected_at": now, "expires_at": _end_of(connection)}
            | ({"job_id": job_id} if job_id else {})
            | {"gsi2pk": "LIVE", "gsi2sk": events.timestamp(now)}
        )
        return connection

    def connection(self, connection_id: str) -> Connection | None:
        item = self._client.get_item(
            TableName=self._table, Key=_connection_key(connection_id), ConsistentRead=True
        ).get("Item")
        if item is None:
            return None
        return Connection(
            connection_id=connection_id,
            owner=item["owner"],
            connected_at=int(item["connected_at"]),
            job_id=item.get("job_id"),
        )

    def connections(self) -> Iterator[str]:
        """The ids of all connections there are, but for those whose handshake may not be over."""
        values = {":pk": "LIVE", ":before": events.timestamp(self._clock() - CONNECTING_SECONDS)}
        for page in self._query("gsi2pk = :pk AND gsi2sk < :before", values, IndexName="gsi2"):
            yield from (item["pk"].removeprefix("LIVE#") for item in page["Items"])

    def forget(self, connection_id: str) -> None:
        """Remove a connection and all that it listened to."""
        self._delete(_connection_key(connection_id))
        for page in self._query("gsi1pk = :pk", {":pk": f"LIVE#{connection_id}"}, IndexName="gsi1"):
            for item in page["Items"]:
                self._delete({"pk": item["pk"], "sk": item["sk"]})

    # ── one job ──────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, connection: Connection, job_id: str, *, after: int = 0) -> None:
        """Ask for a job's events, again or for the first time. That the job is its owner's, the caller knows."""
        self._put(
            _subscription_key(job_id, connection.connection_id)
            | {"entity": "subscription", "state": ASKED, "after": after, "asking": _nonce(), "tries": 0}
            | {"connected_at": connection.connected_at, "expires_at": _end_of(connection)}
            | {"gsi1pk": f"LIVE#{connection.connection_id}", "gsi1sk": f"JOB#{job_id}"}
        )

    def ask_again(self, subscription: Subscription) -> None:
        """What could not be sent after its `after` is to be replayed."""
        change = self._change(
            subscription,
            "#state = :asked, asking = :new, #after = :after, tries = tries + :one",
            {"#after": "after"},
            {":asked": ASKED, ":new": _nonce(), ":after": subscription.after, ":one": 1},
        )
        with suppress(self._client.exceptions.ConditionalCheckFailedException):
            self._client.update_item(**change)

    def unsubscribe(self, connection_id: str, job_id: str) -> None:
        self._delete(_subscription_key(job_id, connection_id))

    def is_subscribed(self, connection_id: str, job_id: str) -> bool:
        return "Item" in self._client.get_item(
            TableName=self._table, Key=_subscription_key(job_id, connection_id), ConsistentRead=True
        )

    def count(self, connection_id: str) -> int:
        """How many jobs and kinds a connection listens to, about: the index lags by some milliseconds."""
        pages = self._query("gsi1pk = :pk", {":pk": f"LIVE#{connection_id}"}, IndexName="gsi1", Select="COUNT")
        return sum(page["Count"] for page in pages)

    def subscribers(self, job_id: str) -> Subscribers:
        """Everybody who listens to a job, as it is now."""
        items = self._items(f"JOB#{job_id}", "LIVE")
        offset = next((int(item["sent_offset"]) for item in items if item["sk"] == "LIVE"), 0)
        return Subscribers(offset, [_subscription(item, offset) for item in items if item["sk"] != "LIVE"])

    def save_offset(self, job_id: str, sequence: int, *, was: int) -> None:
        """Those who have joined have been sent everything through this number, where it was `was` before.

        Raises Contended where somebody else has sent to them meanwhile: who has been sent what must be read again.
        """
        now = int(self._clock())
        item = {"sent_offset": sequence, "expires_at": now + KEPT_SECONDS, "entity": "subscribers"}
        try:
            self._client.put_item(
                TableName=self._table,
                Item=_subscribers_key(job_id) | item,
                ConditionExpression="attribute_not_exists(pk) OR sent_offset = :was OR expires_at <= :now",
                ExpressionAttributeValues={":was": was, ":now": now},
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            raise Contended("the listeners of a job are sent by two at once") from None

    def join(self, subscription: Subscription, *, offset: int) -> None:
        """Count it among those who have been sent everything, unless it has gone or asked anew meanwhile.

        Raises Contended where that is not `offset` any more: then it lacks what the others have been sent.
        """
        subscribers = {
            "Key": _subscribers_key(subscription.job_id),
            "ConditionExpression": "sent_offset = :offset",
        }
        values = {":joined": JOINED, ":none": 0}
        joining = self._change(subscription, "#state = :joined, tries = :none", {}, values)
        check = {"TableName": self._table, **subscribers, "ExpressionAttributeValues": {":offset": offset}}
        try:
            self._client.transact_write_items(TransactItems=[{"ConditionCheck": check}, {"Update": joining}])
        except ClientError as error:
            if aws_errors.code(error) != "TransactionCanceledException":
                raise
            if aws_errors.cancellation_codes(error) != ["None", "ConditionalCheckFailed"]:
                raise Contended("the listeners of a job are sent by two at once") from error

    # ── a kind ───────────────────────────────────────────────────────────────────────────────────────────

    def follow(self, connection: Connection, kind: str) -> None:
        """From now on, every event of the owner's jobs of this kind."""
        self._put(
            _follower_key(connection.owner, kind, connection.connection_id)
            | {"entity": "follower", "expires_at": _end_of(connection)}
            | {"gsi1pk": f"LIVE#{connection.connection_id}", "gsi1sk": f"FOLLOW#{kind}"}
        )

    def unfollow(self, connection: Connection, kind: str) -> None:
        self._delete(_follower_key(connection.owner, kind, connection.connection_id))

    def followers(self, owner: str, kind: str) -> list[str]:
        """The connections that follow a kind of an owner's jobs."""
        prefix = f"FOLLOW#{kind}#"
        return [item["sk"].removeprefix(prefix) for item in self._items(f"OWNER#{owner}", prefix)]

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────

    def _change(
        self, subscription: Subscription, change: str, names: Mapping[str, str], values: Mapping[str, Any]
    ) -> dict[str, Any]:
        """An update of a subscription, unless it has gone or asked anew since it was read."""
        return {
            "TableName": self._table,
            "Key": _subscription_key(subscription.job_id, subscription.connection_id),
            "UpdateExpression": f"SET {change}",
            "ConditionExpression": "asking = :asking",
            "ExpressionAttributeNames": {"#state": "state", **names},
            "ExpressionAttributeValues": {":asking": subscription.asking, **values},
        }

    def _items(self, pk: str, prefix: str) -> list[Item]:
        """What is there now, and has not expired."""
        values = {":pk": pk, ":sk": prefix}
        pages = self._query("pk = :pk AND begins_with(sk, :sk)", values, ConsistentRead=True)
        return [item for page in pages for item in page["Items"] if int(item["expires_at"]) > self._clock()]

    def _query(self, condition: str, values: Mapping[str, Any], **options: Any) -> Iterable[Mapping[str, Any]]:
        pages: Iterable[Mapping[str, Any]] = self._client.get_paginator("query").paginate(
            TableName=self._table, KeyConditionExpression=condition, ExpressionAttributeValues=values, **options
        )
        return pages

    def _put(self, item: Item) -> None:
        self._client.put_item(TableName=self._table, Item=item)

    def _delete(self, key: Mapping[str, str]) -> None:
        self._client.delete_item(TableName=self._table, Key=key)


def _nonce() -> str:
    return secrets.token_hex(8)


def _end_of(connection: Connection) -> int:
    """When its rows may go, if nobody has removed them by then."""
    return connection.connected_at + CONNECTION_SECONDS + SLACK_SECONDS


def _connection_key(connection_id: str) -> dict[str, str]:
    return {"pk": f"LIVE#{connection_id}", "sk": "CONNECTION"}


def _subscribers_key(job_id: str) -> dict[str, str]:
    return {"pk": f"JOB#{job_id}", "sk": "LIVE"}


def _subscription_key(job_id: str, connection_id: str) -> dict[str, str]:
    return {"pk": f"JOB#{job_id}", "sk": f"LIVE#{connection_id}"}


def _follower_key(owner: str, kind: str, connection_id: str) -> dict[str, str]:
    return {"pk": f"OWNER#{owner}", "sk": f"FOLLOW#{kind}#{connection_id}"}


def _ticket_key(ticket: str) -> dict[str, str]:
    """The ticket itself is nowhere to be read."""
    return {"pk": f"TICKET#{hashlib.sha256(ticket.encode()).hexdigest()}", "sk": "TICKET"}


def _subscription(item: Item, offset: int) -> Subscription:
    joined = item["state"] == JOINED
    return Subscription(
        connection_id=item["sk"].removeprefix("LIVE#"),
        job_id=item["pk"].removeprefix("JOB#"),
        after=offset if joined else int(item["after"]),
        asking=item["asking"],
        connected_at=int(item["connected_at"]),
        tries=int(item["tries"]),
        joined=joined,
    )
