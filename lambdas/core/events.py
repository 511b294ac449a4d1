"""What an event is: its names, its envelope, and its one serialisation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

SUBMITTED, PROGRESS, ENDED = "submitted", "progress", "ended"
"""Where in its life a job is with an event, whatever the event is called."""

OWNER_KIND = "endpoint"
OWNER_EVENTS = ("endpoint.disabled", "ping")
"""The events of an owner rather than of a job: they have no job id and no sequence."""


@dataclass(frozen=True, slots=True)
class Event:
    """One fact in a job's log. `body` is the payload as it is sent, now and at any replay.

    `status` is the job's after the event; `lifecycle` is `submitted`, `progress` or `ended`. An owner's own events
    have no job, hence no sequence, status or lifecycle.
    """

    event_id: str
    name: str
    job_id: str | None
    kind: str
    owner: str
    sequence: int | None
    timestamp: str
    body: str
    status: str | None = None
    lifecycle: str | None = None

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> Event:
        """As a job's log has it stored."""
        names = ("event_id", "name", "job_id", "kind", "owner", "timestamp", "body", "status", "lifecycle")
        return cls(**{key: item[key] for key in names}, sequence=int(item["sequence"]))

    @property
    def is_last(self) -> bool:
        """Whether the job has ended with it."""
        return self.lifecycle == ENDED

    @property
    def final_status(self) -> str | None:
        """The status that the job ends in with this event; None for all but its last."""
        return self.status if self.is_last else None

    @property
    def payload(self) -> dict[str, Any]:
        payload: dict[str, Any] = json.loads(self.body)
        return payload


def is_failure(name: str) -> bool:
    """Whether people should be alerted."""
    return name.endswith(".failed") or name == "endpoint.disabled"


def timestamp(seconds: float) -> str:
    """Seconds since the epoch as RFC 3339 UTC with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def encode(payload: Mapping[str, Any]) -> str:
    """JSON, all ASCII: SQS refuses some characters, and no text of a caller may lose an event.

    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html
    """
    return json.dumps(payload, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
