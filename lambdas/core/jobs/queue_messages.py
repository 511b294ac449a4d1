"""The messages of the indexing queue and of the embedding queue, and of their dead-letter queues."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class IndexingMessage:
    """An event of a job, or a message `<kind>.<what>` of a kind's own route. `fields`: the whole message."""

    event: str
    fields: Mapping[str, Any]

    @classmethod
    def read(cls, body: str) -> IndexingMessage:
        fields = json.loads(body)
        return cls(fields["event"], fields)

    @staticmethod
    def to_start(event: str, job_id: str) -> str:
        """The body of a message that has the job started later. `event`: the kind's first."""
        return json.dumps({"event": event, "job_id": job_id})

    @property
    def kind_name(self) -> str:
        return self.event.partition(".")[0]

    @property
    def job_id(self) -> str | None:
        """None in a message of a kind's own route, unless the kind sets it."""
        return self.fields.get("job_id")


@dataclass(frozen=True, slots=True)
class JobMessage:
    """A job for a worker. `hops`: how often the worker sent the message again."""

    job_id: str
    hops: int = 0

    @property
    def body(self) -> str:
        return json.dumps({"job_id": self.job_id, "hops": self.hops})


@dataclass(frozen=True, slots=True)
class BatchMessage:
    """A batch of a job's work, with the token of the task that waits for it. `fields`: the whole message.

    `failures`: how often it failed before it was sent again.
    """

    token: str
    fields: Mapping[str, Any]

    @property
    def failures(self) -> int:
        return int(self.fields.get("failures", 0))

    def after(self, failures: int) -> str:
        """The body of the same message, sent again after so many failures."""
        return json.dumps({**self.fields, "failures": failures})

    @property
    def job_id(self) -> str:
        return str(self.fields["job_id"])

    @property
    def execution(self) -> str:
        return str(self.fields["execution"])

    @property
    def batch(self) -> int:
        return int(self.fields["batch"])


def read_embedding_message(body: str) -> JobMessage | BatchMessage:
    fields = json.loads(body)
    if "task_token" in fields:
        return BatchMessage(fields["task_token"], fields)
    return JobMessage(fields["job_id"], int(fields.get("hops", 0)))
