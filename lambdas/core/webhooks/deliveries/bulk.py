"""Claims and records of many deliveries at once, for a sender that has many messages.

A conditional write per delivery takes more CPU in the SDK than the rest of the delivery. Here all claims of a
group are one transaction, and its records are batches. The client is a plain one: the type inference of a
resource's client takes as long as the call, and the items have only texts and numbers.
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
from core.webhooks.deliveries.model import Attempt, Delivery, apply_attempt
from core.webhooks.deliveries.rows import ATTRIBUTES, attempt_item, delivery_item, delivery_key, read_delivery
from core.webhooks.deliveries.store import LEASE_SECONDS, DeliveryStore

MAX_CLAIMS = 100  # https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
_BATCH_WRITES = 25  # https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchWriteItem.html
_RETRY_SECONDS = (0.05, 0.2, 0.8)
# Another writer changed an item, or the items are together larger than the 4 MB of a transaction.
_CLAIM_SINGLY = {"TransactionCanceledException", "TransactionConflictException", "ValidationException"}

# Without the keys, which follow from the rest: each attribute that is read takes time.
_READ_OPTIONS = {
    "ConsistentRead": True,
    "ProjectionExpression": ", ".join(f"#{name}" for name in ATTRIBUTES),
    "ExpressionAttributeNames": {f"#{name}": name for name in ATTRIBUTES},
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
        """Claim the next attempt of each delivery, given by id and number of attempts; at most MAX_CLAIMS.

        Deliveries that cannot be claimed are left out. If the transaction fails, each is claimed by itself.
        """
        now = int(self._clock())
        claimable = [row for row in self._read(wanted) if _is_claimable(row, wanted[row.delivery_id], now)]
        if not claimable:
            return {}
        try:
            self._client.transact_write_items(TransactItems=[self._claim_update(row, now) for row in claimable])
        except ClientError as error:
            if aws_errors.code(error) not in _CLAIM_SINGLY:
                raise
            return dict(self._claimed_singly(claimable))
        lease = now + LEASE_SECONDS
        return {row.delivery_id: replace(row, status="sending", lease_until=lease) for row in claimable}

    def _claimed_singly(self, rows: Sequence[Delivery]) -> Iterator[tuple[str, Delivery]]:
        for row in rows:
            claimed = self._store.claim(row.delivery_id, attempts=row.attempts)
            if claimed:
                yield row.delivery_id, claimed

    def _claim_update(self, row: Delivery, now: int) -> Item:
        """Its condition covers all that can have changed since the row was read."""
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
        """Write automatic attempts of claimed, unordered deliveries as whole items; returns the deliveries after.

        The writes have no condition, as nobody else writes a delivery during its lease. Raises Throttled if
        DynamoDB did not take all of them. Then `DeliveryStore.record` finds out which ones it took.
        """
        now = math.ceil(self._clock())
        changed = [apply_attempt(each.claimed, each.attempt, wait=each.wait, now=now) for each in recordings]
        before = [(each.claimed, each.claimed.last_attempt) for each in recordings]
        items = [attempt_item(claimed, last) for claimed, last in before if last]
        items += [delivery_item(delivery, now=self._clock()) for delivery in changed]
        for start in range(0, len(items), _BATCH_WRITES):
            self._put_all(items[start : start + _BATCH_WRITES])
        return changed

    def _put_all(self, items: Sequence[Item]) -> None:
        rest: Any = {self._table: [{"PutRequest": {"Item": typed(item)}} for item in items]}
        for pause in (*_RETRY_SECONDS, None):
            rest = self._client.batch_write_item(RequestItems=rest).get("UnprocessedItems")
            if not rest:
                return
            if pause:
                time.sleep(pause)
        raise Throttled("the table takes no more writes for now")

    def _read(self, delivery_ids: Mapping[str, Any]) -> list[Delivery]:
        """Those that exist."""
        keys = [typed(delivery_key(identifier)) for identifier in delivery_ids]
        found = batch_get(self._client, {self._table: {"Keys": keys, **_READ_OPTIONS}})
        return [read_delivery(untyped(row)) for row in found[self._table]]


def _is_claimable(row: Delivery, attempts: int, now: int) -> bool:
    return row.is_open and row.attempts == attempts and row.lease_until <= now < row.expires_at


def typed(values: Mapping[str, str | int]) -> dict[str, Any]:
    """Texts and numbers in DynamoDB's JSON."""
    return {name: {"S": value} if isinstance(value, str) else {"N": str(value)} for name, value in values.items()}


def untyped(item: Item) -> dict[str, Any]:
    """The texts and numbers of an item in DynamoDB's JSON, without nulls."""
    return {name: next(iter(value.values())) for name, value in item.items() if "NULL" not in value}
