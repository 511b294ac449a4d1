"""Quotas of a day (UTC): one counter for each owner, quota and day. Nothing is given back, so none can leak."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from core import jobs_table
from core.errors import QuotaExceeded

DAY_SECONDS = 86_400


class DailyQuotas:
    """`client` is a resource's client."""

    def __init__(self, client: Any, table: str, *, clock: Callable[[], float] = time.time) -> None:
        self._client, self._table, self._clock = client, table, clock

    def use(self, owner: str, quota: str, *, limit: int, what: str) -> None:
        """Count one more use. Raises QuotaExceeded, which says `what` was used `limit` times today."""
        now = int(self._clock())
        tomorrow = (now // DAY_SECONDS + 1) * DAY_SECONDS
        try:
            self._client.update_item(
                TableName=self._table,
                Key=jobs_table.daily_use_key(owner, datetime.fromtimestamp(now, UTC).date().isoformat(), quota),
                UpdateExpression="ADD used :one SET entity = :entity, expires_at = :expires",
                ConditionExpression="attribute_not_exists(used) OR used < :limit",
                ExpressionAttributeValues={
                    ":one": 1,
                    ":limit": limit,
                    ":entity": "daily_use",
                    ":expires": tomorrow + DAY_SECONDS,
                },
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            raise QuotaExceeded(
                f"You have made {limit} {what} today, which is the limit of a day (UTC). "
                "Go on tomorrow, or ask the operator for a higher limit.",
                retry_after=tomorrow - now,
            ) from None
