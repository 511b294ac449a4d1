"""How long an owner's last jobs of each kind took."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from core import jobs_table
from core.jobs.job import Job
from core.jobs.polling_interval import History


class Durations:
    """One item for each owner and kind. `client` is a resource's client."""

    def __init__(self, client: Any, table: str) -> None:
        self._client, self._table = client, table

    def history(self, owner: str, kind: str) -> History:
        key = jobs_table.durations_key(owner, kind)
        item = self._client.get_item(TableName=self._table, Key=key).get("Item")
        return History(tuple(json.loads(item["seconds"]))) if item else History()

    def record(self, job: Job) -> None:
        """Add the duration of a completed job. If two jobs end at once, one may be lost: this is a sample."""
        if job.status != "completed" or job.finished_at is None:
            return
        start, end = (datetime.fromisoformat(at).timestamp() for at in (job.created_at, job.finished_at))
        history = self.history(job.owner, job.kind).with_one(round(end - start, 3))
        key = jobs_table.durations_key(job.owner, job.kind)
        facts = {"entity": "durations", "seconds": json.dumps(history.seconds), "expires_at": job.expires_at}
        self._client.put_item(TableName=self._table, Item=key | facts)
