"""The steps of a job: what its work tells while it goes on, such as the calls of an agent's tools and its text.

They are items beside the log, and are never published to SNS or webhooks. Those who follow a job get them: by
server-sent events, and by WebSocket (`core.live.step_channel`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from core import events, jobs_table
from core.aws.dynamodb import Item, UnexpiredItems
from core.errors import JobClosed
from core.jobs.job import Job

TOKEN = "token"  # noqa: S105 not a secret
"""The type of steps with text of the answer: `{"type": "token", "content": …}`."""
DONE = "done"
"""The type of the last message to those who follow: it is made of the job's last event, and is not stored."""


@dataclass(frozen=True)
class Step:
    """`number`: 1, 2, … of the job. `sequence`: of the job's last event before it. `body`: JSON in ASCII."""

    number: int
    sequence: int
    body: str

    @cached_property
    def payload(self) -> Mapping[str, Any]:
        """An object with a `type`."""
        payload: dict[str, Any] = json.loads(self.body)
        return payload


class StepStore:
    """`client` is a resource's client."""

    def __init__(self, client: Any, table: str, items: UnexpiredItems) -> None:
        self._client, self._table, self._items = client, table, items

    def append(self, job: Job, number: int, payload: Mapping[str, Any]) -> Step:
        """Write the step of this number. Writing it again has no effect.

        Raises JobClosed if there is another one: another worker has the job.
        """
        step = Step(number, job.sequence, events.encode(payload))
        item = {"entity": "step", "sequence": job.sequence, "body": step.body, "expires_at": job.expires_at}
        try:
            self._client.put_item(
                TableName=self._table,
                Item=jobs_table.step_key(job.job_id, number) | item,
                ConditionExpression="attribute_not_exists(pk) OR body = :body",
                ExpressionAttributeValues={":body": step.body},
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            raise JobClosed("another worker has written the step") from None
        return step

    def read(self, job_id: str, *, after: int = 0) -> list[Step]:
        """The steps after this number, in order (strongly consistent)."""
        values = {":low": jobs_table.step_sk(after + 1), ":high": jobs_table.END_OF_STEPS}
        items = self._items.query(jobs_table.steps_pk(job_id), "sk BETWEEN :low AND :high", values)
        return [_step(item) for item in items]


def done_payload(job_id: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """What follows the last step of a job whose last event has this payload."""
    failure = {"error": payload["error"]} if "error" in payload else {}
    return {"type": DONE, "job_id": job_id, "status": payload["status"], **failure}


def _step(item: Item) -> Step:
    number = int(item["sk"].removeprefix(jobs_table.STEP_PREFIX))
    return Step(number, int(item["sequence"]), item["body"])
