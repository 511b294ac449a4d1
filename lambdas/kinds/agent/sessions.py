"""The turns of a session: jobs of one owner under one name. Their texts stay with the jobs, and go with them."""

from __future__ import annotations

from typing import Any

from core import jobs_table
from core.jobs import Job


class Sessions:
    """Items of the jobs table, which name jobs. `client` is a resource's client."""

    def __init__(self, client: Any, table: str) -> None:
        self._client, self._table = client, table

    def add(self, job: Job, session: str) -> dict[str, Any]:
        """The write that makes the job a turn of the session."""
        item = {"entity": "turn", "expires_at": job.expires_at}
        key = jobs_table.turn_key(job.owner, session, job.job_id)
        return {"Put": {"TableName": self._table, "Item": key | item}}

    def job_ids(self, owner: str, session: str, *, limit: int) -> list[str]:
        """The ids of the last jobs of the session, oldest first. They may have been deleted since."""
        prefix = jobs_table.turn_prefix(session)
        answer = self._client.query(
            TableName=self._table,
            KeyConditionExpression="pk = :pk AND begins_with(sk, :sk)",
            ExpressionAttributeValues={":pk": jobs_table.owner_pk(owner), ":sk": prefix},
            ScanIndexForward=False,
            ConsistentRead=True,
            Limit=limit,
        )
        return [item["sk"].removeprefix(prefix) for item in reversed(answer["Items"])]
