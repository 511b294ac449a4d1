"""Events of jobs and owners, and how they are serialized."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

SUBMITTED, PROGRESS, ENDED = "submitted", "progress", "ended"
"""The lifecycle of a job at an event, independent of the event's name."""

DELIVERY_HEADER = "Recado-Delivery"
"""The header of every webhook, with the delivery's id. A request with it is a webhook of some deployment."""

OWNER_KIND = "endpoint"
OWNER_EVENTS = ("endpoint.disabled", "ping")
"""Events of an owner, which have no job id and no sequence."""


@dataclass(frozen=True)
class Event:
    """An event of a job or of an owner. `body`: the payload, which is sent unchanged, also in a replay.

    `status`: the job's status after the event. `lifecycle`: `submitted`, `progress` or `ended`. An owner's events
    have no job, sequence, status and lifecycle.
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
        """The event in an item of a job's log."""
        names = ("event_id", "name", "job_id", "kind", "owner", "timestamp", "body", "status", "lifecycle")
        return cls(**{key: item[key] for key in names}, sequence=int(item["sequence"]))

    @classmethod
    def of_payload(cls, payload: Mapping[str, Any], **facts: Any) -> Event:
        """An event whose body the caller has parsed. `facts`: the fields that are not in the payload."""
        event = cls(
            event_id=payload["event_id"],
            name=payload["event"],
            job_id=payload.get("job_id"),
            kind=payload["event"].partition(".")[0],
            sequence=payload.get("sequence"),
            timestamp=payload["timestamp"],
            **facts,
        )
        vars(event)["payload"] = payload
        return event

    @property
    def is_last(self) -> bool:
        """Whether the job ended with this event."""
        return self.lifecycle == ENDED

    @property
    def final_status(self) -> str | None:
        """The job's final status if this is its last event, else None."""
        return self.status if self.is_last else None

    @cached_property
    def payload(self) -> Mapping[str, Any]:
        payload: dict[str, Any] = json.loads(self.body)
        return payload


def is_failure(name: str) -> bool:
    """Whether the event goes to the alerts topic, too."""
    return name.endswith(".failed") or name == "endpoint.disabled"


def timestamp(seconds: float) -> str:
    """Seconds since the epoch as RFC 3339 UTC with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def encode(payload: Mapping[str, Any]) -> str:
    """JSON in ASCII: SQS rejects some characters, so they are escaped.

    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html
    """
    return json.dumps(payload, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
