"""The calls of models that each owner has in flight, so that slow calls of one do not keep the workers of all.

Queues share waiting messages fairly between owners, but a call can take minutes, and workers are few. Each call
has one of the numbered places of its owner: an item that exists while the call runs. No two calls have the same
place, so the limit is exact. The item expires with the invocation, so a worker that is killed keeps none.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from core import ids, jobs_table
from core.aws.batch import log_and_continue
from core.aws.dynamodb import UnexpiredItems
from core.errors import Postponed
from core.jobs.kind import Wait

REASON = "model_calls"
INVOCATION_SECONDS = 300
"""The timeout of the worker."""
MAX_WAIT_SECONDS = 60.0
TRIES = 10


class ModelCalls:
    """`per_owner`: calls at a time; 0 for no limit, which costs nothing. `client` is a resource's client."""

    def __init__(
        self, client: Any, table: str, *, per_owner: int, clock: Callable[[], float] = lambda: time.time()
    ) -> None:
        self._client, self._table, self._per_owner, self._clock = client, table, per_owner, clock
        self._items = UnexpiredItems(client, table, clock)

    def wait(self, owner: str, *, waited: float) -> Wait | None:
        """None if the owner has a free place. It is not taken yet. `waited`: for how many seconds already."""
        return None if not self._per_owner or self._free(owner) else Wait(REASON, wait_seconds(waited))

    @contextmanager
    def place(self, owner: str) -> Iterator[None]:
        """Have a place inside. Raises Postponed if other calls have taken the last one since `wait`."""
        if not self._per_owner:
            yield
            return
        key, lease = self._take(owner)
        try:
            yield
        finally:
            self._release(key, lease)

    def _free(self, owner: str) -> list[jobs_table.Key]:
        """The keys of places that no call has."""
        pk, prefix = jobs_table.owner_pk(owner), jobs_table.CALL_PREFIX
        taken = {item["sk"] for item in self._items.query(pk, "begins_with(sk, :sk)", {":sk": prefix})}
        if len(taken) >= self._per_owner:  # the limit may have been higher
            return []
        keys = [jobs_table.model_call_key(owner, number) for number in range(self._per_owner)]
        return [key for key in keys if key["sk"] not in taken]

    def _take(self, owner: str) -> tuple[jobs_table.Key, str]:
        lease = ids.new("lease")
        for _ in range(TRIES):
            free = self._free(owner)
            if not free:
                break
            key = random.choice(free)  # noqa: S311
            if self._put(key, lease):
                return key, lease
        raise Postponed(REASON, wait_seconds(0))

    def _put(self, key: jobs_table.Key, lease: str) -> bool:
        """Whether the place was free."""
        now = self._clock()
        expires_at = math.ceil(now + INVOCATION_SECONDS)
        try:
            self._client.put_item(
                TableName=self._table,
                Item={**key, "entity": "model_call", "lease": lease, "expires_at": expires_at},
                ConditionExpression="attribute_not_exists(pk) OR expires_at <= :now",
                ExpressionAttributeValues={":now": int(now)},
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def _release(self, key: jobs_table.Key, lease: str) -> None:
        """If that fails, the place expires: the answer is not lost."""
        with log_and_continue(model_call=key["sk"]):
            try:
                self._client.delete_item(
                    TableName=self._table,
                    Key=key,
                    ConditionExpression="lease = :lease",
                    ExpressionAttributeValues={":lease": lease},
                )
            except self._client.exceptions.ConditionalCheckFailedException:
                return  # it has expired, and another call has it


def wait_seconds(waited: float) -> float:
    """Until a job asks again that has waited so long: soon at first, later up to a quarter of that time.

    With jitter, so that one of many waiting jobs asks soon after a place becomes free.
    """
    return random.uniform(1, max(2.0, min(MAX_WAIT_SECONDS, waited / 4)))  # noqa: S311
