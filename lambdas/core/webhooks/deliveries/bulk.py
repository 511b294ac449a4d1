"""Claims and records of many deliveries at once, for a sender with much to do.

A conditional write of its own for each takes more CPU in the SDK than the delivery itself. Here the claims of a
group go in one transaction and its records in batches, through a plain client: what a resource's does to find out
the types of values takes as long again as the call, and a delivery has only texts and numbers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from botocore.exceptions import ClientError

from core.aws import errors as aws_errors
from core.aws.dynamodb import batch_get
from core.errors import Throttled
from core.webhooks.deliveries.store import (
    LEASE_SECONDS,
    STORED,
    Attempt,
    Delivery,
    DeliveryStore,
    after,
    attempt_item,
    delivery_key,
    read_delivery,
)

MAX_CLAIMS = 100  # https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
_BATCH_WRITES = 25  # https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchWriteItem.html
_PAUSES = (0.05, 0.2, 0.8)
# Another writer was there, or the items together are more than the 4 MB that a transaction may touch.
_ONE_BY_ONE = {"TransactionCanceledException", "TransactionConflictException", "ValidationException"}

# The keys can be made of the rest, and what is not read takes no time.
_WITHOUT_KEYS = {
    "ConsistentRead": True,
    "ProjectionExpression": ", ".join(f"#{name}" for name in STORED),
    "ExpressionAttributeNames": {f"#{name}": name for name in STORED},
}

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Recording:
    """An attempt of a claimed delivery, and the seconds until the next one (None: there is none)."""

    claimed: Delivery
    attempt: Attempt
    wait: int | None


class BulkStore:
    """The deliveries of `store`, through `client`: a plain client, not a resource's."""

    def __init__(
        self, client: Any, table: str, store: DeliveryStore, *, clock: Callable[[], float] = lambda: time.time()
    ) -> None:
        self._client, self._table, self._store, self._clock = client, table, store, clock

    def claim_all(self, wanted: Mapping[str, int]) -> dict[str, Delivery]:
        """Take an attempt of each delivery, by id and attempts made so far; at most MAX_CLAIMS.

        Those that cannot be taken are left out. Where the transaction does not come off, one by one.
        """
        now = int(self._clock())
        free = [row for row in self._read(wanted) if _is_free(row, wanted[row.delivery_id], now)]
        if not free:
            return {}
        try:
            self._client.transact_write_items(TransactItems=[self._claiming(row, now) for row in free])
        except ClientError as error:
            if aws_errors.code(error) not in _ONE_BY_ONE:
                raise
            return dict(self._claimed_singly(free))
        lease = now + LEASE_SECONDS
        return {row.delivery_id: replace(row, status="sending", lease_until=lease) for row in free}

    def _claimed_singly(self, rows: Sequence[Delivery]) -> Iterator[tuple[str, Delivery]]:
        for row in rows:
            claimed = self._store.claim(row.delivery_id, attempts=row.attempts)
            if claimed:
                yield row.delivery_id, claimed

    def _claiming(self, row: Delivery, now: int) -> Item:
        """Conditioned on all that could have changed since the row was read."""
        values: dict[str, str | int] = {
            ":lease": now + LEASE_SECONDS,
            ":sending": "sending",
            ":attempts": row.attempts,
            ":seen": row.lease_until,
            ":status": row.status,
            ":queued": row.queued_at,
        }
        update = {
            "TableName": self._table,
            "Key": typed(delivery_key(row.delivery_id)),
            "UpdateExpression": "SET lease_until = :lease, #status = :sending",
            "ConditionExpression": "attempts = :attempts AND lease_until = :seen AND #status = :status "
            "AND queued_at = :queued",
            "ExpressionAttributeNames": {"#status": "status"},
            "ExpressionAttributeValues": typed(values),
        }
        return {"Update": update}

    def record_all(self, recordings: Sequence[Recording]) -> list[Delivery]:
        """Write down attempts of claimed deliveries that were made automatically, as whole rows; none is ordered.

        The lease keeps everybody else off the rows, so the writes need no condition. Raises Throttled where not
        all of them were taken; `DeliveryStore.record` says of each whether it was.
        """
        now = math.ceil(self._clock())
        changed = [after(each.claimed, each.attempt, wait=each.wait, now=now) for each in recordings]
        before = [(each.claimed, each.claimed.last_attempt) for each in recordings]
        items = [attempt_item(claimed, last) for claimed, last in before if last]
        items += [self._store.row(delivery) for delivery in changed]
        for start in range(0, len(items), _BATCH_WRITES):
            self._put_all(items[start : start + _BATCH_WRITES])
        return changed

    def _put_all(self, items: Sequence[Item]) -> None:
        rest: Any = {self._table: [{"PutRequest": {"Item": typed(item)}} for item in items]}
        for pause in (*_PAUSES, None):
            rest = self._client.batch_write_item(RequestItems=rest).get("UnprocessedItems")
            if not rest:
                return
            if pause:
                time.sleep(pause)
        raise Throttled("the table takes no more writes for now")

    def _read(self, identifiers: Mapping[str, Any]) -> list[Delivery]:
        """Those that there are."""
        keys = [typed(delivery_key(identifier)) for identifier in identifiers]
        found = batch_get(self._client, {self._table: {"Keys": keys, **_WITHOUT_KEYS}})
        return [read_delivery(untyped(row)) for row in found[self._table]]


def _is_free(row: Delivery, attempts: int, now: int) -> bool:
    return row.is_open and row.attempts == attempts and row.lease_until <= now < row.expires_at


def typed(values: Mapping[str, str | int]) -> dict[str, Any]:
    """Texts and numbers as DynamoDB has them."""
    return {name: {"S": value} if isinstance(value, str) else {"N": str(value)} for name, value in values.items()}


def untyped(item: Item) -> dict[str, Any]:
    """The texts and numbers of an item; a null is none."""
    return {name: next(iter(value.values())) for name, value in item.items() if "NULL" not in value}
