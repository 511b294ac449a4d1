"""Requests that are held open. Each is a lease of its owner, so that a function that is killed holds it no longer.

Owners share the account's concurrent executions, and a held request uses one as long as it waits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from core import ids, jobs_table
from core.aws.batch import log_and_continue
from core.aws.dynamodb import UnexpiredItems

MARGIN_SECONDS = 5
"""From the end of a wait to the expiry of its lease."""


class Holds:
    """Makes holds within these limits. `client` is a resource's client.

    Requests that begin at the same moment do not count each other, so there can be a few more.
    """

    def __init__(
        self,
        client: Any,
        table: str,
        *,
        per_subject: int,
        per_owner: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._table, self._clock = client, table, clock
        self._per_subject, self._per_owner = per_subject, per_owner
        self._items = UnexpiredItems(client, table, clock)

    def of(self, owner: str, subject: str, *, seconds: float) -> Hold:
        """A hold for a request about `subject`, the id of a job or of an endpoint. It is not taken yet."""
        return Hold(self, owner, subject, seconds)

    def take(self, owner: str, subject: str, seconds: float) -> jobs_table.Key | None:
        """The key of a new lease, or None at one of the limits."""
        pk, prefix = jobs_table.owner_pk(owner), jobs_table.HOLD_PREFIX
        taken = [item["sk"] for item in self._items.query(pk, "begins_with(sk, :sk)", {":sk": prefix})]
        key = jobs_table.hold_key(owner, subject, ids.new("hold"))
        of_subject = key["sk"].rpartition("#")[0] + "#"
        if len(taken) >= self._per_owner:
            return None
        if sum(sk.startswith(of_subject) for sk in taken) >= self._per_subject:
            return None
        expires_at = math.ceil(self._clock() + seconds + MARGIN_SECONDS)
        item = {**key, "entity": "hold", "expires_at": expires_at}
        self._client.put_item(TableName=self._table, Item=item)
        return key

    def release(self, key: jobs_table.Key) -> None:
        """Delete the lease. If that fails, it expires: the request is answered all the same."""
        with log_and_continue(hold=key["sk"]):
            self._client.delete_item(TableName=self._table, Key=key)


class Hold:
    """A context in which a request may wait, if entering it returns True. `refused`: it may not."""

    def __init__(self, holds: Holds, owner: str, subject: str, seconds: float) -> None:
        self._holds, self._of = holds, (owner, subject, seconds)
        self._key: jobs_table.Key | None = None
        self.refused = False

    def __enter__(self) -> bool:
        self._key = self._holds.take(*self._of)
        self.refused = self._key is None
        return not self.refused

    def __exit__(self, *exception: object) -> None:
        if self._key is not None:
            self._holds.release(self._key)
